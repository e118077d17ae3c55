"""Run a script or another flow unchanged, with each of its runs passed to a command.

The command acts within the script's own `execute` or `start`, while its ``with`` blocks, servers and temporary folders
are open.
"""

from __future__ import annotations

import builtins
import inspect
import os
import re
import runpy
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from multiprocessing import active_children
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from malflow.cli.output.exits import CommandError, Exit, Leave
from malflow.names import LONGEST_JOB
from malflow.runtime.base import Runtime
from malflow.runtime.descendants import ChildCall, Descendants
from malflow.runtime.hooks import Call, Hook, hooked
from malflow.runtime.single_thread import SingleThreadRuntime
from malflow.streams.stream import StreamProvider
from malflow.words import did_you_mean

__all__ = [
    "Calls",
    "Target",
    "exists",
    "near_script",
    "parsed",
    "run_flow",
    "several_calls",
]

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class Target:
    """A flow: a file or a module, and perhaps a name in it.

    Attributes:
        text: as it was written.
        file: the script; None for a module.
        module: the dotted name of the module; None for a script.
        name: the function or runtime in it; None runs the whole script.
    """

    text: str
    file: Path | None
    module: str | None
    name: str | None

    @property
    def job(self) -> str:
        """The name of the job whose state the command keeps: that of the script or module, as far as a job can have it.

        >>> Target("a/daily totals.py", Path("a/daily totals.py"), None, None).job, Target("__", None, "__", None).job
        ('daily-totals', 'default')
        """
        name = self.file.stem if self.file is not None else (self.module or "").rpartition(".")[2]
        return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-")[:LONGEST_JOB] or "default"

    @property
    def title(self) -> str:
        """The file or module, for messages."""
        return self.file.name if self.file is not None else self.module or self.text


def parsed(text: str) -> Target:
    """Parse ``flow.py``, ``flow.py:name``, ``package.module`` or ``package.module:name``.

    Raises:
        CommandError: if it names neither a script nor a module, or a file that can't be a script.
    """
    if _NAME.fullmatch(text) and exists(Path(text, "__main__.py")):
        return Target(text, None, text, None)
    if text and exists(Path(text)):
        return Target(text, _script(Path(text)), None, None)
    place, colon, name = text.rpartition(":")
    if not colon:
        place, name = text, ""
    elif not _NAME.fullmatch(name):
        raise CommandError(f"'{text}' is not a flow: after the colon, write the name of a function or a runtime")
    if place and exists(Path(place)):
        if Path(place).suffix == ".sql":
            raise CommandError(f"'{place}' is a file of SQL, without names to choose from; write {place}")
        return Target(text, _script(Path(place)), None, name)
    if _NAME.fullmatch(place) and Path(place).suffix not in (".py", ".ipynb", ".sql"):
        return Target(text, None, place, name or None)
    raise CommandError(f"there is no file '{place}'{near_script(Path(place))}")


def exists(path: Path | str) -> bool:
    """Whether there is a file or folder; False for a text that can't be a path."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # a name that is too long, a folder that is closed, a null byte
        return False


def _script(path: Path) -> Path:
    if path.is_dir():
        found = sorted(it.name for it in path.glob("*.py"))[:5]
        scripts = f" such as {path / found[0]}" if found else ""
        raise CommandError(f"'{path}' is a folder; name a script in it{scripts}, or a module: package.module")
    if path.suffix == ".ipynb":
        raise CommandError(
            f"'{path}' is a notebook; write `jupyter nbconvert --to script {path}` and run the script that it makes"
        )
    return path


def near_script(path: Path) -> str:
    """Return a hint: the script in that folder with the nearest name."""
    try:
        names = [it.name for it in path.parent.iterdir() if it.suffix in {".py", ".sql"}]
    except OSError:
        return f", and no folder '{path.parent}'"
    return did_you_mean(path.name, names, else_="", write=lambda it: f"'{path.parent / it}'")


_replaced: list[ModuleType] = []  # the modules in whose place a script runs: without a reference, Python empties them
_EXECUTE = re.compile(r"\.execute\(\s*\)")


class Calls:
    """Counts the calls of `execute` and `start` in a script, and passes on those that the command is about.

    Args:
        on_call: the hook of the command.
        wanted: the number of the first call that counts, from 1; the earlier ones return without a run.
        say: writes a line about a call that is left out.
        command: the command, such as ``malflow plan``.
        looks: whether it only looks: nothing runs in processes that the script starts, and its threads do not belong to
            the command, since they may wait for a run forever.

        python: whether a file of SQL may import functions of Python.

    Attributes:
        looks: whether the command only looks.
        python: whether a file of SQL may import functions of Python.
        descendants: the calls in processes that the script starts.
        made: the number of calls so far.
        imports: whether the flow is only being imported; no call then counts.
    """

    def __init__(
        self,
        on_call: Hook,
        wanted: int,
        say: Callable[[str], object],
        *,
        command: str,
        looks: bool = False,
        python: bool = True,
    ) -> None:
        self._on_call = on_call
        self._wanted = wanted
        self._say = say
        self._lock = threading.Lock()
        self.looks = looks
        self.python = python
        self.descendants = Descendants(command, looks=looks)
        self.made = 0
        self.imports = False

    def __call__(self, runtime: Any, call: Call) -> Any:
        """Return the runtime that is to run in place of the one that was called; None to run nothing."""
        if not self.descendants.is_here:
            return runtime  # in a process that the script has forked
        if self.imports:
            self._say(f"{call}() is left out: the flow is only imported; write it below `if __name__ == '__main__':`")
            return None
        with self._lock:
            self.made += 1
            number = self.made
        if number < self._wanted:
            self._say(f"call {number}, of {call}(), is left out (--call {self._wanted})")
            return None
        return self._on_call(runtime, call)


def run_flow(target: Target, arguments: Sequence[str], calls: Calls) -> None:
    """Run a flow in this process; each of its runs is passed to the command.

    Args:
        target: the flow. A script runs as ``__main__``, in which it stays; with a name, its module is imported, and
            its function or runtime is run.
        arguments: the script's own arguments.
        calls: the calls of the flow.

    Raises:
        CommandError: if there is no such flow, or it runs nothing and has not one function that builds a dataflow.
        Leave: in a process that the script has forked and that has come to the script's end.
        BaseException: any error of the script.
    """
    if not calls.python and (target.name or not target.file or target.file.suffix != ".sql"):
        raise CommandError(f"'{target.text}' is Python itself; --no-python is for a file of SQL")
    with hooked(calls), calls.descendants.told():
        if target.name is not None:
            runtime = _named_runtime(target, arguments, calls)
        else:
            names = (
                _run_script(target.file, arguments, calls)
                if target.file
                else _run_module(target.module or "", arguments)
            )
            if not calls.looks or not calls.made:
                _join_threads()
                _join_processes()
            if not calls.descendants.is_here:
                raise Leave(Exit.DONE)
            if calls.made or (calls.descendants.calls and not calls.looks):
                return
            runtime = SingleThreadRuntime(_only_build(names, target.title, calls.descendants.calls))
        runtime.execute()


def several_calls(target: Target) -> bool:
    """Whether the text of a script has several calls of `execute`."""
    if target.file is None:
        return False
    return len(_EXECUTE.findall(target.file.read_text(encoding="utf-8", errors="replace"))) > 1


def _run_script(file: Path, arguments: Sequence[str], calls: Calls) -> Mapping[str, Any]:
    if file.suffix == ".sql":
        return _sql_names(file, arguments, python=calls.python)
    code = _compiled(file)
    _enter(str(file.resolve().parent), [str(file), *arguments])
    module = ModuleType("__main__")
    vars(module).update(__file__=str(file), __builtins__=builtins, __spec__=None, __package__=None, __cached__=None)
    _replaced.append(sys.modules["__main__"])
    sys.modules["__main__"] = module
    exec(code, vars(module))  # noqa: S102 - the script that the user runs
    return vars(module)


def _sql_names(file: Path, arguments: Sequence[str], *, python: bool) -> Mapping[str, Any]:
    """Return the names of a file of SQL: its build function. Functions of Python are imported from its folder."""
    from malflow.sql.api import sql_flow  # noqa: PLC0415 - flows of Python don't need it

    if arguments:
        raise CommandError(f"'{file}' is a file of SQL: it takes no arguments")
    _enter(str(file.resolve().parent), [str(file)])
    run = sql_flow(file, python=python)

    def build_dataflow(provider: StreamProvider) -> None:
        run(provider)

    return {"__name__": __name__, "build_dataflow": build_dataflow}


def _compiled(file: Path) -> CodeType:
    try:
        return compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    except OSError as error:
        raise CommandError(f"'{file}' can't be read: {error.strerror}") from error
    except SyntaxError as error:
        place = f"{error.filename}:{error.lineno}" if error.lineno else None
        raise CommandError(f"'{file}' is not a Python script: {error.msg}{_at(place)}", location=place) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise CommandError(f"'{file}' is not a Python script: {error or type(error).__name__}") from error


def _at(place: str | None) -> str:
    return f" [{place}]" if place else ""


def _run_module(name: str, arguments: Sequence[str]) -> Mapping[str, Any]:
    _enter(str(Path.cwd()), [name, *arguments])
    _check_module(name)
    return runpy.run_module(name, run_name="__main__", alter_sys=True)


def _enter(folder: str, arguments: list[str]) -> None:
    """Set the arguments and the folder of imports, as Python does for a script."""
    sys.argv = arguments
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _check_module(name: str) -> None:
    try:
        found = find_spec(name)
    except ModuleNotFoundError as error:  # of a package that it is in
        found, missing = None, error.name
    else:
        missing = name
    if found is None and (missing is None or name == missing or name.startswith(f"{missing}.")):
        path = Path(*name.split(".")).with_suffix(".py")
        near = near_script(path) if path.parent.is_dir() else ""
        raise CommandError(f"there is no file '{name}' and no module '{name}'{near}")


def _named_runtime(target: Target, arguments: Sequence[str], calls: Calls) -> Runtime:
    """Import the module of a target; return the runtime that it names, or one of the function that it names."""
    calls.imports = True
    module = _imported(target, arguments)
    calls.imports = False
    thing: Any = module
    path = (target.name or "").split(".")
    for step in path:
        if not hasattr(thing, step):
            names = [name for name in vars(thing) if not name.startswith("_")] if hasattr(thing, "__dict__") else []
            raise CommandError(f"'{target.title}' has no '{step}'{did_you_mean(step, names)}")
        thing = getattr(thing, step)
    return _runtime_of(thing, target.text)


def _imported(target: Target, arguments: Sequence[str]) -> ModuleType:
    if target.file is None:
        name = target.module or ""
        _enter(str(Path.cwd()), [name, *arguments])
        _check_module(name)
        return import_module(name)
    _compiled(target.file)
    folder = str(target.file.resolve().parent)
    _enter(folder, [str(target.file), *arguments])
    paths = os.environ.get("PYTHONPATH")  # processes of the run import the module by its name
    os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{paths}" if paths else folder
    spec = spec_from_file_location(target.file.stem, target.file)
    if spec is None or spec.loader is None:
        raise CommandError(f"'{target.file}' can't be imported: its name must end in .py")
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _runtime_of(thing: Any, text: str) -> Runtime:
    if isinstance(thing, Runtime):
        return thing
    if not callable(thing):
        raise CommandError(f"'{text}' is neither a function nor a runtime; got {type(thing).__name__}")
    if _required(thing) == 1:
        return SingleThreadRuntime(thing)
    made = thing()
    if isinstance(made, Runtime):
        return made
    if callable(made) and _required(made) == 1:
        return SingleThreadRuntime(made)
    raise CommandError(
        f"'{text}' must build a dataflow with one argument, a StreamProvider, or return a runtime or such a function; "
        f"it returned {type(made).__name__}"
    )


def _required(function: Any) -> int:
    """Return the number of arguments that a function must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(it.default is it.empty and it.kind in positional for it in parameters)


def _only_build(
    names: Mapping[str, Any], title: str, elsewhere: Sequence[ChildCall]
) -> Callable[[StreamProvider], object]:
    """Return the function of a script that builds a dataflow.

    Args:
        names: the names of the script.
        title: the name of the script for people.
        elsewhere: its calls in processes of its own, left out.

    Raises:
        CommandError: if the script has no such function, or several.
    """
    module = names.get("__name__", "__main__")
    own = {name: it for name, it in names.items() if inspect.isfunction(it) and it.__module__ in (module, "__main__")}
    builds = [name for name, it in own.items() if name == "build_dataflow" or _takes_provider(it)]
    if len(builds) == 1:
        build: Callable[[StreamProvider], object] = own[builds[0]]
        return build
    if not builds and elsewhere:
        some = ", ".join(f"{title}:{name}" for name, it in own.items() if _required(it) == 1)
        raise CommandError(
            f"{title} runs its dataflow in a process of its own (process {elsewhere[0].process}), where nothing can be "
            f"looked at; name the function that builds the dataflow{f': {some}' if some else ', or the script of it'}"
        )
    if not builds:
        raise CommandError(
            f"{title} calls neither execute() nor start(), and has no function that builds a dataflow; write "
            "SingleThreadRuntime(build_dataflow).execute() at its end, or annotate the function's argument with "
            "StreamProvider"
        )
    choices = ", ".join(f"{title}:{name}" for name in sorted(builds))
    raise CommandError(
        f"{title} calls neither execute() nor start(), and builds several dataflows; name one: {choices}"
    )


def _takes_provider(function: Any) -> bool:
    if _required(function) != 1:
        return False
    first = next(iter(inspect.signature(function).parameters.values()))
    return first.annotation is StreamProvider or str(first.annotation).rpartition(".")[2] == "StreamProvider"


def _join_processes() -> None:
    """Wait for the processes of `multiprocessing` for which a Python process waits at its end."""
    for process in active_children():
        if not process.daemon:
            process.join()


def _join_threads() -> None:
    """Wait for the threads that keep a Python process alive."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()

"""``malflow run --reload``: start a flow again, with its state, whenever one of its modules changes.

The run is a child process. After a change, another child finds out whether the new program could start. If it could
not, the old run continues. Otherwise, the next child loads the script and waits at its `execute()`; then the old run
stops with a snapshot, and the new run begins with that snapshot. So there is always one run, whatever is edited
meanwhile.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final, TypeAlias

import click

from malflow.cli.output.exits import Exit
from malflow.cli.output.output import Output
from malflow.cli.reload_child import Child, own_environment
from malflow.cli.running.reloaded import SNAPSHOT_SECONDS
from malflow.cli.running.script import Target
from malflow.cli.running.serving import CONFIGURED, token_pipe
from malflow.runtime.processes.starting import flags_of_interpreter
from malflow.words import iso, listed

__all__ = [
    "REHEARSAL",
    "Given",
    "Reloader",
    "Seen",
    "changed_names",
    "given_to",
    "modules_in",
]

Seen: TypeAlias = Mapping[str, tuple[int, int, int]]
"""The modification time, the size and the inode number of each file."""

_OTHERS: Final = frozenset({"malflow.toml", "pyproject.toml"})
_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_MOST: Final = 5_000
"""The most modules that are looked at; the folder of a flow hardly has more."""


def modules_in(folder: Path) -> Seen:
    """Return the modules, files of SQL and configurations below a folder.

    Hidden folders and virtual environments are left out.
    """
    found: dict[str, tuple[int, int, int]] = {}
    for path in _modules(str(folder)):
        try:
            is_at = os.stat(path)  # noqa: PTH116 - of thousands of files, twice a second
        except OSError:  # it was removed meanwhile
            continue
        found[path] = is_at.st_mtime_ns, is_at.st_size, is_at.st_ino
        if len(found) == _MOST:
            break
    return found


def _modules(folder: str) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(folder), key=lambda it: it.name)
    except OSError:
        return
    if any(it.name == "pyvenv.cfg" for it in entries):
        return
    folders = []
    for it in entries:
        if it.is_dir(follow_symlinks=False):
            if not it.name.startswith(".") and it.name not in _LEFT_OUT:
                folders.append(it.path)
        elif it.name.endswith((".py", ".sql")) or it.name in _OTHERS:
            yield it.path
    for path in folders:
        yield from _modules(path)


def changed_names(before: Seen, now: Seen) -> list[str]:
    """Return the names of the files that differ, sorted."""
    return sorted({Path(it).name for it in before.keys() | now.keys() if before.get(it) != now.get(it)})


REHEARSAL: Final = "plan"
"""The command that says whether a program could start."""
_TURN: Final = 0.5
"""The seconds between two looks at the modules."""
_SETTLING: Final = 0.1
"""The seconds without another change before the new program is checked."""
_LONGEST_REHEARSAL: Final = 120.0
"""The most seconds for a changed program to get to its `execute()`. Half of it refuses scripts with slow imports,
double leaves a hung one unnoticed for longer."""

_LONG_STOP: Final = 5.0
"""The seconds after which a run that still stops is reported."""
_PATIENCE: Final = 1.0
"""The seconds that a child has to end by itself after a second signal."""
_OF_ONE_START: Final = frozenset({"restore", "rename", "drop", "replay", "opens"})
"""Options that apply only to the first start; later starts begin with the snapshot of the previous run."""
_SHOWN: Final = 3
"""The most changed modules to name, to fit the message on a line; the others are counted."""


@dataclass(frozen=True, slots=True)
class Given:
    """The options and arguments of a command, as they were written.

    Attributes:
        options: the words of each option, by its name in the command.
        arguments: the flow, and the script's own arguments.
    """

    options: Mapping[str, tuple[str, ...]]
    arguments: tuple[str, ...]

    def words(self, names: frozenset[str] | None, without: frozenset[str]) -> list[str]:
        """Return the options and arguments as words of a command line.

        Args:
            names: the options that the command has; None for all.
            without: options that are left out.
        """
        kept = [it for name, it in self.options.items() if name not in without and (names is None or name in names)]
        flow, *others = self.arguments
        return [*(word for words in kept for word in words), flow, "--", *others]


def given_to(context: click.Context, words: Sequence[str]) -> Given:
    """Return the options and arguments of a command from the words after its name."""
    values, _, _ = context.command.make_parser(context).parse_args([*words])
    options: dict[str, tuple[str, ...]] = {}
    for it in context.command.params:
        found = values.get(it.name or "")
        if isinstance(it, click.Option) and isinstance(found, str | bool | list):
            each = found if isinstance(found, list) else [found]
            option = max(it.opts, key=len)
            options[it.name or ""] = (
                (option,) if it.is_flag else tuple(word for value in each for word in (option, str(value)))
            )
    arguments = values.get("arguments")
    return Given(options, (str(values["flow"]), *(arguments if isinstance(arguments, list | tuple) else ())))


class Reloader:
    """The parent process of a flow that starts again after changes.

    Args:
        target: the flow.
        given: the options and arguments of the command.
        output: how to write.
    """

    def __init__(self, target: Target, given: Given, output: Output) -> None:
        self._target = target
        self._given = given
        self._output = output
        self._folder = Path() if target.file is None else target.file.parent
        self._child: Child | None = None
        self._code = 0
        self._has_run = False
        self._token = secrets.token_urlsafe(32)  # of the page: a browser stays logged in
        self._signals: list[int] = []
        self._wakes, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    def run(self) -> int:
        """Run the flow until a signal ends it; return its exit code."""
        with self._noting_signals():
            seen = modules_in(self._folder)
            self._start()
            try:
                while not self._signals:
                    if self._note_end() and self._is_over:
                        return self._code
                    now = modules_in(self._folder)
                    if now != seen:
                        seen = self._changed(seen, now)
                    self._sleep(_TURN)
                return self._end()
            finally:
                self._release()

    @property
    def _is_over(self) -> bool:
        """Whether no edit can help: the command was not understood, or the reader of its output has gone."""
        return self._code == Exit.BROKEN_PIPE or (self._code == Exit.USAGE and not self._has_run)

    # Changes

    def _changed(self, before: Seen, now: Seen) -> Seen:
        """Start the new program if it can start; return the modules that were seen."""
        while not self._signals:
            self._sleep(_SETTLING)
            settled = modules_in(self._folder)
            if settled != now:
                now = settled
                continue
            names = changed_names(before, now)
            if not names:
                return now
            shown = listed(names, _SHOWN, write=str)
            self._tell("changed", f"{shown} changed", names)
            self._keep_state()
            problem = self._rehearsed()
            following = self._loaded() if problem is None else None
            if modules_in(self._folder) != now:
                if following is not None:
                    following.discard()
                continue  # the program that was checked is not the one that would start
            if following is not None:
                self._restart(following)
            elif not self._signals:
                self._refuse(problem, names)
            return now
        return now

    def _rehearsed(self) -> str | None:
        """Return the reason why the program could not start; None if it could."""
        from malflow.cli import cli  # noqa: PLC0415 - it loads this module

        context = click.Context(cli)
        command = cli.get_command(context, REHEARSAL)
        names = frozenset(it.name for it in command.params if it.name) if command is not None else frozenset()
        words = self._given.words(names, self._left_out | {"json", "as_json"})
        with tempfile.TemporaryFile() as told:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [*_malflow(), REHEARSAL, *self._default(), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=told,
                env=own_environment(),
            )
            deadline = time.monotonic() + _LONGEST_REHEARSAL
            while process.poll() is None and not self._signals and time.monotonic() < deadline:
                self._sleep(_SETTLING)
            if process.poll() is None:
                process.kill()
                process.wait()
                return f"it did not get to its execute() within {_LONGEST_REHEARSAL:g} s"
            if process.returncode == Exit.DONE:
                return None
            told.seek(0)
            return told.read().decode(errors="replace").strip() or f"exit code {process.returncode}"

    def _loaded(self) -> Child | None:
        """Return a child that has loaded the new program and waits; None if it did not get there, and said why."""
        self._let_draw("still")  # the new one may write on the same terminal
        child = self._started()
        is_ready = child.wait_for({"ready": True}, _LONGEST_REHEARSAL)
        if not is_ready:
            child.discard()
        self._let_draw("draw")
        return child if is_ready else None

    def _let_draw(self, do: str) -> None:
        if self._child is not None and "live" in self._given.options:
            self._child.ask(do)

    def _refuse(self, problem: str | None, names: Sequence[str]) -> None:
        is_alive = self._child is not None and self._child.is_alive
        state = "the run before this change continues" if is_alive else "it starts once it is mended"
        told = "" if problem is None else f"{problem}\n"
        self._tell("refused", f"{told}{self._target.title} was not reloaded; {state}", names)

    def _restart(self, following: Child) -> None:
        """Stop the old run, and let the new one go once that has ended."""
        self._stop()
        self._note_stop()
        if self._signals:
            following.discard()
            return
        if following.left_out != self._left_out:  # the old run has failed, so the options of its start apply again
            following.discard()
            following = self._started()
        self._let_go(following)

    def _stop(self) -> None:
        child, told = self._child, time.monotonic() + _LONG_STOP
        if child is None or not child.is_alive:
            return
        child.process.send_signal(signal.SIGTERM)
        while child.is_alive and not self._signals:
            self._sleep(_SETTLING)
            if time.monotonic() > told:
                told = float("inf")
                self._tell("stopping", f"{self._target.title} is still stopping; the new program starts after it", ())

    # The child

    def _start(self) -> None:
        self._let_go(self._started())

    def _let_go(self, child: Child) -> None:
        self._child = child
        child.ask("go")

    def _started(self) -> Child:
        """Return a child that has begun to load the script."""
        left_out = self._left_out
        serves = {"serve", "opens"} & self._given.options.keys()
        token = [token_pipe(self._token)] if serves else []
        for_page = ["--page-token", *map(str, token)] if token else []
        if serves == {"opens"}:  # which only the first start has
            for_page += ["--serve", CONFIGURED]
        words = [*for_page, *self._default(), *self._given.words(None, left_out)]
        return Child([*_malflow(), "run", "--reloaded", Child.SOCKET, *words], token, self._wakes, left_out)

    @property
    def _left_out(self) -> frozenset[str]:
        return frozenset({"reload", *(_OF_ONE_START if self._has_run else ())})

    def _default(self) -> list[str]:
        return ["--default-persistence", str(self._folder / ".malflow")]

    def _note_end(self) -> bool:
        """Note that the child has ended by itself; return whether it has."""
        if self._child is None or self._child.is_alive:
            return False
        code = self._note_stop()
        by = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}" if code else "has ended"
        if not self._is_over:
            self._tell("ended", f"{self._target.title} {by}; it starts again once a module changes", ())
        return True

    def _note_stop(self) -> int:
        """Note and return the exit code of the child, if it has ended; without a child, return the last code."""
        child = self._child
        if child is None or child.is_alive:
            return self._code
        self._child = None
        code = child.process.returncode
        child.release()
        self._has_run = self._has_run or code == 0
        self._code = code if code >= 0 else 128 - code
        return int(code)

    def _end(self) -> int:
        """End the child after a signal; a second one ends it without a snapshot, a third one at once."""
        self._release()
        child, hard = self._child, None
        while child is not None and child.is_alive:
            self._sleep(_SETTLING)
            if len(self._signals) > 2:  # noqa: PLR2004 - the third signal
                child.process.kill()
            elif len(self._signals) > 1:
                hard = hard or time.monotonic() + _PATIENCE
                if time.monotonic() > hard:  # it was sent to this process alone
                    child.process.send_signal(signal.SIGTERM)
                    hard = time.monotonic() + _PATIENCE
        if child is not None:
            code = child.process.returncode
            self._code = code if code >= 0 else 128 - code
        return self._code

    def _release(self) -> None:
        """Close the socket. The child then ends."""
        if self._child is not None:
            self._child.release()

    def _keep_state(self) -> None:
        """Wait until the child has taken a snapshot, with which the new program will begin."""
        child = self._child
        if child is not None and child.ask("snapshot"):
            kept = child.wait_for({"kept": True, "none": False}, SNAPSHOT_SECONDS)
            self._has_run = self._has_run or bool(kept)

    # Output and signals

    def _tell(self, event: str, text: str, names: Sequence[str]) -> None:
        if self._output.json:
            at = iso(datetime.now(UTC))
            facts = {"flow": self._target.title, "at": at, "event": event, "changed": [*names], "message": text}
            self._output.document("reload", facts, err=True)
        elif event != "changed" or not self._output.quiet:
            self._write(text)

    def _write(self, text: str) -> None:
        """Write lines; if the child may have a live view, it writes them itself, above the view."""
        if "live" not in self._given.options or self._child is None or not self._child.ask("say", text):
            self._output.warn(text)

    def _sleep(self, seconds: float) -> None:
        """Wait; a signal cuts it short."""
        if select.select([self._wakes], [], [], seconds)[0]:
            os.read(self._wakes, 100)

    @contextmanager
    def _noting_signals(self) -> Iterator[None]:
        def on_signal(number: int, _frame: FrameType | None) -> None:
            self._signals.append(number)
            with suppress(OSError):
                os.write(self._waker, b"\0")

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._wakes)
            os.close(self._waker)


def _malflow() -> list[str]:
    """Return the words of a command line that runs malflow as this process does."""
    program = Path(sys.argv[0])
    is_script = program.name.startswith("malflow") and program.is_file()
    return [sys.executable, *flags_of_interpreter(), *([str(program)] if is_script else ["-m", "malflow"])]

"""Find the classes that pickles and states name, including those of scripts and malflow's own."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from malflow import message, sinks, sources
from malflow.names import RESERVED, written_name

__all__ = [
    "ROOMS",
    "declared_class",
    "find",
    "place_of",
    "script_name",
]

_MAIN = "__main__"

_MOVED = {
    ("malflow.sources.files", "FilePosition"): "malflow.connectors.files.source",
    ("malflow.sources.lines", "LinePosition"): "malflow.connectors.files.lines",
    ("malflow.sinks.local_file", "FileSinkPosition"): "malflow.connectors.files.local_file",
}
"""The current modules of malflow classes that older snapshots name under former ones."""

_MOVED_WHOLE = {
    "malflow.aggregators.distinct": "malflow.aggregators.collected",
    "malflow.aggregators.ends": "malflow.aggregators.extremes",
    "malflow.aggregators.exact": "malflow.aggregators.sums",
    "malflow.aggregators.folds": "malflow.aggregators.composed",
    "malflow.aggregators.frequent": "malflow.aggregators.collected",
    "malflow.aggregators.ranked": "malflow.aggregators.extremes",
    "malflow.aggregators.several": "malflow.aggregators.composed",
    "malflow.aggregators.stages": "malflow.aggregators.composed",
    "malflow.aggregators.variances": "malflow.aggregators.sums",
    "malflow.batch": "malflow.records.batch",
    "malflow.connectors.files.bad_records": "malflow.connectors.files.parser",
    "malflow.connectors.postgres.batches": "malflow.connectors.postgres.writing",
    "malflow.connectors.postgres.changes": "malflow.connectors.postgres.changes.source",
    "malflow.connectors.postgres.copy_overlap": "malflow.connectors.postgres.changes.first_copy",
    "malflow.connectors.postgres.first_copy": "malflow.connectors.postgres.changes.first_copy",
    "malflow.connectors.postgres.replicated_transactions": "malflow.connectors.postgres.changes.transactions",
    "malflow.connectors.postgres.visibility": "malflow.connectors.postgres.changes.first_copy",
    "malflow.connectors.redis.entries": "malflow.connectors.redis.stream",
    "malflow.limits": "malflow.failures",
    "malflow.operators.epochs.floors": "malflow.operators.epochs.frontiers",
    "malflow.operators.epochs.out_of_orderness": "malflow.operators.epochs.rounding",
    "malflow.operators.failures.letters": "malflow.operators.failures.dead_letters",
    "malflow.operators.letters": "malflow.operators.failures.dead_letters",
    "malflow.operators.windows.accumulated": "malflow.operators.windows.local_aggregate",
    "malflow.paned_state": "malflow.states.paned",
    "malflow.panes": "malflow.event_time.panes",
    "malflow.patterns.automaton_states": "malflow.patterns.automaton",
    "malflow.patterns.finding": "malflow.patterns.explaining",
    "malflow.patterns.results": "malflow.patterns.runs",
    "malflow.rows": "malflow.records.rows",
    "malflow.state": "malflow.states.keyed",
    "malflow.state_kinds": "malflow.states.kinds",
    "malflow.table_change": "malflow.message",
    "malflow.tick": "malflow.event_time.tick",
    "malflow.timers": "malflow.event_time.timers",
}
"""The current names of modules whose classes may all be in states: users have rows as values, and panes in windows."""


def script_name() -> str:
    """Return the name under which the module that runs as ``__main__`` can be imported; "" if it has no file."""
    main = sys.modules.get(_MAIN)
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else ""


def find(module: str, qualname: str, script: str = "") -> Any:
    """Return the object that a pickle names; a class of a script may have moved to a module, or the reverse.

    Args:
        module: the module named in the pickle.
        qualname: the object's qualified name.
        script: for ``__main__``, the name under which that module can be imported.

    Raises:
        ImportError: if the module can't be imported.
        AttributeError: if the module has no such object.
    """
    module = _MOVED.get((module, qualname)) or _MOVED_WHOLE.get(module, module)
    failure: AttributeError | None = None
    for candidate in _candidates(module, script):
        found: Any = candidate
        try:
            for name in qualname.split("."):
                found = getattr(found, name)
        except AttributeError as error:
            failure = failure or error
        else:
            return found
    raise failure or ImportError(f"no module {module!r}")


def place_of(kind: Any) -> str:
    """Return where a class is defined, as `` (file:line)``; "" if that is unknown."""
    try:
        return f" ({inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]})"
    except (OSError, TypeError, IndexError, SyntaxError):
        return ""


def _candidates(module: str, script: str) -> Iterator[ModuleType]:
    """Yield the modules that may define the name now, the likeliest first."""
    main = sys.modules[_MAIN]
    if module == _MAIN:
        others = list(_imported(script)) if script else []
        yield from (main, *others) if script == script_name() else (*others, main)
    elif module not in sys.modules and _is_script(main, module):
        yield main
    else:
        yield import_module(module)


def _imported(script: str) -> Iterator[ModuleType]:
    """Yield the imported modules that may be the script, that of the same name first."""
    if script in sys.modules:
        yield sys.modules[script]
    yield from (found for name, found in list(sys.modules.items()) if name.endswith(f".{script}"))


def _is_script(main: ModuleType, module: str) -> bool:
    """Whether the running script is the module of that name."""
    if getattr(main, "__spec__", None) is not None:
        return script_name() == module
    file: str = getattr(main, "__file__", None) or ""
    names = module.split(".")
    return bool(file) and list(Path(file).resolve().with_suffix("").parts[-len(names) :]) == names


ROOMS = (message, sources, sinks)
"""The modules with these classes; those of connectors are imported on demand."""


def declared_class(name: str) -> type | None:
    """Return the class that declares a name. The name starts with `RESERVED`."""
    for room in ROOMS if name.startswith(RESERVED) else ():
        kind = getattr(room, name.removeprefix(RESERVED), None)
        if isinstance(kind, type) and written_name(kind) == name:
            return kind
    return None

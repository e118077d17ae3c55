"""Test helpers for dataflows: scripted sources, a file system that injects faults, and suites of laws.

Each helper is imported on first use: the file system needs fsspec, the checks need hypothesis (``pip install
'malflow[testing]'``).

>>> from malflow import SingleThreadRuntime
>>> from malflow.sinks import VecSink
>>> from malflow.testing import CRASH, Crash, ScriptedSource
>>> source, seen = ScriptedSource([1, 2, CRASH, 3]), VecSink()
>>> runtime = SingleThreadRuntime(lambda provider: provider.new_stream().source("s", source).sink("seen", seen))
>>> try:
...     runtime.execute()
... except Crash as crash:
...     print(crash, "after", seen.values)
part NoKey crashed at item 2 after [1, 2]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from malflow.errors import MissingDependency

if TYPE_CHECKING:
    from malflow.testing.exactly_once import assert_exactly_once
    from malflow.testing.faults import Call, Crash, Fault, FaultyFileSystem
    from malflow.testing.scripted import CRASH, END, PAUSE, ScriptedSource, Timed
    from malflow.testing.sink_laws import assert_sink
    from malflow.testing.source_laws import assert_source
    from malflow.testing.store_laws import assert_store
    from malflow.testing.value_laws import SinkValues, SourceValues
    from malflow.testing.value_strategies import python_values, same_value

__all__ = [
    "CRASH",
    "END",
    "PAUSE",
    "Call",
    "Crash",
    "Fault",
    "FaultyFileSystem",
    "ScriptedSource",
    "SinkValues",
    "SourceValues",
    "Timed",
    "assert_exactly_once",
    "assert_sink",
    "assert_source",
    "assert_store",
    "python_values",
    "same_value",
]

_ROOMS = {
    "exactly_once": ("assert_exactly_once",),
    "faults": ("Call", "Crash", "Fault", "FaultyFileSystem"),
    "sink_laws": ("assert_sink",),
    "source_laws": ("assert_source",),
    "store_laws": ("assert_store",),
    "value_laws": ("SinkValues", "SourceValues"),
    "value_strategies": ("python_values", "same_value"),
    "scripted": ("CRASH", "END", "PAUSE", "ScriptedSource", "Timed"),
}
_LAZY = {name: f"malflow.testing.{room}" for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as missing:
        if missing.name != "hypothesis":
            raise
        raise MissingDependency(f"{name} needs hypothesis; pip install 'malflow[testing]'") from missing

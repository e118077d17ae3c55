"""Test helpers for dataflows: scripted sources, a file system that injects faults, and an exactly-once check.

Each helper is imported on first use: the file system needs fsspec, the check needs hypothesis (``pip install
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

if TYPE_CHECKING:
    from malflow.testing.crash import Crash
    from malflow.testing.exactly_once import assert_exactly_once
    from malflow.testing.faults import Call, Fault, FaultyFileSystem
    from malflow.testing.scripted import CRASH, END, PAUSE, ScriptedSource, Timed
    from malflow.testing.sink_laws import assert_sink
    from malflow.testing.source_laws import assert_source
    from malflow.testing.store_laws import assert_store

__all__ = [
    "CRASH",
    "END",
    "PAUSE",
    "Call",
    "Crash",
    "Fault",
    "FaultyFileSystem",
    "ScriptedSource",
    "Timed",
    "assert_exactly_once",
    "assert_sink",
    "assert_source",
    "assert_store",
]

_ROOMS = {
    "crash": ("Crash",),
    "exactly_once": ("assert_exactly_once",),
    "faults": ("Call", "Fault", "FaultyFileSystem"),
    "sink_laws": ("assert_sink",),
    "source_laws": ("assert_source",),
    "store_laws": ("assert_store",),
    "scripted": ("CRASH", "END", "PAUSE", "ScriptedSource", "Timed"),
}
_LAZY = {name: f"malflow.testing.{room}" for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)

"""A start from a snapshot with many keys, with other workers: how long it takes, and the memory of the driver."""

from __future__ import annotations

import resource
import sys
import time
from functools import partial
from typing import Any

from malflow import SingleThreadRuntime, SparkRuntime, StreamProvider, rendezvous_select
from malflow.engine.compiler import compile_graph
from malflow.engine.state_specs import states_of
from malflow.events import RunStarted, TickFinished
from malflow.graph import Graph
from malflow.runtime.spark.session.session import leave_session, make_session
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.snapshot.files.data_file import pack
from malflow.snapshot.files.sections import Found, Written, bare_sections, with_frame, write_file
from malflow.snapshot.persistence import RestoreOptions
from malflow.snapshot.protocol.commit import DataWriter
from malflow.snapshot.writer import SnapshotSession
from malflow.sources import StatefulSource
from malflow.states.keyed import Delta
from malflow.testing import ScriptedSource

__all__ = ["measure_restore", "write_snapshot"]

_BEFORE = 4
_AFTER = 8
"""Workers of the snapshot, and of the run that starts from it."""


def write_snapshot(folder: str, keys: int) -> None:
    """Write a snapshot of a count by integer key, without running the dataflow."""
    graph = Graph()
    _counts(StreamProvider(graph))
    backend, specs = FsspecBackend(folder), states_of(compile_graph(graph))
    session, _ = backend.open(specs, RestoreOptions())
    if not isinstance(session, SnapshotSession):
        raise TypeError(session)
    of_workers: list[list[int]] = [[] for _ in range(_BEFORE)]
    for key in range(keys):
        of_workers[rendezvous_select(key, range(_BEFORE))].append(key)

    def write(writer: DataWriter) -> Written:
        files = []
        for worker, them in enumerate(of_workers):
            bare = bare_sections(
                session.codec, worker, "count", 1, Delta({key: key for key in them}, whole=True), Found()
            )
            framed = (with_frame(section, raw, session.compression) for section, raw in bare)
            files += [write_file(writer, it, session.codec, session.compression, base=True) for it in pack(framed)]
        return files, []

    session.commit_written(1, _BEFORE, specs, {"count": keys}, write, base=True).result()
    session.close(wait=True)


def measure_restore(folder: str, on: str) -> dict[str, float]:
    """Start from the snapshot; return the seconds until the first tick has ended, and the driver's memory in MB.

    The memory is that of the process at its peak, without that of the interpreter, the libraries and a session.
    """
    times = _Times()
    how: dict[str, Any] = {"persistence": FsspecBackend(folder), "parallelism": _AFTER, "listeners": [times]}
    if on == "spark":
        session, _ = make_session()
        session.sparkContext.parallelize([0], 2).map(str).collect()
        runtime = partial(SparkRuntime, spark=session)
    else:
        runtime = partial(SingleThreadRuntime)
    before, times.began = _peak(), time.monotonic()
    runtime(_counts, **how).execute()
    if on == "spark":
        leave_session()
    return {"s": times.first - times.began, "MB": _peak() - before, "keys": times.keys}


class _Times:
    def __init__(self) -> None:
        self.began = self.first = 0.0
        self.keys = 0

    def on_event(self, event: object) -> None:
        """Note the end of the first tick."""
        if isinstance(event, RunStarted):
            self.keys = (event.keys or {}).get("count", 0)
        if isinstance(event, TickFinished) and not self.first:
            self.first = time.monotonic()


def _peak() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _counts(provider: StreamProvider) -> None:
    numbers = provider.new_stream().source("numbers", StatefulSource(ScriptedSource([1])))
    numbers.key_distribute("key", _value).stateful_map("count", _add, default=int).sink("out", VecSink())


def _value(message: Any) -> int:
    return int(message.value)


def _add(_key: int, value: int, total: int) -> tuple[int, int]:
    return value, total + value

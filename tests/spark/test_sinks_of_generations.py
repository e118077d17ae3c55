"""A rescale, and the discovery of parts, begin a generation with sinks of its own: those of before are closed."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest

from malflow import StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from malflow.runtime.spark.tasks import live_workers as worker_cache
from malflow.runtime.spark.tasks.live_workers import ReleaseTask
from malflow.runtime.spark.tasks.records import RowKind
from malflow.runtime.transport.error_pickles import loaded_error
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.snapshot import NoPersistence
from malflow.testing import ScriptedSource
from tests.spark.simulation import Cluster, Plan, settings_at, simulated

pytest.importorskip("pyspark")


class Connections(StatelessSinkImpl[Any, Any, Any]):
    """A sink that opens a connection when it is first used.

    Args:
        fails: whether the first one can't be closed.

    Attributes:
        open: the open ones.
        most: the greatest number of open ones.
        values: all values.
        closed: how many were closed.
    """

    open: ClassVar[set[int]] = set()
    most: ClassVar[int] = 0
    values: ClassVar[list[Any]] = []
    closed: ClassVar[int] = 0

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails

    def sink(self, msg: Any) -> None:
        """Write a record."""
        self.open.add(id(self))
        Connections.most = max(self.most, len(self.open))
        self.values.append(msg.value)

    def close(self) -> None:
        """Close the connection."""
        self.open.discard(id(self))
        Connections.closed += 1
        if self.fails and self.closed == 1:
            raise ConnectionError("it is gone")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Forget the connections of other tests, and what a run leaves in this process."""
    Connections.open, Connections.most, Connections.values, Connections.closed = set(), 0, [], 0
    yield
    for kept in (worker_cache.LIVE_WORKERS, worker_cache.SHARED, worker_cache._LOADED, worker_cache._UNTOLD):
        kept.clear()


def run(source: Any, plans: list[Plan], *, fails: bool = False) -> Cluster:
    """Write the numbers of a source in one process, with what happens meanwhile."""
    graph = Graph()
    numbers = StreamProvider(graph).new_stream().source("numbers", source)
    numbers.sink("out", StatelessSink(Connections(fails=fails)))
    with TemporaryDirectory() as scratch, simulated():
        cluster = Cluster(plans)
        cluster.run(compile_graph(graph), settings_at(scratch, NoPersistence()), 1)
    return cluster


NUMBERS = {"a": [*range(10)], "b": [*range(10, 20)]}
RESCALES = [Plan(rescale=1 + number % 2) for number in range(8)]


def test_a_rescale_closes_the_sinks_of_before() -> None:
    run(ScriptedSource(NUMBERS), RESCALES)
    assert sorted(Connections.values) == list(range(20))
    assert Connections.most <= 2


def released(cluster: Cluster) -> list[str]:
    """Release the process of a run; return the errors."""
    for mine, theirs in zip(
        (worker_cache.LIVE_WORKERS, worker_cache.SHARED, worker_cache._LOADED, {}, worker_cache._UNTOLD),
        cluster._processes[0],
        strict=True,
    ):
        mine.update(theirs)  # type: ignore[attr-defined] # dicts, all of them
    rows = ReleaseTask("run-0", 0.0, None)(iter(()))
    return [str(loaded_error(row.blob)) for row in rows if row.kind == RowKind.FAILURE]


def test_an_error_of_closing_them_is_told_at_the_end() -> None:
    cluster = run(ScriptedSource(NUMBERS), [Plan(), Plan(rescale=2)], fails=True)
    [error] = released(cluster)
    assert error.startswith("operator 'out' failed at close: ConnectionError: it is gone")
    assert not Connections.open
    assert released(cluster) == []

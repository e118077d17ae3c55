"""Rows that change while Spark repeats a lost task: the first read is sent again."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from malflow import StreamProvider
from malflow.connectors.postgres import PostgresChanges, PostgresSource
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import NoPersistence
from tests.connectors.postgres.kit import Database, slot_name

pytest.importorskip("pyspark")

from malflow.runtime.spark.tasks.records import Row, RowKind
from tests.spark.simulation import Cluster, Plan, settings_at, simulated

CHANGES = {
    "deleted": "delete from numbers where n = 1",
    "inserted": "insert into numbers values (0)",
    "untouched": "select 1",
}


class Losing(Cluster):
    """Loses the first task that has polled something, after it has written its changes; another process repeats it."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__([])
        self.meanwhile: Callable[[], object] | None = meanwhile

    def _attempt(self, place: int, *task: Any) -> list[Row]:
        rows = super()._attempt(place, *task)
        polled = any(pickle.loads(row.blob).report.polled for row in rows if row.kind == RowKind.REPORT)
        if not polled or self.meanwhile is None:
            return rows
        release(self._processes.pop(place))
        self.meanwhile()
        self.meanwhile = None
        return super()._attempt(place + 1, *task)


def release(process: tuple[dict[Any, Any], ...]) -> None:
    """Close what a process has open."""
    for live in process[0].values():
        live.worker.close()


@pytest.fixture
def numbers(database: Database) -> Database:
    database.execute("create table numbers (n int primary key)")
    database.execute("insert into numbers select generate_series(1, 9)")
    return database


def run(numbers: Database, source: Any, change: str, folder: Path) -> list[int]:
    cluster = Losing(lambda: numbers.execute(CHANGES[change]))
    values = run_on(cluster, source, folder)
    assert cluster.meanwhile is None
    return values


def run_on(cluster: Cluster, source: Any, folder: Path) -> list[int]:
    graph, sink = Graph(), VecSink()
    StreamProvider(graph).new_stream().source("numbers", source).sink("out", StatelessSink(sink))
    try:
        with simulated():
            cluster.run(compile_graph(graph), settings_at(str(folder), NoPersistence()), 1)
    finally:
        for process in cluster._processes.values():
            release(process)
    return [row["n"] if isinstance(row, dict) else (row.new or row.old)["n"] for row in sink.values]


@pytest.mark.fault("I3")
@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_change_after_their_page_was_read(numbers: Database, tmp_path: Path, change: str) -> None:
    source = PostgresSource(numbers.dsn, "numbers", page_rows=3)
    assert run(numbers, source, change, tmp_path) == list(range(1, 10))


@pytest.mark.fault("I3")
def test_rows_that_change_after_their_page_of_a_first_copy(numbers: Database, tmp_path: Path) -> None:
    source = PostgresChanges(numbers.dsn, ["numbers"], slot=slot_name(), until="now", page_rows=3)
    assert run(numbers, source, "deleted", tmp_path) == [*range(1, 10), 1], "the deletion comes after the copy"


def test_first_copy_by_a_reader_that_moves_from_the_start(numbers: Database, tmp_path: Path) -> None:
    source = PostgresChanges(numbers.dsn, ["numbers"], slot=slot_name(), until="now", page_rows=3)
    cluster = Cluster([Plan(places=(tick % 2,)) for tick in range(9)])
    assert run_on(cluster, source, tmp_path) == list(range(1, 10))

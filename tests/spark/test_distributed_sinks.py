"""Distributed sinks on Spark: each record is visible once, whatever is repeated, fails or moves."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow import StreamProvider
from malflow.connectors.parquet import ParquetSink
from malflow.engine.plan import Program, compile_graph
from malflow.graph import Graph
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import in_memory
from tests.kit.counted_files import JsonFiles, read_json_files
from tests.spark.simulation import Cluster, Later, Plan, settings_at, simulated

pytest.importorskip("pyspark")

PARTS = ("a", "b", "c")
KEYS = 5
SIZE = 40

Values = list[tuple[int, int, int]]
"""Part, number, and the count of records of its key."""


def count(_key: Any, value: int, seen: int) -> tuple[dict[str, int], int]:
    return {"n": value, "nth": seen}, seen + 1


def paused(numbers: range) -> list[Any]:
    """Return numbers that are polled in eight ticks."""
    return [
        it for at in range(0, len(numbers), len(numbers) // 8) for it in (*numbers[at : at + len(numbers) // 8], PAUSE)
    ]


def program_of(sink: Any, size: int = SIZE) -> Program:
    graph = Graph()
    script = {part: paused(range(size * number, size * number + size)) for number, part in enumerate(PARTS)}
    numbers = StreamProvider(graph).new_stream().source("numbers", ScriptedSource(script))
    keyed = numbers.key_distribute("key", lambda msg: msg.value % KEYS)
    keyed.stateful_map("count", count, default=int).sink("out", sink)
    return compile_graph(graph)


def assert_once(rows: list[dict[str, int]], size: int = SIZE) -> None:
    """Check that each number is there once, with the count that it had in an uninterrupted run."""
    assert sorted(row["n"] for row in rows) == [*range(len(PARTS) * size)]
    of_key: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        of_key[row["n"] % KEYS].append(row["nth"])
    for nths in of_key.values():
        assert nths == [*range(len(nths))], "the records of a key are in their order"


def parquet_rows(folder: Path) -> list[dict[str, int]]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def json_rows(folder: Path) -> list[dict[str, int]]:
    return read_json_files(folder)


SINKS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], list[dict[str, int]]]]] = {
    "own": (lambda folder: JsonFiles(str(folder)), json_rows),
    "parquet": (ParquetSink, parquet_rows),
}

plans = st.lists(
    st.builds(
        Plan,
        places=st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple),
        again=st.frozensets(st.integers(0, 7), max_size=3),
        killed=st.none() | st.integers(0, 3),
        asks=st.booleans(),
        writes=st.booleans(),
        down=st.integers(0, 3).map(lambda number: number == 0),
        doubled=st.booleans(),
        rescale=st.integers(0, 9).map(lambda number: number if 1 <= number <= 4 else None),
        crash=st.integers(0, 6).map(lambda number: number == 0),
    ),
    max_size=12,
)


@pytest.mark.fault("I2", "I3")
@settings(max_examples=settings().max_examples // 2)
@given(name=st.sampled_from(sorted(SINKS)), plans=plans, share_bytes=st.sampled_from([1, 200, 1 << 20]))
@pytest.mark.slow
def test_each_record_is_visible_once(name: str, plans: list[Plan], share_bytes: int) -> None:
    make, read = SINKS[name]
    backend, later = in_memory(), Later()
    backend._executor = lambda: later  # type: ignore[assignment] # it does what a test does by hand
    with tempfile.TemporaryDirectory() as scratch, simulated():
        folder = Path(scratch) / "out"
        sink = make(folder)
        sink.share_bytes, sink.max_pending = share_bytes, 100
        Cluster(plans, later=later).run(program_of(sink), settings_at(scratch, backend), 2)
        assert_once(read(folder))
        assert not [*Path(scratch).glob("runs/*/sinks/*")]

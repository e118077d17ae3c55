"""Parts that ticks hand out: a repeated tick reads the same ones, and a lost worker is rebuilt with its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import StreamProvider, limit_out_of_orderness
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program
from malflow.graph import Graph
from malflow.runtime.spark.settings import Settings
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, NoPersistence
from malflow.snapshot.persistence import Persistence
from malflow.sources import StatefulSource
from tests.kit.backends import in_memory, kept_states
from tests.kit.bounded import BoundedSource
from tests.spark.simulation import Cluster, Plan, settings_at, simulated

pytest.importorskip("pyspark")

PARTS = 12
LENGTHS = [3, 0, 9, 1, 1, 5, 2, 7, 0, 4, 1, 6]
SCRIPT = {part: [*range(100 * part, 100 * part + rows)] for part, rows in enumerate(LENGTHS)}
VALUES = sorted(value for values in SCRIPT.values() for value in values)


def in_short_ticks(started: Settings) -> Settings:
    return replace(started, options=replace(started.options, max_records_per_tick=4))


def program_of(script: Mapping[Any, Sequence[Any]], sink: Any) -> Program:
    """Count the records of each part; time is held back by unread parts."""
    graph = Graph()
    stream = StreamProvider(graph).new_stream().source("script", StatefulSource(BoundedSource(script)))
    on_time, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
    on_time.stateful_map("count", lambda _key, value, n: (value, n + 1), int).sink("out", sink)
    return replace(compile_graph(graph), part_assignment="dynamic")


def values_of(plans: Sequence[Plan], workers: int, store: Persistence) -> list[Any]:
    """Read all parts in simulated processes, a few records a tick; return what the sink was given."""
    sink: VecSink[Any, Any, Any] = VecSink()
    with TemporaryDirectory() as scratch, simulated():
        Cluster(plans).run(program_of(SCRIPT, sink), in_short_ticks(settings_at(scratch, store)), workers)
    return sorted(sink.values)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize(
    "plans",
    [
        pytest.param([Plan(places=(number % 2,)) for number in range(40)], id="processes take turns"),
        pytest.param([Plan(places=(number,)) for number in range(40)], id="each tick in a new process"),
        pytest.param([Plan(again=frozenset({0, 1, 2, 3}))] * 40, id="each tick is done twice"),
        pytest.param([Plan(rescale=2 + number % 3) for number in range(40)], id="the number of workers changes"),
    ],
)
def test_each_part_is_read_once(plans: list[Plan], workers: int) -> None:
    assert values_of(plans, workers, NoPersistence()) == VALUES


plans = st.builds(
    Plan,
    places=st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple),
    again=st.frozensets(st.integers(0, 3), max_size=1),
    killed=st.none() | st.integers(0, 3),
    rescale=st.none() | st.integers(1, 4),
)


@pytest.mark.slow
@pytest.mark.fault("I14")
@given(st.lists(plans, max_size=16), st.integers(1, 4))
def test_each_part_is_read_once_whatever_happens(faults: list[Plan], workers: int) -> None:
    store: FsspecBackend = in_memory()
    assert values_of(faults, workers, store) == VALUES
    assert kept_states(store, "count") == {part: rows for part, rows in enumerate(LENGTHS) if rows}

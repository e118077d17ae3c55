"""Parts that have finished stay finished until the run ends, whichever process reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from malflow.runtime.spark.settings import Settings
from malflow.sinks import VecSink
from malflow.snapshot import NoPersistence
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource
from tests.spark.simulation import Cluster, Plan, settings_at, simulated

pytest.importorskip("pyspark")

Script = Mapping[str, Sequence[Any]]


def in_short_ticks(started: Settings) -> Settings:
    return replace(started, options=replace(started.options, max_records_per_tick=2))


def values_of(script: Script, plans: Sequence[Plan], workers: int) -> list[Any]:
    """Run a script on simulated processes, a record or two a tick; return what the sink was given."""
    graph, sink = Graph(), VecSink[Any, Any, Any]()
    StreamProvider(graph).new_stream().source("script", StatefulSource(ScriptedSource(script))).sink("out", sink)
    with TemporaryDirectory() as scratch, simulated():
        Cluster(plans).run(compile_graph(graph), in_short_ticks(settings_at(scratch, NoPersistence())), workers)
    return sorted(sink.values)


SCRIPT = {"ends": [1, 2, END, 90, 91], "goes on": list(range(10, 30)), "ends later": [*range(40, 45), END, 92]}
BEFORE_THE_END = [1, 2, *range(10, 30), *range(40, 45)]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "plans",
    [
        pytest.param([Plan(places=(number % 2,)) for number in range(40)], id="processes take turns"),
        pytest.param([Plan(places=(number,)) for number in range(40)], id="each tick in a new process"),
        pytest.param([Plan(again=frozenset({0, 1, 2}))] * 40, id="each tick is done twice"),
        pytest.param([Plan(rescale=1 + number % 3) for number in range(40)], id="the number of workers changes"),
    ],
)
def test_a_part_that_has_ended_is_not_read_on(plans: list[Plan], workers: int) -> None:
    assert values_of(SCRIPT, plans, workers) == BEFORE_THE_END


plans = st.builds(
    Plan,
    places=st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple),
    again=st.frozensets(st.integers(0, 3), max_size=1),
    killed=st.none() | st.integers(0, 3),
    rescale=st.none() | st.integers(1, 3),
)
items = st.lists(st.integers(0, 9) | st.sampled_from([PAUSE, PAUSE, END]), max_size=12)


@pytest.mark.slow
@pytest.mark.fault("I14")
@given(st.dictionaries(st.sampled_from("abcd"), items, min_size=1), st.lists(plans, max_size=16), st.integers(1, 3))
def test_a_run_reads_each_part_to_its_first_end(script: Script, faults: list[Plan], workers: int) -> None:
    read = [list(takewhile(lambda item: item is not END, items)) for items in script.values()]
    assert values_of(script, faults, workers) == sorted(item for items in read for item in items if item is not PAUSE)

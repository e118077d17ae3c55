"""Scripts of the tick clock: silence and timers without sleeping."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from malflow import DataMessage, GraphError, SingleThreadRuntime, StatefulLogic, agg, limit_out_of_orderness
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, NoPersistence
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.testing import CRASH, END, PAUSE, ScriptedSource, Timed, assert_exactly_once
from malflow.windows import Timing, tumbling
from tests.kit.driving import compiled

pytestmark = pytest.mark.slow

HOUR = timedelta(hours=1)


class Flow:
    """Counts in windows of 10, with time that advances after an hour of silence; and what it sent."""

    def __init__(self, source: Any, **options: Any) -> None:
        self.source = source
        self.options = {"idle_after": HOUR, "second": 1} | options
        self.late: VecSink[Any, Any, Any] = VecSink()
        self.results: VecSink[Any, Any, Any] = VecSink()

    def build(self, provider: Any) -> None:
        stream = provider.new_stream().source("source", self.source)
        on_time, late = stream.generate_epochs("epochs", limit_out_of_orderness(3), **self.options)
        late.sink("late", StatelessSink(self.late))
        keyed = on_time.key_distribute("all", lambda msg: "all")
        counts = keyed.window(tumbling(10)).aggregate("counts", agg.count())
        counts.sink("results", StatelessSink(self.results))


SILENT = [Timed("a", 1), Timed("b", 8), PAUSE(3600), PAUSE(20), Timed("late", 7), Timed("c", 10**6)]


def check(flow: Flow) -> None:
    assert [msg.value for msg in flow.late] == ["late"]
    assert [(it.value.start, it.value.value, it.value.timing) for it in flow.results] == [
        (0, 2, Timing.FINAL),
        (10**6, 1, Timing.END),
    ]


def test_a_pause_of_some_time_closes_windows() -> None:
    flow, began = Flow(StatefulSource(ScriptedSource(SILENT))), time.monotonic()
    SingleThreadRuntime(flow.build).execute()
    check(flow)
    assert time.monotonic() - began < 30


def test_a_pause_of_some_time_closes_windows_on_spark(tmp_path: Any) -> None:
    pytest.importorskip("pyspark")
    from tests.spark.simulation import Cluster, settings_at, simulated  # noqa: PLC0415 - needs pyspark

    flow = Flow(StatefulSource(ScriptedSource(SILENT)))
    with simulated():
        Cluster([]).run(compiled(flow.build), settings_at(str(tmp_path), NoPersistence()), 2)
    check(flow)


def test_time_goes_on_after_a_restart(tmp_path: Any) -> None:
    """Though the snapshot's time is ahead of the system's clock by then."""
    source = ScriptedSource([Timed("a", 1), PAUSE(3000), PAUSE, END, PAUSE(800), PAUSE(20), Timed("late", 1)])
    flow = Flow(StatefulSource(source))
    for _ in range(2):
        SingleThreadRuntime(flow.build, FsspecBackend(str(tmp_path))).execute()
    assert [msg.value for msg in flow.late] == ["late"]


@pytest.mark.parametrize("seconds", [0, -1, "1", True, float("nan"), float("inf")])
def test_a_pause_needs_a_positive_number(seconds: Any) -> None:
    with pytest.raises(GraphError, match=r"write PAUSE\(seconds\), with a positive number; got PAUSE"):
        PAUSE(seconds)


@pytest.mark.parametrize("mark", [CRASH, END])
def test_other_marks_take_no_time(mark: Any) -> None:
    with pytest.raises(GraphError, match=r"write PAUSE\(seconds\)"):
        mark(1)


@pytest.mark.parametrize("ticks", [-1, [], [1, -1], "1", True, float("inf"), None])
def test_ticks_are_seconds(ticks: Any) -> None:
    with pytest.raises(GraphError, match="ticks must be a number of seconds, or several; got"):
        assert_exactly_once(Flow(SingleIteratorSource([])).build, [1], ticks=ticks, max_examples=1)


class Reminded(StatefulLogic[Any, Any, Any, Any, Any]):
    """Sends the number of a key's records five minutes after the first one."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        if state is None:
            output.wake_after(timedelta(minutes=5))
        return (state or 0) + 1

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> None:
        output.send(DataMessage(key, (at.minute, state), 0))


@pytest.mark.parametrize("ticks", [0, 1, 100, [3, 1000, 2]])
def test_timers_by_the_clock_are_exactly_once(ticks: float | Sequence[float]) -> None:
    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", SingleIteratorSource([]))
        keyed = stream.key_distribute("parity", lambda msg: msg.value % 2)
        keyed.stateful_op("reminded", Reminded()).sink("sent", VecSink())

    assert_exactly_once(build, [*range(6), PAUSE, 7, PAUSE(200), *range(8, 14)], ticks=ticks, max_examples=20)


PARTS = "a", "b", "c"
scripts = st.fixed_dictionaries(
    {
        part: st.lists(
            st.integers(0, 40).map(lambda at: Timed(at, at)) | st.sampled_from([PAUSE, PAUSE(50)]), max_size=8
        )
        for part in PARTS
    }
)


@pytest.mark.parametrize("per_part", [True, False])
@given(
    script=scripts,
    ticks=st.lists(st.integers(0, 60), min_size=1, max_size=10),
    idle_after=st.integers(1, 100),
    every=st.none() | st.integers(2, 9),
)
@settings(max_examples=5, phases=[Phase.generate], suppress_health_check=[HealthCheck.nested_given])
def test_time_without_input_is_exactly_once(
    per_part: bool, script: Any, ticks: list[int], idle_after: int, every: int | None
) -> None:
    """Stops and crashes change nothing where the ticks are the same."""
    options = {"per_part": per_part, "idle_after": timedelta(seconds=idle_after), "every": every}
    flow = Flow(StatefulSource(ScriptedSource(dict.fromkeys(PARTS, ()))), **options)
    assert_exactly_once(flow.build, {"source": script}, ticks=ticks, rescale=False, max_examples=10)

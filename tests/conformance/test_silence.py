"""Time without input, and explanations of the operators that wait, on every runtime."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from malflow import agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource, Timed
from malflow.windows import Timing, tumbling
from tests.kit.waiting import wait_until

HOUR = timedelta(hours=1)


class Flow:
    """Counts in windows of 10 after an exchange; and what it sent."""

    def __init__(self, script: Any, **options: Any) -> None:
        self.source = StatefulSource(ScriptedSource(script))
        self.options = options
        self.late: VecSink[Any, Any, Any] = VecSink()
        self.results: VecSink[Any, Any, Any] = VecSink()

    def build(self, provider: Any) -> None:
        stream = provider.new_stream().source("source", self.source)
        on_time, late = stream.generate_epochs("epochs", limit_out_of_orderness(3), **self.options)
        late.sink("late", self.late)
        keyed = on_time.key_distribute("all", lambda msg: "all")
        keyed.window(tumbling(10)).aggregate("counts", agg.count()).sink("results", self.results)

    @property
    def found(self) -> list[tuple[int, int, Timing]]:
        """The windows, in the order of their starts."""
        return sorted((it.value.start, it.value.value, it.value.timing) for it in self.results)


def test_time_goes_on_by_the_clock_where_all_are_silent(any_parallelism: Any) -> None:
    script = [Timed("a", 1), Timed("b", 8), PAUSE(3600), PAUSE(20), Timed("late", 7), Timed("c", 10**6)]
    flow = Flow(script, idle_after=HOUR, second=1)
    any_parallelism(flow.build).execute()
    assert flow.found == [(0, 2, Timing.FINAL), (10**6, 1, Timing.END)]
    assert [msg.value for msg in flow.late] == ["late"]


@pytest.mark.parametrize("per_part", [True, False])
def test_a_silent_part_follows_a_busy_one(any_parallelism: Any, per_part: bool) -> None:
    busy = [item for at in range(0, 50, 10) for item in (Timed("busy", at), PAUSE(3000))]
    silent = [Timed("silent", 1), *[PAUSE] * 10, Timed("late", 2)]
    flow = Flow({"busy": busy, "silent": silent}, idle_after=HOUR, per_part=per_part)
    any_parallelism(flow.build).execute()
    assert [msg.value for msg in flow.late] == ["late"]
    assert [it for it in flow.found if it[2] is Timing.FINAL][:3] == [
        (0, 2, Timing.FINAL),
        (10, 1, Timing.FINAL),
        (20, 1, Timing.FINAL),
    ]


def test_silence_goes_on_after_a_restart(any_parallelism: Any, store: FsspecBackend) -> None:
    script = [Timed("a", 1), PAUSE(3000), PAUSE, END, PAUSE(700), PAUSE(20), Timed("late", 2)]
    flow = Flow(script, idle_after=HOUR, second=1)
    for _ in range(2):
        any_parallelism(flow.build, persistence=store).execute()
    assert [msg.value for msg in flow.late] == ["late"]


def test_a_run_is_explained_while_it_runs(runtime: Any) -> None:
    flow = Flow([Timed("a", 1), *[PAUSE(1)] * 10**5])
    handle = runtime(flow.build).start()
    try:
        wait_until(lambda: handle.explain_time(timeout=120).rows, seconds=120)
        (row,) = (table := handle.explain_time(timeout=120)).rows
        assert (row.operator, row.what, row.open, row.frontier, row.until) == ("counts", "windows", 1, -2, 9)
        assert (row.generator, row.source) == ("epochs", "source")
        assert str(table).startswith("operator 'counts' has 1 window open and waits for 9; its time is -2.")
        assert handle.progress.unfinished == ("source",)
    finally:
        handle.stop()
        handle.await_termination(120)
    assert handle.explain_time().rows[0].operator == "counts"

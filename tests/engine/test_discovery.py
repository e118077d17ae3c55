"""Event time of a source whose parts appear while it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from malflow import StreamProvider, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing.driven import DrivenRun
from tests.kit.driving import compiled
from tests.kit.ticking import HandClock, Polls

WORKERS = 3
SECOND = timedelta(seconds=1)


class Discovering(Polls):
    """A source with a script of each part."""

    discover_every = SECOND


class Dataflow:
    """A run of a source on some workers, behind whose epochs there is an exchange."""

    def __init__(
        self, script: Mapping[str, Sequence[Sequence[int]]], *, idle_after: timedelta | None, keyed: bool
    ) -> None:
        self.source = Discovering(script, keyed=keyed)
        self.late: VecSink[Any, Any, Any] = VecSink()
        self.epochs: list[int] = []
        self.idle_after = idle_after
        self.run = DrivenRun(compiled(self.build), parallelism=WORKERS, tracked=True)
        self.run.ticks.clock = self.clock = HandClock()
        self.run.open()
        self.seconds = 0

    def build(self, provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(self.source))
        on_time, late = numbers.generate_epochs("epochs", limit_out_of_orderness(0), idle_after=self.idle_after)
        late.sink("late", self.late)
        keyed = on_time.key_distribute("one", lambda _: "one")
        keyed.inspect_frontier("seen", self.note).sink("out", VecSink())

    def note(self, epoch: Any, context: Any) -> None:
        if context.worker_id == 0:
            self.epochs.append(epoch)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.seconds += 1
            self.clock.set(self.seconds)
            self.run.tick()

    def add(self, **script: Sequence[Sequence[int]]) -> None:
        self.source.script = {**self.source.script, **script}
        self.run.add_parts({"numbers": list(script)})


@pytest.mark.parametrize("keyed", [True, False])
def test_epochs_of_a_new_part_on_a_worker_without_one(keyed: bool) -> None:
    flow = Dataflow({"a": [[10], [20], [30], [40], [50]]}, idle_after=None, keyed=keyed)
    flow.tick(3)
    before = list(flow.epochs)
    assert before[-1] >= 20
    for name in "bcdefgh":  # they come to all workers
        flow.add(**{name: [[5], [35], [60], [61]]})
    flow.tick(4)
    assert flow.epochs == sorted(flow.epochs)
    assert flow.epochs[-1] > before[-1]
    assert [msg.timestamp for msg in flow.late][:7] == [5] * 7
    assert len(list(flow.late)) == 7 or not keyed  # otherwise the parts of a worker overtake each other


@pytest.mark.parametrize("keyed", [True, False])
def test_no_end_of_a_source_whose_parts_are_finished(keyed: bool) -> None:
    flow = Dataflow({"a": [[10], [20]]}, idle_after=None, keyed=keyed)
    flow.tick(5)
    assert not flow.run.is_finished
    assert flow.run.ticks.unfinished == ("numbers",)
    flow.add(b=[[30], [40]])
    flow.tick(3)
    assert flow.epochs[-1] >= 30
    assert not list(flow.late)


@pytest.mark.parametrize("keyed", [True, False])
def test_time_by_the_clock_after_the_last_part(keyed: bool) -> None:
    flow = Dataflow({"a": [[10], [20]]}, idle_after=2 * SECOND, keyed=keyed)
    flow.tick(2)
    assert flow.epochs[-1] == 20
    flow.add(b=[[], [], [], [], [100], [200]], c=[[150], [160], [170], [180], [190], [300]])
    flow.tick(8)
    assert flow.epochs == sorted(flow.epochs)
    assert flow.epochs[-1] >= 190


def test_states_that_are_written_after_a_discovery() -> None:
    flow = Dataflow({"a": [[10], [20], [30]]}, idle_after=None, keyed=True)
    flow.tick()
    flow.run.deltas()
    flow.add(b=[[11], [12]])
    flow.tick()
    found = {delta.name: dict(delta.delta.changed) for delta in flow.run.deltas() if delta.name == "numbers"}
    positions = {
        part: at
        for delta in flow.run.deltas(whole=True)
        if delta.name == "numbers"
        for part, at in delta.delta.changed.items()
    }
    assert positions == {"a": 2, "b": 1}
    assert found

"""How many records sources poll."""

from __future__ import annotations

from malflow import StreamProvider
from malflow.operators.hosting.poll_pacing import PollPacing
from malflow.records.batch import BATCH_SIZE
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from tests.kit.driving import run_of

ENOUGH_TICKS = 200


def test_a_source_that_polled_less_catches_up_with_another() -> None:
    endless = range(10**9)

    def build(provider: StreamProvider) -> None:
        first, second = (provider.new_stream().source(f"source {at}", SingleIteratorSource(endless)) for at in (1, 2))
        first.union(second, name="both").filter("none", lambda _: False).sink("sink", VecSink())

    with run_of(build) as run:
        fast, slow = run._sources
        usual, slow.most = slow.most, 8
        while fast.polled < BATCH_SIZE // 2:
            run.tick()
        slow.most = usual
        for _ in range(ENOUGH_TICKS):
            run.tick()
            if slow.polled >= fast.polled:
                return
        raise AssertionError(f"one source polls {fast.polled} records a tick, and the other one {slow.polled}")


def test_batches_that_grow_are_polled_smaller() -> None:
    pacing = PollPacing(BATCH_SIZE)
    pacing.limit_batch(4)
    pacing.start_tick(100)
    pacing.start_tick(100)
    assert pacing.part_limit(1) <= BATCH_SIZE // 4

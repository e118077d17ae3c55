"""How many records sources poll."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from malflow import StreamProvider
from malflow.engine.ticks import PollPacing
from malflow.records.batch import BATCH_SIZE
from malflow.sinks import VecSink
from malflow.sources import StatelessSource, StatelessSourceImpl, StatelessSourcePartition
from tests.kit.driving import run_of

TICKS = 200
PARTS = range(12)
"""Parts of which each of two workers has a half."""

LIMIT = 1_000
"""A poll limit of a tick of `SHORT` seconds."""

SHORT, LONG = 0.001, 1.0


class Endless(StatelessSourceImpl[int, int, int]):
    """Parts that have as many records as are asked for."""

    keyed = False

    def __init__(self, parts: Iterable[int]) -> None:
        self._parts = parts

    def list_parts(self) -> Iterable[int]:
        return self._parts

    def build_part(self, part: int) -> EndlessPart:
        del part
        return EndlessPart()


class EndlessPart(StatelessSourcePartition[int, int]):
    def poll_batch(self, limit: int) -> tuple[Sequence[int], Sequence[int]]:
        return range(limit), range(limit)

    def poll(self) -> tuple[int, int] | None:
        raise AssertionError("batches are polled")

    def is_finished(self) -> bool:
        return False


def endless(provider: StreamProvider, name: str, parts: Iterable[int]) -> None:
    numbers = provider.new_stream().source(name, StatelessSource(Endless(parts)))
    numbers.filter(f"none of {name}", lambda _: False).sink(f"sink of {name}", VecSink())


def even(provider: StreamProvider) -> None:
    endless(provider, "numbers", PARTS)


@pytest.mark.slow
def test_all_workers_poll_alike_however_the_ticks_take() -> None:
    with run_of(even, parallelism=2) as run:
        for _ in range(TICKS):
            run.tick()
            assert run._sources[0].polled == run._sources[1].polled, "one worker reads faster than the other"
        assert run.ticks.polled > BATCH_SIZE


def test_a_source_that_polled_less_catches_up_with_another() -> None:
    def build(provider: StreamProvider) -> None:
        endless(provider, "first", [0])
        endless(provider, "second", [0])

    with run_of(build) as run:
        fast, slow = run._sources
        usual, slow.limits.most = slow.limits.most, 8
        while fast.polled < BATCH_SIZE // 2:
            run.tick()
        slow.limits.most = usual
        run.tick()
        assert slow.polled == fast.polled


def test_batches_that_grow_are_polled_smaller() -> None:
    pacing = PollPacing(BATCH_SIZE)
    pacing.note(100, 400, SHORT)
    assert pacing.limit <= BATCH_SIZE // 4


def test_the_time_of_long_ticks_gets_near_to_a_tenth_of_a_second() -> None:
    per_record = 0.000_1
    pacing = PollPacing()
    for _ in range(TICKS):
        pacing.note(pacing.limit, pacing.limit, pacing.limit * per_record)
    assert 0.05 <= pacing.limit * per_record <= 0.2


def test_slow_calls_do_not_make_ticks_smaller_than_the_least() -> None:
    pacing = PollPacing(least=400)
    limits = set()
    for _ in range(TICKS):
        limits.add(pacing.limit)
        pacing.note(pacing.limit, pacing.limit, 5.0 * pacing.limit / 100)
    assert limits == {400}


def test_fast_calls_get_ticks_long_enough_to_use_their_capacity() -> None:
    pacing = PollPacing(least=400)
    for _ in range(TICKS):
        pacing.note(pacing.limit, pacing.limit, 0.03 + pacing.limit * 0.000_1)
    assert 0.2 <= pacing.limit * 0.000_1 <= 0.8


def test_ticks_without_records_leave_the_limit_as_it_is() -> None:
    pacing = PollPacing(LIMIT)
    pacing.note(0, 1, LONG)
    assert pacing.limit == LIMIT

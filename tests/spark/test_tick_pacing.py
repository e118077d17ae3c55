"""The pace of ticks, against simulated ticks of known cost."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.runtime.spark.pacing import MOST_BYTES, Pace, PaceOptions

AIM = 1.5
TICKS = 60


def ticks(pace: Pace, fixed: float, each: float, *, noise: Random | None = None, most: int = 10**9) -> list[float]:
    """Simulate ticks with a fixed time and a time per record, up to the records that sources have."""
    taken = []
    for _ in range(TICKS):
        records = min(pace.limit, most)
        seconds = (fixed + each * records) * (1.0 if noise is None else noise.uniform(0.8, 1.25))
        pace.note(records, seconds)
        taken.append(seconds)
    return taken


costs = st.floats(1e-7, 0.5)
fixed_times = st.floats(0.01, 10.0)


def within(taken: list[float], fixed: float, each: float, *, times: float) -> bool:
    """Whether half of the last ticks took no longer than a multiple of what they may take, give or take a record."""
    allowed = max(AIM, 2 * fixed, min(4 * fixed, 3.0))
    return sorted(taken[-20:])[10] <= times * allowed + 1.25 * each


def is_wide(pace: Pace, fixed: float, each: float) -> bool:
    """Whether ticks have at least a tenth of the records that are worth their fixed time."""
    return pace.limit >= min(max(AIM - fixed, fixed) / each / 10, 10**6)


@pytest.mark.fault("I18")
@given(fixed_times, costs, st.integers(1, 64))
def test_ticks_come_to_the_time_they_may_take(fixed: float, each: float, workers: int) -> None:
    assert within(ticks(Pace(PaceOptions(), workers), fixed, each), fixed, each, times=2)


def test_ticks_of_noisy_machines_come_to_a_bounded_time() -> None:
    draw, calm, wide = Random(1), 0, 0  # noqa: S311 - noise
    for _ in range(500):
        fixed, each = 10 ** draw.uniform(-2, 1), 10 ** draw.uniform(-7, -0.31)
        pace = Pace(PaceOptions(), draw.randint(1, 64))
        calm += within(ticks(pace, fixed, each, noise=draw), fixed, each, times=2)
        wide += is_wide(pace, fixed, each)
    assert min(calm, wide) > 490, "noise that conspires may do more, but is rare"


@given(fixed_times, costs, st.integers(1, 64))
def test_a_fixed_time_does_not_make_ticks_smaller_and_smaller(fixed: float, each: float, workers: int) -> None:
    pace = Pace(PaceOptions(), workers)
    ticks(pace, fixed, each)
    assert is_wide(pace, fixed, each)


@pytest.mark.parametrize("parts", [1, 2, 10])
def test_many_workers_do_not_stay_at_one_record_each(parts: int) -> None:
    pace = Pace(PaceOptions(), 32)
    for _ in range(TICKS):
        records = max(pace.limit, parts)  # each part gives one, whatever the limit
        pace.note(records, 7.0 + 1e-6 * records)
    assert pace.limit > 100_000


@pytest.mark.parametrize("latency", [None, 0.2])
def test_slow_calls_do_not_make_ticks_smaller_than_the_least(latency: float | None) -> None:
    pace = Pace(PaceOptions(latency=latency), 8, least=400)
    for _ in range(TICKS):
        assert pace.limit >= 400
        pace.note(pace.limit, 0.1 + 5.0 * pace.limit / 100)
    assert pace.limit == 400


@given(costs, st.floats(10.0, 1e6))
def test_a_function_that_becomes_slow_has_fewer_records_soon(each: float, times: float) -> None:
    pace = Pace(PaceOptions(), 1)
    ticks(pace, 0.1, each)
    slow = each * times
    taken = ticks(pace, 0.1, slow)
    assert min(taken[:3]) <= 2 * AIM + slow


@pytest.mark.parametrize("each", [1e-6, 1e-5, 1e-4])
def test_short_ticks_grow_quickly(each: float) -> None:
    taken = ticks(Pace(PaceOptions(), 2), 0.15, each)
    assert sum(seconds < AIM / 2 for seconds in taken) <= 6


def test_a_source_that_has_little_does_not_make_the_next_tick_large() -> None:
    pace = Pace(PaceOptions(), 1)
    before = pace.limit
    ticks(pace, 0.1, 1e-6, most=before // 4)
    assert pace.limit == before
    ticks(pace, 0.1, 1e-6, most=0)
    assert pace.limit == before


def test_one_tick_that_is_a_little_too_long_does_not_count() -> None:
    pace = Pace(PaceOptions(), 1)
    ticks(pace, 0.1, 1e-4)
    before = pace.limit
    for _ in range(10):
        pace.note(before, 3.0)
        pace.note(before, 1.4)
    assert pace.limit >= before
    pace.note(before, 3.0)
    pace.note(before, 3.0)
    assert pace.limit < before


def test_the_first_tick_may_wait_for_processes_to_start() -> None:
    pace = Pace(PaceOptions(), 1)
    before = pace.limit
    assert not pace.note(before, 20.0)
    assert pace.limit == before
    assert pace.note(before, 0.2), "it was shorter than need be"
    assert pace.limit > before


@given(st.integers(1, 1 << 30), costs)
def test_ticks_of_large_records_are_bounded_by_bytes(size: int, each: float) -> None:
    pace = Pace(PaceOptions(), 1)
    for _ in range(TICKS):
        records = pace.limit
        pace.note(records, 0.1 + each * records, size * records)
    assert pace.limit * size <= max(size, MOST_BYTES)


@given(fixed_times, costs, st.integers(1, 64), st.floats(0.1, 5.0))
def test_ticks_keep_to_a_latency_above_the_fixed_time(fixed: float, each: float, workers: int, latency: float) -> None:
    taken = ticks(Pace(PaceOptions(latency=latency), workers), fixed, each)
    assert sorted(taken[-20:])[10] <= 2 * max(latency, 1.5 * fixed) + 1.25 * each


def test_a_short_latency_makes_short_ticks() -> None:
    usual, short = ticks(Pace(PaceOptions(), 2), 0.05, 1e-5), ticks(Pace(PaceOptions(latency=0.3), 2), 0.05, 1e-5)
    assert sorted(usual[-20:])[10] > 0.75
    assert 0.1 < sorted(short[-20:])[10] <= 0.45

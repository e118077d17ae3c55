"""Sources of instants: their output, its times, and how they continue."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, NoKey
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import CronSource, PeriodicSource, StartSource, StatefulSource

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
moments = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))


def emitted(source: Any, position: Any, *clocks: datetime, started: datetime | None = None) -> list[datetime]:
    """Poll a reader at these times, in a run that started at the first of them."""
    reader = source.build_part(NoKey, position)
    found: list[datetime] = []
    for now in clocks:
        reader.set_clock(now, clocks[0] if started is None else started)
        values, timestamps = reader.poll_batch(10_000)
        assert values == timestamps
        found += values
    return found


def minutes(*numbers: int) -> list[datetime]:
    return [NOON + timedelta(minutes=number) for number in numbers]


def run_once(runtime: Any, source: Any, store: FsspecBackend | None = None) -> list[Any]:
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        provider.new_stream().source("instants", StatefulSource(source)).sink("sink", sink)

    runtime(build, store).execute() if store else runtime(build).execute()
    return [(it.value, it.timestamp) for it in sink]


@pytest.mark.slow
def test_a_periodic_source_runs_until_its_end(runtime: Any) -> None:
    every = timedelta(milliseconds=50)
    seconds = next((it for name, it in (("Spark", 8), ("Process", 3)) if name in repr(runtime)), 1)
    until = datetime.now(UTC) + timedelta(seconds=seconds)
    found = run_once(runtime, PeriodicSource(every, until=until))
    assert len(found) > 5
    assert all(value == timestamp for value, timestamp in found)
    assert all(later - earlier == every for (earlier, _), (later, _) in pairwise(found))
    assert until - every < found[-1][0] <= until


def test_a_start_comes_once_in_the_life_of_a_job(runtime: Any, store: FsspecBackend) -> None:
    before = datetime.now(UTC)
    ((value, timestamp),) = run_once(runtime, StartSource(), store)
    assert before <= value == timestamp <= datetime.now(UTC)
    assert run_once(runtime, StartSource(), store) == []


def test_instants_come_when_the_clock_reaches_them() -> None:
    source = PeriodicSource(timedelta(minutes=10))
    clocks = [NOON, NOON + timedelta(minutes=9), NOON + timedelta(minutes=10), NOON + timedelta(minutes=35)]
    assert emitted(source, None, *clocks) == minutes(0, 10, 20, 30)


def test_an_offset_moves_the_instants() -> None:
    source = PeriodicSource(timedelta(minutes=10), offset=timedelta(minutes=63))
    assert emitted(source, None, NOON, NOON + timedelta(minutes=20)) == minutes(3, 13)


@pytest.mark.parametrize(("missed", "expected"), [("all", [10, 20, 30, 40]), ("latest", [30, 40]), ("none", [40])])
def test_instants_missed_while_the_job_was_down(missed: Any, expected: list[int]) -> None:
    source = PeriodicSource(timedelta(minutes=10), missed=missed)
    clocks = NOON + timedelta(minutes=35), NOON + timedelta(minutes=41)
    assert emitted(source, NOON, *clocks) == minutes(*expected)


@pytest.mark.parametrize("missed", ["all", "latest", "none"])
def test_a_reader_that_moves_within_a_run_misses_nothing(missed: Any) -> None:
    source = PeriodicSource(timedelta(minutes=10), missed=missed)
    found = emitted(source, NOON, NOON + timedelta(minutes=35), started=NOON - timedelta(minutes=5))
    assert found == minutes(10, 20, 30)


periodic = st.integers(1, 5000).map(lambda every: PeriodicSource(timedelta(seconds=every)))
crons = st.sampled_from(["*/7 * * * *", "30 * * * *", "15 2 * * *"]).map(lambda it: CronSource(it, "Europe/Prague"))


@given(start=moments, steps=st.lists(st.integers(0, 10_000), max_size=20), source=st.one_of(periodic, crons))
def test_resuming_at_any_position_changes_nothing(start: datetime, steps: list[int], source: Any) -> None:
    clocks = [start]
    for step in steps:
        clocks.append(clocks[-1] + timedelta(seconds=step))
    undisturbed = emitted(source, None, *clocks)
    reader: Any = source.build_part(NoKey, None)
    found: list[datetime] = []
    for now in clocks:
        reader.set_clock(now, start)
        found += reader.poll_batch(10_000)[0]
        reader = source.build_part(NoKey, reader.snapshot())
    assert found == undisturbed


@given(
    a=moments,
    lengths=st.tuples(st.integers(0, 200_000), st.integers(0, 200_000)),
    expression=st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 29 2 *"]),
)
def test_instants_of_cron_add_up(a: datetime, lengths: tuple[int, int], expression: str) -> None:
    b = a + timedelta(seconds=lengths[0])
    c = b + timedelta(seconds=lengths[1])
    source = CronSource(expression, "Europe/Prague")

    def between(one: datetime, other: datetime) -> list[datetime]:
        def until() -> Iterator[datetime]:
            for instant in islice(source.after(one), 20_000):
                if instant > other:
                    return
                yield instant

        return list(until())

    assert between(a, b) + between(b, c) == between(a, c)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PeriodicSource("5 parsecs"),
        lambda: PeriodicSource(timedelta(0)),
        lambda: PeriodicSource(timedelta(1), missed="some"),  # type: ignore[arg-type]
        lambda: PeriodicSource(timedelta(1), until=datetime(2026, 1, 1)),
        lambda: CronSource("61 * * * *"),
        lambda: CronSource("* * * *"),
        lambda: CronSource("0 0 * * *", "Mars/Olympus"),
    ],
)
def test_misuse_is_refused(make: Any) -> None:
    with pytest.raises(
        GraphError, match=r"(PeriodicSource|CronSource) (needs|every must be|missed must be)|not a known time zone"
    ):
        make()

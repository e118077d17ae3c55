"""`restore=` and `at=` with a datetime, and `retain=` with a timedelta."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime
from malflow.errors import GraphError, SnapshotCorrupt, SnapshotError
from malflow.snapshot import fsck, read_state, snapshots
from malflow.snapshot.persistence import RestoreOptions
from tests.kit.jobs import SUM, Clock, Job, StoreBackend, manifest_key, seqs
from tests.kit.memory_store import HookedStore

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return a time of the clock."""
    return BEGIN + timedelta(seconds=seconds)


def job_at(store: HookedStore, clock: Clock, times: list[int], **options: Any) -> Job:
    """Take a snapshot at each time, in which the key is the time."""
    job = Job(StoreBackend(store, clock, **options))
    for time in times:
        clock.time = time
        job.save({"at": time}).result()
    return job


@pytest.mark.fault("K1")
@pytest.mark.parametrize(("wanted", "found"), [(10, 10), (19.9, 10), (20, 20), (29, 20), (30, 30), (10**6, 30)])
def test_the_newest_snapshot_at_or_before_a_time_is_read(wanted: float, found: int) -> None:
    store, clock = HookedStore(), Clock()
    job = job_at(store, clock, [10, 20, 30])
    assert read_state(job.backend, "sum", key="at", at=at(wanted)) == found
    _, restored = job.backend.open([SUM], RestoreOptions(restore=at(wanted)))
    assert restored is not None
    assert restored.states == {"sum": {0: {"at": found}}}


def test_a_time_has_a_zone_and_is_the_same_in_each() -> None:
    job = job_at(HookedStore(), Clock(), [10, 20])
    zone = timezone(timedelta(hours=9))
    assert read_state(job.backend, "sum", key="at", at=at(15).astimezone(zone)) == 10
    with pytest.raises(GraphError, match="at needs a datetime with a time zone; got datetime"):
        read_state(job.backend, "sum", at=datetime(2026, 1, 1))
    with pytest.raises(GraphError, match="restore needs a datetime with a time zone"):
        SingleThreadRuntime(lambda _: None, job.backend, restore=datetime(2026, 1, 1))


def test_before_the_first_snapshot_is_an_error_with_its_time() -> None:
    clock = Clock()
    clock.time = 5
    job = job_at(HookedStore(), clock, [10])
    with pytest.raises(SnapshotError, match=r"no snapshot at or before 2026-01-01T00:00:04.*of 2026-01-01T00:00:05"):
        read_state(job.backend, "sum", at=at(4))
    with pytest.raises(SnapshotError, match="it began with empty state at 2026-01-01T00:00:05"):
        job.backend.open([SUM], RestoreOptions(restore=at(7)))
    with pytest.raises(SnapshotError, match=r"job 'default' has no snapshots; got restore=2026-01-01 00:00:07"):
        StoreBackend(HookedStore()).open([SUM], RestoreOptions(restore=at(7)))


def test_a_run_that_went_back_counts_from_its_start() -> None:
    store, clock = HookedStore(), Clock()
    job_at(store, clock, [10, 20])
    clock.time = 30
    StoreBackend(store, clock).open([SUM], RestoreOptions(restore=2))
    assert [read_state(StoreBackend(store), "sum", key="at", at=at(time)) for time in (25, 35)] == [20, 10]


@pytest.mark.fault("K1")
@pytest.mark.damages_snapshots("one in the middle")
def test_a_damaged_snapshot_that_may_be_the_wanted_one_is_not_skipped() -> None:
    store = HookedStore()
    job = job_at(store, Clock(), [10, 20, 30, 40])
    store.objects[manifest_key(3)] += b" "
    with pytest.raises(SnapshotCorrupt, match="damaged"):
        read_state(job.backend, "sum", at=at(25))
    assert read_state(job.backend, "sum", key="at", at=at(35)) == 30
    _, restored = job.backend.open([SUM], RestoreOptions(restore=at(25), recovery="previous"))
    assert restored is not None
    assert restored.states == {"sum": {0: {"at": 10}}}


@given(st.lists(st.integers(1, 100), min_size=1, max_size=30), st.integers(1, 300), st.integers(0, 3000))
@pytest.mark.slow
def test_every_time_that_is_retained_can_be_read(gaps: list[int], retain: int, age: int) -> None:
    store, clock, times = HookedStore(), Clock(), [0]
    for gap in gaps:
        times.append(times[-1] + gap)
    job = job_at(store, clock, times[1:], retain=timedelta(seconds=retain))
    wanted = times[-1] - min(age, retain)
    before = [time for time in times[1:] if time <= wanted]
    if before:
        assert read_state(job.backend, "sum", key="at", at=at(wanted)) == before[-1]
    oldest = max((time for time in times[1:] if time <= times[-1] - retain), default=0)
    assert len(seqs(store)) <= max(3, sum(time >= oldest for time in times))
    assert fsck(job.backend).problems == ()


@pytest.mark.fault("D8")
def test_clocks_that_go_back_or_ahead_leave_what_a_start_needs() -> None:
    store, clock = HookedStore(), Clock()
    job = job_at(store, clock, [100, 50, 20, 30], retain=timedelta(seconds=60))
    assert len(list(snapshots(job.backend))) == 4
    job_at(store, clock, [10**9], retain=timedelta(seconds=60))
    assert [it.id for it in snapshots(job.backend)] == [5, 7]
    assert len(seqs(store)) == 3
    assert fsck(job.backend).problems == ()


def test_a_time_beyond_the_calendar_retains_everything() -> None:
    job = job_at(HookedStore(), Clock(), list(range(20)), retain=timedelta.max)
    assert len(list(snapshots(job.backend))) == 20

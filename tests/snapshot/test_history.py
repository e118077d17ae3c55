"""The list of a job's snapshots, and the check of its files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from malflow.errors import SnapshotCorrupt, SnapshotIncomplete, StoreError
from malflow.snapshot import FsspecBackend, Report, Snapshot, fsck, snapshots
from malflow.snapshot.store import Transient
from tests.snapshot.jobs import Clock, Failing, Job, MemoryStore, StoreBackend, data_keys, manifest_key, steady


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_a_job_that_never_ran_has_no_snapshots_and_is_not_begun_by_looking(store: MemoryStore, tmp_path: Path) -> None:
    assert list(snapshots(StoreBackend(store))) == []
    assert fsck(StoreBackend(store)) == Report(0, (), ())
    assert store.objects == {}
    assert list(snapshots(FsspecBackend(str(tmp_path / "nowhere")))) == []
    assert [*tmp_path.iterdir()] == []


def test_a_snapshot_tells_what_it_holds(store: MemoryStore) -> None:
    clock = Clock()
    job = Job(StoreBackend(store, clock, growth=1e9))
    job.save({n: n for n in range(100)}).result()
    clock.time = 60
    job.save({1: -1}, deleted=[2]).result()
    base, increment = snapshots(job.backend)
    (file,) = (key for key in store.objects if key.startswith("d/") and "2-1-" in key)
    assert base == Snapshot(
        id=2,
        tick=1,
        time=datetime(2026, 1, 1, tzinfo=UTC),
        parallelism=1,
        operators={"sum": 100},
        kind="base",
        bytes=len(store.objects[file]),
        files=1,
    )
    assert (increment.id, increment.tick, increment.kind, increment.files) == (3, 2, "increment", 2)
    assert increment.operators == {"sum": 99}
    assert increment.time == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert increment.bytes == sum(len(store.objects[key]) for key in data_keys(store))


def test_each_snapshot_is_listed_once_however_many_runs_went_on_from_it(store: MemoryStore) -> None:
    Job(StoreBackend(store)).save({"a": 1}).result()
    for _ in range(5):
        Job(StoreBackend(store))
    assert [it.id for it in snapshots(StoreBackend(store))] == [2]
    assert fsck(StoreBackend(store)).snapshots == 1


def test_looking_claims_nothing_and_fences_nobody(store: MemoryStore) -> None:
    job = Job(StoreBackend(store))
    job.save({"a": 1}).result()
    before = dict(store.objects)
    for _ in range(3):
        list(snapshots(StoreBackend(store)))
        fsck(StoreBackend(store))
    assert store.objects == before
    job.save({"a": 2}).result()


def test_a_damaged_manifest_ends_the_list_with_its_name(store: MemoryStore) -> None:
    job = Job(StoreBackend(store))
    for n in range(3):
        job.save({"a": n}).result()
    store.objects[manifest_key(3)] += b" "
    with pytest.raises(SnapshotCorrupt, match=r"'m/0+3\.json'"):
        list(snapshots(StoreBackend(store)))
    report = fsck(StoreBackend(store))
    assert len(report.problems) == 1
    assert manifest_key(3) in report.problems[0]


@pytest.mark.parametrize("vanished", [2, 3])
def test_a_retained_file_that_somebody_deleted_is_named(store: MemoryStore, vanished: int) -> None:
    job = Job(StoreBackend(store, growth=1e9))
    for n in range(3):
        job.save({n: n}).result()
    (name,) = (key for key in store.objects if key.startswith(f"d/{vanished:020d}-"))
    del store.objects[name]
    problems = fsck(StoreBackend(store)).problems
    assert len(problems) == 1, "a file is told once, though several snapshots need it"
    assert problems[0].startswith(f"'{name}' is missing; it had ")
    with pytest.raises(SnapshotIncomplete, match=rf"'{name}' is missing"):
        Job(StoreBackend(store))


def test_a_store_that_can_not_be_read_is_no_damage(store: MemoryStore) -> None:
    Job(StoreBackend(store)).save({"a": 1}).result()
    for operation in ("get", "list"):
        store.before = [Failing(operation, "", StoreError("access denied"), times=10_000)]
        with pytest.raises(StoreError, match=r"access denied"):
            fsck(StoreBackend(store))
        with pytest.raises(StoreError, match=r"access denied"):
            list(snapshots(StoreBackend(store)))
    store.before = [passing := Failing("get", "d/", Transient("slow down"), times=3)]
    assert fsck(StoreBackend(store)).problems == ()
    assert passing.fired == 3


def test_what_a_crash_left_behind_is_told_as_unused(store: MemoryStore) -> None:
    job = Job(StoreBackend(store))
    job.save({"a": 1}).result()
    orphan = "d/00000000000000000003-1-0123456789abcdef-0123456789abcdef.mfs"
    store.objects[orphan] = b"half"
    assert fsck(StoreBackend(store)) == Report(1, (), (orphan,))


def test_a_job_on_the_disk_is_listed_by_another_backend(tmp_path: Path) -> None:
    Job(steady(FsspecBackend(str(tmp_path), job="a"))).save({"x": 1}).result()
    Job(steady(FsspecBackend(str(tmp_path), job="b"))).save({"y": 2}).result()
    for job in ("a", "b"):
        backend = FsspecBackend(tmp_path.as_uri() + "/", job=job)
        assert [it.id for it in snapshots(backend)] == [2]
        assert fsck(backend) == Report(1, (), ())

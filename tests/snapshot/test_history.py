"""The list of a job's snapshots, and the check of its files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from malflow.errors import SnapshotCorrupt, SnapshotIncomplete, StoreError
from malflow.snapshot import FsckReport, FsspecBackend, Snapshot, fsck, snapshots
from malflow.states.keyed import Delta, StateDelta
from malflow.store.contract import Transient
from tests.kit.jobs import SUM, Clock, Failing, Job, StoreBackend, data_keys, manifest_key, steady
from tests.kit.memory_store import HookedStore


@pytest.fixture
def store() -> HookedStore:
    return HookedStore()


def test_a_job_that_never_ran_has_no_snapshots_and_is_not_begun_by_looking(store: HookedStore, tmp_path: Path) -> None:
    assert list(snapshots(StoreBackend(store))) == []
    assert fsck(StoreBackend(store)) == FsckReport(0, (), ())
    assert store.objects == {}
    assert list(snapshots(FsspecBackend(str(tmp_path / "nowhere")))) == []
    assert [*tmp_path.iterdir()] == []


def test_a_snapshot_tells_what_it_holds(store: HookedStore) -> None:
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


def test_each_snapshot_is_listed_once_however_many_runs_went_on_from_it(store: HookedStore) -> None:
    Job(StoreBackend(store)).save({"a": 1}).result()
    for _ in range(5):
        Job(StoreBackend(store))
    assert [it.id for it in snapshots(StoreBackend(store))] == [2]
    assert fsck(StoreBackend(store)).snapshots == 1


def test_looking_claims_nothing_and_fences_nobody(store: HookedStore) -> None:
    job = Job(StoreBackend(store))
    job.save({"a": 1}).result()
    before = dict(store.objects)
    for _ in range(3):
        list(snapshots(StoreBackend(store)))
        fsck(StoreBackend(store))
    assert store.objects == before
    job.save({"a": 2}).result()


def test_a_damaged_manifest_ends_the_list_with_its_name(store: HookedStore) -> None:
    job = Job(StoreBackend(store))
    for n in range(3):
        job.save({"a": n}).result()
    store.objects[manifest_key(3)] += b" "
    with pytest.raises(SnapshotCorrupt, match=r"'m/0+3\.json'"):
        list(snapshots(StoreBackend(store)))
    report = fsck(StoreBackend(store))
    assert len(report.problems) == 1
    assert manifest_key(3) in report.problems[0]


@pytest.mark.fault("C19")
@pytest.mark.parametrize("vanished", [2, 3])
def test_a_retained_file_that_somebody_deleted_is_named(store: HookedStore, vanished: int) -> None:
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


@pytest.mark.fault("C16")
def test_a_store_that_can_not_be_read_is_no_damage(store: HookedStore) -> None:
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


def test_leftovers_of_a_crash_are_reported_as_unused(store: HookedStore) -> None:
    job = Job(StoreBackend(store))
    job.save({"a": 1}).result()
    orphan = "d/00000000000000000003-1-0123456789abcdef-0123456789abcdef.mfs"
    store.objects[orphan] = b"half"
    report = fsck(StoreBackend(store))
    assert (report.snapshots, report.problems, report.unused) == (1, (), (orphan,))
    assert "a run is writing it, was killed while writing it, or manifest 3 was deleted" in report.notes[0]


@pytest.mark.fault("B4")
def test_a_newest_manifest_that_was_deleted_leaves_a_note(store: HookedStore) -> None:
    job = Job(StoreBackend(store))
    job.save({"a": 1}).result()
    job.save({"a": 2}).result()
    assert fsck(StoreBackend(store)).notes == ()
    del store.objects[manifest_key(3)]
    report = fsck(StoreBackend(store))
    assert report.problems == ()
    assert "snapshot 3 has data but no manifest, and the newest manifest is 2" in report.notes[0]


def test_several_deleted_manifests_leave_a_note_each(store: HookedStore) -> None:
    job = Job(StoreBackend(store))
    for value in (1, 2, 3):
        job.save({"a": value}).result()
    del store.objects[manifest_key(3)]
    del store.objects[manifest_key(4)]
    report = fsck(StoreBackend(store))
    assert report.problems == ()
    assert [note.partition(" but ")[0] for note in report.notes] == [
        "snapshot 3 has data",
        "snapshot 4 has data",
    ]


def _miscounted(store: HookedStore) -> StoreBackend:
    """Write a whole snapshot, and then one that says that there are more keys than there are."""
    backend = StoreBackend(store)
    job = Job(backend)
    job.save({"a": 1}).result()
    job.session.commit(2, 1, [SUM], [StateDelta(0, "sum", Delta({"b": 2}, appended=1), 3)]).result()
    return backend


@pytest.mark.fault("B13")
def test_fsck_finds_a_snapshot_that_does_not_come_to_its_count(store: HookedStore) -> None:
    backend = _miscounted(store)
    assert fsck(backend).problems == ("snapshot 3: operator 'sum' has 2 keys of 3",)
    assert fsck(backend, states=False).problems == ()
    with pytest.raises(SnapshotCorrupt, match="operator 'sum' has 2 keys of 3; recovery='previous' falls back"):
        Job(backend)


@pytest.mark.fault("B13")
def test_going_back_passes_over_a_snapshot_with_a_wrong_count(store: HookedStore) -> None:
    assert Job(_miscounted(store), recovery="previous").state == {"a": 1}


def test_fsck_finds_keys_on_a_worker_that_is_not_there(store: HookedStore) -> None:
    backend = StoreBackend(store)
    job = Job(backend)
    job.session.needs_full_snapshot(1)
    job.session.commit(1, 1, [SUM], [StateDelta(7, "sum", Delta({"b": 2}, whole=True), 1)]).result()
    problem = "snapshot 2: operator 'sum' has keys on worker 7 of 1 worker"
    assert fsck(backend).problems == (problem,)
    with pytest.raises(SnapshotCorrupt, match=problem):
        Job(backend)


def test_fsck_finds_what_another_codec_wrote(store: HookedStore) -> None:
    Job(StoreBackend(store)).save({"a": 1}).result()
    (problem,) = fsck(StoreBackend(store, codec="msgpack")).problems
    assert "was written with codec 'pickle', but the program uses codec 'msgpack'" in problem
    assert fsck(StoreBackend(store, codec="msgpack"), states=False).problems == ()


def test_a_job_on_the_disk_is_listed_by_another_backend(tmp_path: Path) -> None:
    Job(steady(FsspecBackend(str(tmp_path), job="a"))).save({"x": 1}).result()
    Job(steady(FsspecBackend(str(tmp_path), job="b"))).save({"y": 2}).result()
    for job in ("a", "b"):
        backend = FsspecBackend(tmp_path.as_uri() + "/", job=job)
        assert [it.id for it in snapshots(backend)] == [2]
        assert fsck(backend) == FsckReport(1, (), ())

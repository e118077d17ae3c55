"""Damaged files are detected and named before they are used; never a wrong state, never a silent empty start."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from malflow.errors import SnapshotCorrupt, SnapshotError, SnapshotIncomplete
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.snapshot.compression import compression_of
from malflow.snapshot.files.data_file import Section, encode_file
from malflow.snapshot.protocol.manifest import FORMAT
from malflow.states.kinds import StateKind, StateSpec
from tests.kit.jobs import SUM, Job, StoreBackend, data_keys, flipped, manifest_key, seqs, steady
from tests.kit.memory_store import HookedStore

STATE = {"a": 1, "b": "two", ("c", 3): [4.0, None]}
OTHER = StateSpec("count", StateKind.STATEFUL_MAP, 1, "malflow.partitioners.rendezvous_select")


def job_on(store: HookedStore, spec: StateSpec = SUM, *, job: str = "default", **options: Any) -> Job:
    start = {name: options.pop(name) for name in ("restore", "recovery") if name in options}
    return Job(StoreBackend(store, job=job, **options), spec, **start)


@pytest.fixture(params=["lz4", "none"])
def written(request: pytest.FixtureRequest) -> dict[str, bytes]:
    """Write one snapshot."""
    store = HookedStore()
    job_on(store, compression=request.param).save(dict(STATE)).result()
    return store.objects


@pytest.fixture
def three() -> HookedStore:
    """Write three snapshots: 2 with {a: 1}, 3 with {a: 2}, 4 with {a: 3}; each a base of its own."""
    store = HookedStore()
    job = job_on(store, growth=1e-9)
    for n in (1, 2, 3):
        job.session._must_base = True  # type: ignore[attr-defined] # so that each stands alone
        job.save({"a": n}).result()
    return store


def data_key(store: HookedStore, snapshot: int) -> str:
    """Name the one data file that a snapshot wrote."""
    (key,) = (key for key in store.objects if key.startswith(f"d/{snapshot:020d}-"))
    return key


def refusal_of(objects: dict[str, bytes], key: str, damaged: bytes | None) -> SnapshotCorrupt:
    """Open a copy of a job with one damaged file, and return what is said."""
    store = HookedStore()
    store.objects = {**objects, key: damaged or b""}
    if damaged is None:
        del store.objects[key]
    with pytest.raises(SnapshotCorrupt) as raised:
        job_on(store)
    assert raised.value.name == key
    return raised.value


# Every byte, every length


@pytest.mark.fault("A13")
def test_a_data_file_torn_at_any_length_is_found(written: dict[str, bytes]) -> None:
    key = next(key for key in written if key.startswith("d/"))
    for length in range(len(written[key])):
        refusal_of(written, key, written[key][:length])


@pytest.mark.fault("B1")
def test_a_flip_of_any_byte_of_a_data_file_is_found(written: dict[str, bytes]) -> None:
    key = next(key for key in written if key.startswith("d/"))
    for at in range(len(written[key])):
        refusal_of(written, key, flipped(written[key], at, 1 << at % 8))


@pytest.mark.fault("B2")
def test_a_flip_of_any_byte_of_the_newest_manifest_is_found(written: dict[str, bytes]) -> None:
    key = manifest_key(2)
    for at in range(len(written[key])):
        error = refusal_of(written, key, flipped(written[key], at, 1 << at % 8))
        assert "recovery='previous'" in str(error)


@pytest.mark.fault("B8")
@pytest.mark.parametrize("tail", [b"\0", b"x" * 1000, b"\x04\x22\x4d\x18"])
def test_appended_bytes_are_found(written: dict[str, bytes], tail: bytes) -> None:
    key = next(key for key in written if key.startswith("d/"))
    refusal_of(written, key, written[key] + tail)
    refusal_of(written, key, written[key] + written[key])
    refusal_of(written, key, tail + written[key])


@pytest.mark.fault("B1")
def test_corruption_error_names_file_digests_and_the_way_back(written: dict[str, bytes]) -> None:
    key = next(key for key in written if key.startswith("d/"))
    damaged = flipped(written[key], 30)
    assert str(refusal_of(written, key, damaged)) == (
        f"'{key}' is damaged: it has {len(damaged)} bytes and SHA-256 {sha256(damaged).hexdigest()}; "
        f"expected {len(damaged)} bytes and SHA-256 {sha256(written[key]).hexdigest()}; "
        "recovery='previous' falls back to the newest readable snapshot and processes later input again"
    )


@pytest.mark.fault("B3")
def test_a_missing_data_file_is_not_an_operator_that_is_new(written: dict[str, bytes]) -> None:
    key = next(key for key in written if key.startswith("d/"))
    error = refusal_of(written, key, None)
    assert type(error) is SnapshotIncomplete
    digest = sha256(written[key]).hexdigest()
    assert str(error).startswith(f"'{key}' is missing; it had {len(written[key])} bytes, SHA-256 {digest}; recovery=")


def test_an_empty_data_file_is_a_damaged_one(written: dict[str, bytes]) -> None:
    key = next(key for key in written if key.startswith("d/"))
    assert "it has 0 bytes" in str(refusal_of(written, key, b""))


def test_fsck_tells_of_every_damaged_file_and_how(three: HookedStore) -> None:
    flip, gone, torn = (data_key(three, snapshot) for snapshot in (2, 3, 4))
    three.objects[flip] = flipped(three.objects[flip], 40)
    three.objects[torn] = three.objects[torn][:-1]
    del three.objects[gone]
    report = fsck(StoreBackend(three))
    assert report.snapshots == 3
    assert [problem.split("'")[1] for problem in report.problems] == [flip, gone, torn]
    assert ["is damaged" in problem for problem in report.problems] == [True, False, True]


# Valid files in a wrong place


@pytest.mark.fault("B7")
def test_the_file_of_another_snapshot_is_found(three: HookedStore) -> None:
    three.objects[data_key(three, 4)] = three.objects[data_key(three, 3)]
    with pytest.raises(SnapshotCorrupt, match=r"is damaged"):
        job_on(three)


@pytest.mark.fault("B7")
def test_the_file_of_another_operator_is_found(three: HookedStore) -> None:
    other = HookedStore()
    job_on(other, OTHER).save({"a": 3}).result()
    three.objects[data_key(three, 4)] = other.objects[data_key(other, 2)]
    with pytest.raises(SnapshotCorrupt, match=r"is damaged"):
        job_on(three)


@pytest.mark.fault("B7")
def test_the_file_of_another_job_with_the_same_key_is_found(three: HookedStore) -> None:
    key = "a signing key for both of them"
    mine, other = HookedStore(), HookedStore()
    job_on(mine, signing_key=key).save({"a": 1}).result()
    job_on(other, signing_key=key, job="other").save({"a": 2}).result()
    mine.objects[data_key(mine, 2)] = other.objects[data_key(other, 2)]
    with pytest.raises(SnapshotCorrupt, match=r"is damaged"):
        job_on(mine, signing_key=key)


def test_a_file_of_another_codec_is_never_given_to_this_one(three: HookedStore) -> None:
    class Text:
        name, executes = "text", False

        def dumps(self, value: Any) -> bytes:
            return repr(value).encode()

        def loads(self, data: bytes) -> Any:
            raise AssertionError(data)

    with pytest.raises(SnapshotError, match=r"was written with codec 'pickle', but the program uses codec 'text'"):
        job_on(three, codec=Text())


# Going back


def damage_data(store: HookedStore, snapshot: int) -> None:
    key = data_key(store, snapshot)
    store.objects[key] = flipped(store.objects[key], 40)


def damage_manifest(store: HookedStore, snapshot: int) -> None:
    store.objects[manifest_key(snapshot)] = store.objects[manifest_key(snapshot)][:-5]


def lose_data(store: HookedStore, snapshot: int) -> None:
    del store.objects[data_key(store, snapshot)]


DAMAGES = [damage_data, damage_manifest, lose_data]


@pytest.fixture(params=DAMAGES)
def damage(request: pytest.FixtureRequest) -> Callable[[HookedStore, int], None]:
    return request.param  # type: ignore[no-any-return]


def test_a_damaged_newest_snapshot_stops_the_run_again_and_again(
    three: HookedStore, damage: Callable[[HookedStore, int], None]
) -> None:
    damage(three, 4)
    for _ in range(3):
        with pytest.raises(SnapshotCorrupt, match=r"recovery='previous'"):
            job_on(three)


@pytest.mark.fault("B1")
def test_going_back_picks_the_newest_whole_snapshot(
    three: HookedStore, damage: Callable[[HookedStore, int], None]
) -> None:
    damage(three, 4)
    job = job_on(three, recovery="previous")
    assert job.state == {"a": 2}
    assert job.restored is not None
    assert (job.restored.snapshot, job.restored.tick) == (3, 2)
    job.save({"a": 3}).result()
    assert job_on(three).state == {"a": 3}, "strict again: the newest is whole"


def test_going_back_goes_as_far_as_it_must(three: HookedStore, damage: Callable[[HookedStore, int], None]) -> None:
    damage(three, 4)
    damage(three, 3)
    assert job_on(three, recovery="previous").state == {"a": 1}


def test_going_back_after_a_refused_try_finds_the_same(
    three: HookedStore, damage: Callable[[HookedStore, int], None]
) -> None:
    damage(three, 4)
    with pytest.raises(SnapshotCorrupt):
        job_on(three)
    assert job_on(three, recovery="previous").state == {"a": 2}
    assert job_on(three, recovery="previous").state == {"a": 2}


def test_when_none_is_whole_the_run_never_begins_with_nothing(
    three: HookedStore, damage: Callable[[HookedStore, int], None]
) -> None:
    for snapshot in (2, 3, 4):
        damage(three, snapshot)
    for _ in range(2):
        with pytest.raises(SnapshotError, match=r"no snapshot of job 'default' can be read; the newest one: '"):
            job_on(three, recovery="previous")
    assert job_on(three, restore=None).state == {}, "unless it is told to"


def test_going_back_where_nothing_is_damaged_changes_nothing(three: HookedStore) -> None:
    assert job_on(three, recovery="previous").state == {"a": 3}
    assert job_on(HookedStore(), recovery="previous").state == {}


def test_damaged_snapshot_chosen_by_id_is_an_error_or_gone_back_from(
    three: HookedStore, damage: Callable[[HookedStore, int], None]
) -> None:
    damage(three, 3)
    with pytest.raises(SnapshotCorrupt, match=r"recovery='previous'"):
        job_on(three, restore=3)
    assert job_on(three, restore=3, recovery="previous").state == {"a": 1}
    assert job_on(three, restore=4, recovery="previous").state == {"a": 3}
    with pytest.raises(SnapshotError, match=r"no snapshot with the id 99"):
        job_on(three, restore=99, recovery="previous")


def test_id_is_restored_although_a_later_run_resumed_an_older_one(three: HookedStore) -> None:
    assert job_on(three, restore=2).state == {"a": 1}
    assert job_on(three, restore=4, recovery="previous").state == {"a": 3}


def test_nothing_is_deleted_by_going_back(three: HookedStore) -> None:
    damage_data(three, 4)
    before = set(three.objects)
    job_on(three, recovery="previous").save({"b": 1}).result()
    assert before <= set(three.objects)


def test_going_back_does_not_pass_over_a_newer_malflow(three: HookedStore) -> None:
    body = json.loads(three.objects[manifest_key(4)])
    del body["mac"], body["sha256"]
    body["format"] = FORMAT + 1
    plain = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    body |= {"mac": None, "sha256": sha256(plain).hexdigest()}
    three.objects[manifest_key(4)] = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(SnapshotError, match=rf"in format {FORMAT + 1}; this version reads formats up to {FORMAT}"):
        job_on(three, recovery="previous")


# Damage that the run does not need


@pytest.mark.fault("B12")
def test_a_damaged_older_snapshot_stops_nobody_and_is_kept(
    three: HookedStore, damage: Callable[[HookedStore, int], None]
) -> None:
    damage(three, 3)
    before = set(three.objects)
    job = job_on(three)
    assert job.state == {"a": 3}
    job.save({"a": 4}).result()
    assert before <= set(three.objects)
    assert fsck(job.backend).problems != ()
    assert job_on(three).state == {"a": 4}


def test_file_damaged_during_a_run_is_replaced_when_met(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = HookedStore()
    job = job_on(store, growth=1e9)
    job.save({n: n for n in range(50)}).result()
    for n in range(3):
        job.save({n: -n}).result()
    damage_data(store, 4)
    for n in range(12):
        job.save({n: -n}).result()
    assert "is damaged; the next snapshot will replace it" in caplog.text
    assert job_on(store).state == job.state


# Bombs


def forged(store: HookedStore, data: bytes, **changes: Any) -> None:
    """Put a data file of one's own into snapshot 2, with digests that fit."""
    key = data_key(store, 2)
    store.objects[key] = data
    body = json.loads(store.objects[manifest_key(2)])
    del body["mac"], body["sha256"]
    body["files"][0] |= {"bytes": len(data), "sha256": sha256(data).hexdigest(), **changes}
    plain = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    body |= {"mac": None, "sha256": sha256(plain).hexdigest()}
    store.objects[manifest_key(2)] = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize("told", [10, 1 << 20, 1 << 40])
@pytest.mark.slow
def test_frame_larger_than_it_says_is_refused_early(told: int) -> None:
    store = HookedStore()
    job_on(store).save({"a": 1}).result()
    frame = compression_of("lz4").packed(bytes(200 << 20))
    section = Section("sum", 0, 1, "changed", 1, told, frame)
    forged(store, encode_file([section], codec="pickle", compression="lz4"))
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotCorrupt, match=r"is damaged|not malflow's"):
            job_on(store)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


def test_sections_that_contradict_the_manifest_are_found() -> None:
    def refuse(*sections: Section, **changes: Any) -> None:
        store = HookedStore()
        job_on(store).save({"a": 1}).result()
        forged(store, encode_file(sections, codec="pickle", compression="none"), **changes)
        with pytest.raises(SnapshotCorrupt):
            job_on(store)

    def section(value: Any, keys: int, what: str = "changed", **more: Any) -> Section:
        raw = pickle.dumps(value)
        return Section("sum", 0, 1, what, keys, len(raw), raw, **more)

    refuse()
    refuse(section({"a": 1, "b": 2}, 2))
    refuse(section({"a": 1}, 2))
    refuse(section(["a"], 1))
    refuse(section({"a": 1}, 1, "deleted"))
    refuse(section([["a"]], 1, "deleted"))
    refuse(section({"a": 1}, 1, piece=0, pieces=2))
    refuse(section({"a": 1}, 1), section({"b": 1}, 1))


# What does not belong there


@pytest.mark.fault("B6", "B11")
def test_foreign_hidden_temporary_and_empty_files(
    tmp_path: Path,
) -> None:
    def backend() -> FsspecBackend:
        return steady(FsspecBackend(str(tmp_path), job="sums", retain=1))

    job = Job(backend())
    job.save({"a": 1}).result()
    foreign = [
        "notes.txt",
        ".DS_Store",
        "m/.tmp-00000000000000000001.json-0123456789abcdef",
        "m/00000000000000000099",
        "m/00000000000000000099.json.bak",
        "m/README",
        "m/sub/00000000000000000099.json",
        "d/empty.mfs",
        "d/.hidden",
        "gc/00000000000000000099x",
        "gc/.tmp-00000000000000000099-0123456789abcdef",
    ]
    for name in foreign:
        path = tmp_path / "sums" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    job = Job(backend())
    assert job.state == {"a": 1}
    for n in range(5):
        job.save({n: n}).result()
    report = fsck(backend())
    assert report.problems == ()
    assert set(report.unused) == {
        "d/empty.mfs",
        "gc/00000000000000000099x",
        "m/00000000000000000099",
        "m/00000000000000000099.json.bak",
        "m/README",
        "m/sub/00000000000000000099.json",
    }
    left = {str(path.relative_to(tmp_path / "sums")) for path in tmp_path.rglob("*") if path.is_file()}
    swept = {"m/.tmp-00000000000000000001.json-0123456789abcdef"}
    assert set(foreign) - swept <= left
    assert not swept & left, "what a write of this job left behind below the boundary is swept up"


@pytest.mark.fault("B11")
@pytest.mark.parametrize("content", [b"", b"{}"])
def test_an_empty_manifest_is_a_damaged_one_and_not_none(three: HookedStore, content: bytes) -> None:
    three.objects[manifest_key(5)] = content
    with pytest.raises(SnapshotCorrupt, match=r"'m/0+5\.json' is damaged"):
        job_on(three)
    assert job_on(three, recovery="previous").state == {"a": 3}


@pytest.mark.fault("B10")
def test_a_job_put_back_whole_from_an_old_copy_goes_on_from_there(three: HookedStore) -> None:
    old = dict(three.objects)
    job = job_on(three)
    job.save({"a": 9}).result()
    three.objects = old
    assert job_on(three).state == {"a": 3}
    assert fsck(StoreBackend(three)).problems == ()


def test_only_snapshots_that_are_there_are_listed(three: HookedStore) -> None:
    assert [(it.id, it.tick, it.parallelism, it.kind, it.operators) for it in snapshots(StoreBackend(three))] == [
        (2, 1, 1, "base", {"sum": 1}),
        (3, 2, 1, "base", {"sum": 1}),
        (4, 3, 1, "base", {"sum": 1}),
    ]
    assert seqs(three) == [1, 2, 3, 4]
    assert len(data_keys(three)) == 3

"""The commit protocol: one run at a time, one snapshot per number, no guesses, and no deletion of needed data."""

from __future__ import annotations

import os
import threading
from collections import Counter
from datetime import timedelta
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from malflow.errors import CommitUnknown, FencedError, SnapshotCorrupt, SnapshotError, SnapshotIncomplete, StoreError
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.snapshot.persistence import RestoreOptions
from malflow.snapshot.preview import preview
from malflow.snapshot.protocol.commit import Content, claim, open_or_create_job
from malflow.snapshot.reading import wanted_manifest
from malflow.snapshot.restore import manifest_choice
from malflow.store.contract import KeyExists, Store, Transient, UnknownOutcome
from malflow.store.local import LocalStore
from tests.kit.jobs import (
    SUM,
    Clock,
    Doing,
    Failing,
    Job,
    StoreBackend,
    boundary_key,
    data_keys,
    manifest_key,
    manifests,
    seqs,
    steady,
)
from tests.kit.memory_store import HookedStore


@pytest.fixture
def store() -> HookedStore:
    return HookedStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def job_on(store: Store, clock: Clock | None = None, *, start: dict[str, Any] | None = None, **options: Any) -> Job:
    return Job(StoreBackend(store, clock, **options), **(start or {}))


# What a commit does


def test_a_claim_is_a_commit_and_each_commit_has_the_next_number(store: HookedStore) -> None:
    first = job_on(store)
    assert [first.save({"a": n}).result() for n in range(3)] == [2, 3, 4]
    second = job_on(store)
    assert second.save({"a": 5}).result() == 6
    found = manifests(store, second.backend)
    assert [(it.seq, it.epoch, it.snapshot) for it in found] == [
        (1, 1, 0),
        (2, 1, 2),
        (3, 1, 3),
        (4, 1, 4),
        (5, 5, 4),
        (6, 5, 6),
    ]
    assert [it.parent for it in found] == [None, *_digests(store)[:-1]]
    assert len({it.attempt for it in found}) == 6
    assert len({it.runner for it in found}) == 2


def _digests(store: HookedStore) -> list[str]:
    return [sha256(store.objects[manifest_key(seq)]).hexdigest() for seq in seqs(store)]


def test_a_commit_asks_the_store_for_no_more_than_it_must(store: HookedStore) -> None:
    job = job_on(store)
    job.save({"a": 1}).result()
    job.save({"a": 2}).result()
    store.clear_calls()
    job.save({"a": 3}).result()
    puts = [key[:2] for operation, key in store.calls if operation == "put"]
    assert puts[:2] == ["d/", "m/"]
    assert len(puts) <= 3, "the third raises the boundary"
    assert store.calls[1] == ("get", manifest_key(3)), "the store has not gone back"
    assert store.calls[3] == ("list", "gc/"), "nobody has taken the number away"
    others = Counter(operation for operation, _ in store.calls if operation != "put")
    assert others["list"] <= 6
    assert others["get"] == 1
    assert set(others) <= {"get", "list", "sweep", "delete"}


def test_a_snapshot_of_nothing_new_writes_nothing_and_still_finds_a_rival(store: HookedStore) -> None:
    job = job_on(store)
    job.save({"a": 1}).result()
    store.clear_calls()
    assert job.save().result() == 2
    assert store.calls == [("list", "m/")]
    job_on(store)
    with pytest.raises(FencedError):
        job.save().result()


def test_age_of_a_snapshot_is_its_own_and_not_of_a_claim(store: HookedStore, clock: Clock) -> None:
    job_on(store, clock).save({"a": 1}).result()
    taken = clock.environment.now()
    for _ in range(3):  # the first claim repeats a snapshot, the others repeat a claim
        clock.time += 100
        job = job_on(store, clock)
        assert job.restored is not None
        assert job.restored.time == taken
    assert wanted_manifest(job.backend, "latest")[1].time == taken.isoformat()
    found = preview(job.backend, [SUM], RestoreOptions()).manifest
    assert found is not None
    assert (found.seq, found.time) == (5, taken.isoformat())


# A store that is put back to an older copy under a run


def _going_back(store: HookedStore, job: Job, then: dict[Any, Any]) -> SnapshotError:
    """Remove the last snapshot from the store of a run; return the error of the run."""
    job.save({"a": 1}).result()
    before = set(store.objects)
    job.save({"a": 2, "b": 1}).result()
    for key in set(store.objects) - before:
        del store.objects[key]
    with pytest.raises(SnapshotError) as caught:
        job.save(then).result()
    return caught.value


@pytest.mark.fault("B16")
@pytest.mark.parametrize("then", [{"a": 3}, {}], ids=["change", "no-change"])
def test_run_whose_last_snapshot_is_lost_ends_without_another_one(store: HookedStore, then: dict[Any, Any]) -> None:
    job = job_on(store)
    error = _going_back(store, job, then)
    assert isinstance(error, SnapshotIncomplete)
    assert f"has lost '{manifest_key(3)}'" in str(error)
    with pytest.raises(SnapshotIncomplete):
        job.session.check()
    assert seqs(store) == [1, 2]
    assert job_on(store).state == {"a": 1}
    assert not fsck(job.backend).problems


@pytest.mark.fault("B16")
@pytest.mark.parametrize("saves", [0, 1], ids=["same-number", "later-number"])
def test_run_whose_number_another_one_has_taken_after_a_loss_is_fenced(store: HookedStore, saves: int) -> None:
    first = job_on(store)
    first.save({"a": 1}).result()
    before = set(store.objects)
    first.save({"a": 2}).result()
    for key in set(store.objects) - before:
        del store.objects[key]
    second = job_on(store)
    for _ in range(saves):
        second.save({"a": 5}).result()
    with pytest.raises(FencedError, match=rf"by another run, {manifests(store, second.backend)[-1].runner}"):
        first.save({"a": 3}).result()
    assert job_on(store).state == {"a": 5 if saves else 1}


# Answers that are lost


@pytest.mark.fault("C9")
def test_a_commit_whose_answer_is_lost_is_recognised_by_its_attempt(store: HookedStore) -> None:
    job = job_on(store)
    lost = Failing("put", "m/", UnknownOutcome("no answer"))
    store.after.append(lost)
    assert job.save({"a": 1}).result() == 2
    assert job.save({"a": 2}).result() == 3
    assert lost.fired == 1
    assert [call for call in store.calls if call[0] == "put" and call[1] == manifest_key(2)] == [
        ("put", manifest_key(2))
    ]


@pytest.mark.fault("C10")
def test_commit_that_arrives_before_the_retry_is_recognised(store: HookedStore) -> None:
    job = job_on(store)
    key = manifest_key(2)
    arriving: list[bytes] = []

    def hold(operation: str, of: str) -> None:
        if (operation, of) == ("put", key) and arriving:
            store.objects[key] = arriving.pop()

    real = store.put_new

    def put_new(of: str, data: bytes) -> None:
        if of == key and not arriving and key not in store.objects:
            arriving.append(data)
            raise UnknownOutcome("no answer")
        real(of, data)

    store.put_new = put_new  # type: ignore[assignment, method-assign] # the first write is under way, and arrives with the second
    store.before.append(hold)
    assert job.save({"a": 1}).result() == 2
    assert not arriving
    assert job_on(store).state == {"a": 1}


@pytest.mark.fault("C8")
def test_missing_object_after_an_unknown_outcome_is_sent_again(store: HookedStore) -> None:
    job = job_on(store)
    sent: list[bytes] = []
    real = store.put_new

    def put_new(key: str, data: bytes) -> None:
        if key == manifest_key(2):
            sent.append(data)
            if len(sent) < 4:
                raise UnknownOutcome("no answer")
        real(key, data)

    store.put_new = put_new  # type: ignore[assignment, method-assign] # it sees what is sent
    assert job.save({"a": 1}).result() == 2
    assert len(sent) == 4
    assert len(set(sent)) == 1


def test_data_file_of_unknown_outcome_is_written_under_another_name(
    store: HookedStore,
) -> None:
    job = job_on(store, retain=1)
    lost = Failing("put", "d/", UnknownOutcome("no answer"))
    store.after.append(lost)
    job.save({"a": 1}).result()
    assert lost.fired == 1
    assert len(data_keys(store)) == 2
    assert len(fsck(job.backend).unused) == 1
    assert job_on(store).state == {"a": 1}


@pytest.mark.fault("C8")
def test_store_that_never_answers_a_commit_ends_the_run_as_unknown(store: HookedStore, clock: Clock) -> None:
    job = job_on(store, clock, retry_for=timedelta(seconds=10))
    job.save({"a": 1}).result()
    silent = Failing("put", "m/", UnknownOutcome("no answer"), times=10_000)
    store.before.append(silent)
    with pytest.raises(
        CommitUnknown, match=r"did not confirm whether 'm/00000000000000000003.json' was written: no answer"
    ):
        job.save({"a": 2}).result()
    assert 0 < silent.fired < 12
    store.before.clear()
    store.clear_calls()
    with pytest.raises(CommitUnknown):
        job.save({"a": 3})
    with pytest.raises(CommitUnknown):
        job.session.check()
    with pytest.raises(CommitUnknown):
        job.session._claim.commit(Content(1, 1, "pickle", (), ()))  # type: ignore[attr-defined]
    assert store.calls == []
    assert job_on(store).state == {"a": 1}


def test_a_commit_that_was_made_and_never_told_is_found_by_the_next_run(store: HookedStore) -> None:
    job = job_on(store)
    job.save({"a": 1}).result()
    blind = Failing("get", "m/", Transient("not now"), times=10_000)
    store.after.append(Doing("put", "m/", lambda: store.before.append(blind)))
    store.after.append(Failing("put", "m/", UnknownOutcome("no answer")))
    with pytest.raises(CommitUnknown):
        job.save({"a": 2}).result()
    assert blind.fired
    store.before.clear()
    assert job_on(store).state == {"a": 2}


def test_a_boundary_that_can_not_be_read_after_a_commit_leaves_it_unknown(store: HookedStore) -> None:
    job = job_on(store)
    blind = Failing("list", "gc/", Transient("not now"), times=10_000)
    store.before.append(blind)
    with pytest.raises(
        CommitUnknown, match=r"snapshot 2 was written, but whether it is valid could not be determined: not now"
    ):
        job.save({"a": 1}).result()
    assert blind.fired


# Failures that are told


@pytest.mark.fault("C1")
@pytest.mark.parametrize("folder", ["d/", "m/"])
def test_a_snapshot_that_failed_is_in_the_next_one_with_nothing_lost(store: HookedStore, folder: str) -> None:
    job = job_on(store)
    job.save({"a": 1, "b": 1, "c": 1}).result()
    full = Failing("put", folder, StoreError("no space left"), times=2)
    store.before.append(full)
    for change, deleted in (({"a": 2}, "b"), ({"d": 4}, "c")):
        with pytest.raises(StoreError, match=r"no space left"):
            job.save(change, deleted=[deleted]).result()
        job.session.check()
    assert job_on_copy(store).state == {"a": 1, "b": 1, "c": 1}
    job.save({"c": 3}).result()
    assert full.fired == 2
    assert job_on(store).state == {"a": 2, "d": 4, "c": 3} == job.state


def job_on_copy(store: HookedStore) -> Job:
    """Restart on a copy, which fences nobody."""
    copy = HookedStore()
    copy.objects = dict(store.objects)
    return job_on(copy)


def test_the_first_snapshot_may_fail_and_the_next_is_a_whole_base(store: HookedStore) -> None:
    job = job_on(store)
    store.before.append(Failing("put", "d/", StoreError("no space left")))
    assert isinstance(job.save({"a": 1}).exception(), StoreError)
    job.save({"b": 1}).result()
    assert job_on(store).state == {"a": 1, "b": 1}


@pytest.mark.fault("C6")
def test_failures_beyond_the_tolerated_time_end_the_run(store: HookedStore, clock: Clock) -> None:
    job = job_on(store, clock, tolerate_failures_for=timedelta(seconds=60))
    store.before.append(Failing("put", "d/", StoreError("no space left"), times=10_000))
    job.save({"a": 1})
    clock.time += 59
    job.save({"a": 2})
    clock.time += 3600
    job.session.check()
    job.save({"a": 3})
    with pytest.raises(SnapshotError, match=r"have been failing for 3659 seconds: no space left") as raised:
        job.session.check()
    assert isinstance(raised.value.__cause__, StoreError)


@pytest.mark.fault("C6")
def test_a_snapshot_that_failed_is_tried_again_after_pauses_that_double(store: HookedStore, clock: Clock) -> None:
    job = job_on(store, clock, tolerate_failures_for=timedelta(minutes=4))
    failing = Failing("put", "d/", StoreError("no space left"), times=10_000)
    store.before.append(failing)
    job.save({"a": 1})
    tries = [0]
    for second in range(1, 244):
        clock.time = second
        job.session.check()
        if job.session.wants_retry:
            tries.append(second)
            job.save()
    with pytest.raises(SnapshotError, match="have been failing for 243 seconds"):
        job.session.check()
    assert tries == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    assert failing.fired == len(tries)


@pytest.mark.fault("C6")
@pytest.mark.slow
def test_snapshots_may_fail_more_often_than_a_pause_can_double(store: HookedStore, clock: Clock) -> None:
    job = job_on(store, clock)
    store.before.append(Failing("put", "d/", StoreError("no space left"), times=1_200))
    for number in range(1_200):
        assert isinstance(job.save({"a": number}).exception(), StoreError)
    assert job.session.retry_after is not None
    assert job.session.retry_after <= 90
    job.save({"b": 1}).result()
    assert job_on(store).state == {"a": 1_199, "b": 1}


def test_retried_snapshot_is_not_requested_again(store: HookedStore, clock: Clock) -> None:
    job = job_on(store, clock)
    store.before.append(Failing("put", "d/", StoreError("no space left")))
    job.save({"a": 1})
    assert not job.session.wants_retry
    clock.time += 1
    assert job.session.wants_retry
    job.save().result()
    clock.time += 3600
    assert not job.session.wants_retry
    store.before.append(Failing("put", "d/", StoreError("no space left")))
    job.save({"a": 2})
    clock.time += 1
    assert job.session.wants_retry, "the pauses begin anew"


def test_a_success_begins_the_time_of_tolerance_anew(store: HookedStore, clock: Clock) -> None:
    job = job_on(store, clock, tolerate_failures_for=timedelta(seconds=60))
    store.before.append(Failing("put", "d/", StoreError("no space left")))
    job.save({"a": 1})
    clock.time += 59
    job.save({"a": 2}).result()
    store.before.append(Failing("put", "d/", StoreError("no space left")))
    clock.time += 59
    job.save({"a": 3})
    job.session.check()


@pytest.mark.fault("C7")
def test_pauses_between_tries_double_up_to_five_seconds_until_the_deadline(store: HookedStore, clock: Clock) -> None:
    job = job_on(store, clock, retry_for=timedelta(seconds=30))
    throttled = Failing("put", "d/", Transient("slow down"), times=10_000)
    store.before.append(throttled)
    with pytest.raises(StoreError, match=r"slow down"):
        job.save({"a": 1}).result()
    assert clock.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]
    assert throttled.fired == 12
    assert clock.time <= 30


@pytest.mark.parametrize("operation", ["list", "get", "put"])
def test_transient_error_at_the_start_of_a_run_is_retried(store: HookedStore, clock: Clock, operation: str) -> None:
    job_on(store).save({"a": 1}).result()
    passing = [Failing(operation, folder, Transient("slow down"), times=3) for folder in ("m/", "gc/", "job", "d/")]
    store.before.extend(passing)
    assert job_on(store, clock).state == {"a": 1}
    assert sum(fault.fired for fault in passing) >= 3


@pytest.mark.fault("C3")
@pytest.mark.parametrize("operation", ["list", "get", "put"])
def test_a_store_that_refuses_is_told_when_the_run_begins(store: HookedStore, operation: str) -> None:
    job_on(store).save({"a": 1}).result()
    before = dict(store.objects)
    store.before.append(Failing(operation, "", StoreError("access denied"), times=10_000))
    with pytest.raises(StoreError, match=r"access denied"):
        job_on(store)
    assert store.objects == before


# Two runs


@pytest.mark.fault("D1")
def test_older_of_two_runs_is_fenced_at_its_next_commit(store: HookedStore, clock: Clock) -> None:
    older = job_on(store)
    older.save({"a": 1}).result()
    clock.time = 3600
    newer = job_on(store, clock)
    before = dict(store.objects)
    rival = manifests(store, newer.backend)[-1].runner
    with pytest.raises(FencedError, match=rf"claimed by another run, {rival} at 2026-01-01T01:00:00\+00:00"):
        older.save({"a": 2}).result()
    with pytest.raises(FencedError):
        older.session.check()
    with pytest.raises(FencedError):
        older.save({"a": 3})
    assert set(store.objects) - set(before) == data_keys(store) - set(before), "only an unnamed data file is left"
    assert newer.save({"b": 1}).result() == 4
    assert job_on(store).state == {"a": 1, "b": 1}


@pytest.mark.fault("D4")
def test_commit_after_the_rival_collected_its_number_is_fenced(store: HookedStore) -> None:
    older = job_on(store, retain=1)
    older.save({"a": 1}).result()
    newer = job_on(store, retain=1)
    for n in range(6):
        newer.save({"b": n}).result()
    assert manifest_key(3) not in store.objects, "the number that the older run will use is free again"
    with pytest.raises(FencedError, match=r"'gc/"):
        older.save({"a": 2}).result()
    assert job_on(store).state == {"a": 1, "b": 5}


@pytest.mark.fault("D4")
def test_commit_whose_number_is_collected_meanwhile_is_fenced(store: HookedStore) -> None:
    older = job_on(store, retain=1)
    older.save({"a": 1}).result()
    newer = job_on(store, retain=1)
    collecting = Doing("get", manifest_key(3), lambda: [newer.save({"b": n}).result() for n in range(6)])
    store.before.append(collecting)
    with pytest.raises(FencedError):
        older.save({"a": 2}).result()
    assert collecting.fired
    assert job_on(store).state == {"a": 1, "b": 5}


def test_later_of_two_concurrent_claims_wins(store: HookedStore) -> None:
    job_on(store).save({"a": 1}).result()
    others: list[Job] = []
    store.before.append(Doing("put", manifest_key(3), lambda: others.append(job_on(store))))
    late = job_on(store)
    assert [it.runner for it in manifests(store, late.backend)[-2:]] == [
        others[0].session._claim.head.runner,  # type: ignore[attr-defined]
        late.session._claim.head.runner,  # type: ignore[attr-defined]
    ]
    with pytest.raises(FencedError):
        others[0].save({"a": 2}).result()
    late.save({"a": 3}).result()


def test_a_job_that_others_go_on_committing_to_can_not_be_claimed(store: HookedStore) -> None:
    def come_first(operation: str, key: str) -> None:
        if operation == "put" and key.startswith("m/"):
            store.objects[key] = b"another's"

    job_on(store)
    store.before.append(come_first)
    with pytest.raises(
        SnapshotError, match=r"could not be claimed: other runs committed to it during each of 100 attempts"
    ):
        job_on(store, start={"restore": None})


@pytest.mark.fault("C13")
@pytest.mark.parametrize("folder", ["m/", "gc/", "d/"])
def test_stale_listing_overwrites_nothing(store: HookedStore, folder: str) -> None:
    _fill(job_on(store, retain=2), 5)
    before = dict(store.objects)
    lists = count()
    real = store.list

    def stale(prefix: str) -> list[str]:
        keys = real(prefix)
        return keys[:-1] if prefix == folder and next(lists) < 2 else keys

    store.list = stale  # type: ignore[method-assign] # its first two answers of this folder are old
    job = job_on(store, retain=2)
    assert job.state == {n: n for n in range(5)}
    _fill(job, 1)
    assert {key: store.objects[key] for key in before if key in store.objects} == {
        key: data for key, data in before.items() if key in store.objects
    }
    assert fsck(job.backend).problems == ()
    assert job_on(store).state == job.state


@pytest.mark.fault("C13")
def test_a_listing_that_never_shows_what_is_there_is_told(store: HookedStore) -> None:
    _fill(job_on(store), 1)
    store.list = lambda prefix: []  # type: ignore[method-assign] # it hides everything
    with pytest.raises(SnapshotError, match=r"'m/0+1.json' exists, but the store does not list it"):
        job_on(store)


@pytest.mark.fault("D6")
def test_a_run_alone_never_fences_itself_whatever_the_store_answers(store: HookedStore) -> None:
    job = job_on(store)
    kinds = (UnknownOutcome("no answer"), Transient("slow down"), StoreError("access denied"))
    for when in (store.before, store.after):
        for error in kinds if when is store.before else kinds[:1]:
            for prefix in ("d/", "m/"):
                fault = Failing("put", prefix, error)
                when.append(fault)
                outcome = job.save({"a": len(store.objects)}).exception()
                assert outcome is None or type(outcome) is StoreError
                assert fault.fired == 1
                when.clear()
    job.save({"b": 1}).result()
    assert job_on(store).state == job.state


ROUNDS, RUNNERS = 50, 8


@pytest.mark.fault("D2")
@pytest.mark.parametrize("kind", ["memory", "local"])
@pytest.mark.slow
def test_only_the_last_of_concurrent_claims_can_commit(tmp_path: Path, kind: str) -> None:
    store: Store = HookedStore() if kind == "memory" else LocalStore(tmp_path)
    backend = StoreBackend(store)
    start = threading.Barrier(RUNNERS)
    claims: list[list[Any]] = [[] for _ in range(ROUNDS)]
    failures: list[BaseException] = []

    def run() -> None:
        try:
            for number in range(ROUNDS):
                manifest_log = backend.manifest_log()
                assert open_or_create_job(manifest_log, backend._environment)
                start.wait(30)
                claims[number].append(
                    claim(
                        manifest_log,
                        manifest_choice(manifest_log, RestoreOptions(), backend.codec, lambda _: {}),
                        backend._environment,
                    )
                )
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failures.append(error)
            start.abort()

    threads = [threading.Thread(target=run) for _ in range(RUNNERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    numbers = [held.head.seq for round_ in claims for held in round_]
    assert sorted(numbers) == [*range(1, ROUNDS * RUNNERS + 1)]
    last = claims[-1]
    winners = [held for held in last if _can_commit(held)]
    assert [held.head.epoch for held in winners] == [ROUNDS * RUNNERS]


def _can_commit(held: Any) -> bool:
    try:
        held.commit(Content(1, 1, "pickle", (), ()))
    except FencedError:
        return False
    return True


# Collection


def test_retention_counts_snapshots_and_the_oldest_go(store: HookedStore) -> None:
    job = job_on(store, retain=3)
    for n in range(8):
        job.save({n: n}).result()
    assert [it.id for it in snapshots(job.backend)] == [7, 8, 9]
    assert fsck(job.backend).problems == ()
    assert seqs(store) == [7, 8, 9]
    assert [key for key in store.objects if key.startswith("gc/")] == [boundary_key(7)]


def test_claims_do_not_push_out_snapshots(store: HookedStore) -> None:
    job = job_on(store, retain=3)
    for n in range(5):
        job.save({n: n}).result()
        job = job_on(store, retain=3)
    job.save({9: 9}).result()
    assert len([*snapshots(job.backend)]) == 3
    assert fsck(job.backend).problems == ()


@pytest.mark.fault("D8")
def test_the_boundary_is_raised_before_anything_is_deleted(store: HookedStore) -> None:
    job = job_on(store, retain=1)
    for n in range(4):
        job.save({n: n}).result()
    store.clear_calls()
    job.save({4: 4}).result()
    changing = [call for call in store.calls if call[0] in ("put", "delete")]
    raised = [at for at, (operation, key) in enumerate(changing) if operation == "put" and key.startswith("gc/")]
    deleted = [at for at, (operation, _) in enumerate(changing) if operation == "delete"]
    assert len(raised) == 1
    assert deleted
    assert raised[0] < min(deleted)


@pytest.mark.fault("A3")
def test_only_unreferenced_files_below_the_boundary_are_deleted(store: HookedStore) -> None:
    job = job_on(store, retain=2, growth=1000)
    job.save({"a": 1}).result()
    base = data_keys(store)
    young = "d/00000000000000000099-9-0123456789abcdef-0123456789abcdef.mfs"
    old = "d/00000000000000000001-1-0123456789abcdef-0123456789abcdef.mfs"
    store.objects[young] = store.objects[old] = b"an orphan"
    for n in range(6):
        job.save({n: n}).result()
        assert fsck(job.backend).problems == ()
    assert base <= data_keys(store), "increments stand on it still"
    assert young in store.objects, "it may belong to a commit in flight"
    assert old not in store.objects
    assert data_keys(store) == named_files(store, job) | {young}


def named_files(store: HookedStore, job: Job) -> set[str]:
    return {entry.name for manifest in manifests(store, job.backend) for entry in manifest.files}


FOREIGN = ["notes.txt", "d/notes.txt", "m/7", "m/00000000000000000001.json.bak", "gc/1", "other/00000000000000000001"]


@pytest.mark.fault("B11")
def test_foreign_files_are_never_touched(store: HookedStore) -> None:
    for key in FOREIGN:
        store.objects[f"{key}"] = b""
    job = job_on_with_foreign(store)
    for n in range(8):
        job.save({n: n}).result()
    assert set(FOREIGN) <= set(store.objects)
    assert {key for key in FOREIGN if key[:2] in ("d/", "m/", "gc")} <= set(fsck(job.backend).unused)
    assert fsck(job.backend).problems == ()


def job_on_with_foreign(store: HookedStore) -> Job:
    others = {key: store.objects.pop(key) for key in FOREIGN}
    job = job_on(store, retain=1)
    store.objects.update(others)
    return job


@pytest.mark.fault("A8")
@pytest.mark.parametrize("deletion", range(6))
def test_interrupted_collection_is_finished_by_the_next(store: HookedStore, deletion: int) -> None:
    job = job_on(store, retain=1)
    _fill(job, 3)
    deletions = count()
    fault = Failing("delete", "", StoreError("access denied"))

    def interrupt(operation: str, key: str) -> None:
        if operation == "delete" and next(deletions) == deletion:
            fault(operation, key)

    store.before.append(interrupt)
    _fill(job, 3)
    assert fault.fired == 1
    assert fsck(job.backend).problems == ()
    _fill(job, 1)
    assert seqs(store) == [6, 7, 8]
    assert data_keys(store) == named_files(store, job)
    assert fsck(job.backend).problems == ()
    assert job_on(store).state == job.state


def _fill(job: Job, times: int) -> None:
    for _ in range(times):
        job.save({job.tick: job.tick}).result()


@pytest.mark.fault("C17")
def test_a_failed_deletion_does_not_fail_the_snapshot(store: HookedStore) -> None:
    job = job_on(store, retain=1)
    fault = Failing("delete", "", StoreError("access denied"), times=10_000)
    store.before.append(fault)
    _fill(job, 6)
    assert fault.fired
    job.session.check()
    assert seqs(store) == [1, 2, 3, 4, 5, 6, 7]
    store.before.clear()
    _fill(job, 1)
    assert seqs(store) == [6, 7, 8]
    assert job_on(store).state == job.state


@pytest.mark.fault("D5")
def test_the_collection_of_a_run_that_was_fenced_meanwhile_harms_nobody(store: HookedStore) -> None:
    older = job_on(store, retain=5)
    _fill(older, 4)
    newer = job_on(store, retain=5, start={"restore": 3})
    assert newer.state == {0: 0, 1: 1}
    older.session._claim.delete_unreferenced(1)  # type: ignore[attr-defined] # it is where it was when it was fenced
    assert fsck(newer.backend).problems == ()
    newer.save({"new": 1}).result()
    older.session._claim.delete_unreferenced(1)  # type: ignore[attr-defined]
    assert fsck(newer.backend).problems == ()
    assert job_on(store).state == {0: 0, 1: 1, "new": 1}


def test_snapshot_collected_during_a_claim_has_been_copied(store: HookedStore) -> None:
    older = job_on(store, retain=5)
    _fill(older, 4)
    collecting = Doing("put", manifest_key(6), lambda: older.session._claim.delete_unreferenced(1))  # type: ignore[attr-defined]
    store.before.append(collecting)
    newer = job_on(store, start={"restore": 2})
    assert collecting.fired
    assert newer.state == job_on(store).state == {0: 0}
    assert fsck(newer.backend).problems == ()
    assert job_on(store, start={"restore": 4}).state == {0: 0, 1: 1, 2: 2}


def test_snapshot_collected_before_the_claim_is_not_there(store: HookedStore) -> None:
    older = job_on(store, retain=2)
    _fill(older, 4)
    going_on = Doing("put", manifest_key(6), lambda: _fill(older, 3))
    store.before.append(going_on)
    with pytest.raises(SnapshotError, match=r"no snapshot with the id 4; it has \[6, 7, 8\]"):
        job_on(store, start={"restore": 4})
    assert going_on.fired


@pytest.mark.fault("B12")
def test_unreadable_retained_manifest_stops_the_deletion_of_data(store: HookedStore) -> None:
    job = job_on(store, retain=3, growth=0.001)
    _fill(job, 4)
    store.objects[manifest_key(4)] = b"damaged"
    job = job_on(store, retain=3, growth=0.001)
    before = data_keys(store)
    _fill(job, 1)
    assert manifest_key(4) in store.objects
    assert before <= data_keys(store), "who knows what it names"
    _fill(job, 6)
    assert manifest_key(4) not in store.objects
    assert data_keys(store) == named_files(store, job)
    assert job_on(store).state == job.state


@pytest.mark.fault("H9")
def test_crash_loop_of_two_hundred_claims_costs_no_snapshot(store: HookedStore) -> None:
    job = job_on(store, retain=3)
    _fill(job, 3)
    for _ in range(200):
        job = job_on(store, retain=3)
    assert job.state == {0: 0, 1: 1, 2: 2}
    _fill(job, 1)
    assert len(seqs(store)) <= 3 + 64
    assert fsck(job.backend).problems == ()
    assert len([*snapshots(job.backend)]) >= 2
    assert job_on(store).state == job.state


# The job itself


@pytest.mark.fault("B9")
def test_a_lost_job_file_is_told_and_nothing_is_begun_anew(store: HookedStore) -> None:
    job_on(store).save({"a": 1}).result()
    job_file = store.objects.pop("job.json")
    before = dict(store.objects)
    with pytest.raises(SnapshotIncomplete, match=r"'job.json' is missing, but the job has snapshots"):
        job_on(store)
    assert store.objects == before
    store.objects["job.json"] = job_file
    assert job_on(store).state == {"a": 1}


@pytest.mark.fault("D10")
def test_a_job_that_was_copied_to_another_name_is_refused(store: HookedStore) -> None:
    job_on(store, job="sums").save({"a": 1}).result()
    with pytest.raises(SnapshotCorrupt, match=r"belongs to job 'sums' and was copied into the folder of job 'counts'"):
        job_on(store, job="counts")


@pytest.mark.fault("D10")
def test_snapshots_of_another_job_of_the_same_name_are_refused(store: HookedStore) -> None:
    other = HookedStore()
    for place in (store, other):
        job_on(place).save({"a": 1}).result()
    store.objects["job.json"] = other.objects["job.json"]
    with pytest.raises(SnapshotCorrupt, match=r"'m/0+2\.json' contains the job [0-9a-f]{32}; expected [0-9a-f]{32}"):
        job_on(store)


@pytest.mark.parametrize("damaged", [b"", b"{}", b"nonsense", b"[]", b"\xff"])
def test_a_damaged_job_file_is_told(store: HookedStore, damaged: bytes) -> None:
    job_on(store).save({"a": 1}).result()
    store.objects["job.json"] = damaged
    with pytest.raises(SnapshotCorrupt, match=r"'job\.json'"):
        job_on(store)
    assert fsck(StoreBackend(store)).problems


@pytest.mark.fault("B9")
@pytest.mark.parametrize("restore", ["latest", None, 2])
def test_when_all_manifests_are_gone_a_run_does_not_begin_with_nothing(store: HookedStore, restore: Any) -> None:
    job_on(store).save({"a": 1}).result()
    store.objects = {key: data for key, data in store.objects.items() if not key.startswith("m/")}
    with pytest.raises(SnapshotIncomplete, match=r"all manifests of job 'default' are missing, but other files"):
        job_on(store, start={"restore": restore})


def test_an_answer_lost_while_the_job_is_made_is_no_other_job(store: HookedStore) -> None:
    lost = Failing("put", "job.json", UnknownOutcome("no answer"))
    store.after.append(lost)
    job_on(store).save({"a": 1}).result()
    assert lost.fired == 1
    assert job_on(store).state == {"a": 1}


@pytest.mark.fault("D2")
def test_two_runs_that_make_the_job_at_once_make_one(store: HookedStore) -> None:
    others: list[Job] = []
    store.before.append(Doing("put", "job.json", lambda: others.append(job_on(store))))
    late = job_on(store)
    assert len({it.job for it in manifests(store, late.backend)}) == 1
    assert seqs(store) == [1, 2]


# Going back


def test_any_retained_snapshot_can_be_gone_back_to(store: HookedStore) -> None:
    job = job_on(store)
    states = {}
    for n in range(4):
        snapshot = job.save({"a": n}).result()
        states[snapshot] = dict(job.state)
    for snapshot, state in states.items():
        assert job_on(store, start={"restore": snapshot}).state == state
    assert job_on(store).state == states[5], "the last claim went on from this one"


def test_going_back_and_on_again_makes_a_new_line_of_snapshots(store: HookedStore) -> None:
    job = job_on(store)
    _fill(job, 3)
    back = job_on(store, start={"restore": 2})
    back.save({"new": 1}).result()
    assert job_on(store).state == {0: 0, "new": 1}
    assert job_on(store, start={"restore": 4}).state == {0: 0, 1: 1, 2: 2}
    assert fsck(back.backend).problems == ()


@pytest.mark.parametrize("snapshot", [0, 1, 99, -1])
def test_an_id_that_no_snapshot_has_is_refused_with_those_there_are(store: HookedStore, snapshot: int) -> None:
    job = job_on(store)
    _fill(job, 2)
    with pytest.raises(SnapshotError, match=rf"no snapshot with the id {snapshot}; it has \[2, 3\]"):
        job_on(store, start={"restore": snapshot})


def test_an_id_is_refused_where_there_is_no_snapshot_at_all(store: HookedStore) -> None:
    with pytest.raises(SnapshotError, match=r"has no snapshots; got restore=3"):
        job_on(store, start={"restore": 3})


def test_to_begin_with_nothing_must_be_said_and_keeps_the_old_snapshots(store: HookedStore) -> None:
    job = job_on(store)
    _fill(job, 2)
    assert job_on(store, start={"restore": None}).state == {}
    assert job_on(store).state == {}, "the claim went on from nothing, and so does the next"
    assert job_on(store, start={"restore": 3}).state == {0: 0, 1: 1}


# Stores that do not keep two runs apart


class Overwriting(MemoryFileSystem):
    """A file system that says it creates exclusively, and does not."""

    protocol = "overwriting"
    store: dict[str, Any] = {}  # noqa: RUF012 - as its base does
    pseudo_dirs = [""]  # noqa: RUF012

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        super().pipe_file(path, value, mode="overwrite", **options)


@pytest.fixture
def overwriting() -> Overwriting:
    filesystem = Overwriting()
    filesystem.store.clear()
    return filesystem


@pytest.mark.fault("C14")
def test_a_store_that_creates_over_what_exists_is_refused_at_once(overwriting: Overwriting) -> None:
    backend = FsspecBackend("/place", filesystem=overwriting, allow_unsigned_pickle=True)
    with pytest.raises(SnapshotError, match=r"overwrites existing objects.*allow_unsafe_single_writer=True"):
        Job(backend)
    assert [*overwriting.store] == ["/place/default/job.json"], "nothing but the job's own file was written"


@pytest.mark.fault("C14")
def test_store_without_exclusive_creation_is_usable_on_request(overwriting: Overwriting) -> None:
    def backend() -> FsspecBackend:
        options: dict[str, Any] = {"allow_unsigned_pickle": True, "allow_unsafe_single_writer": True}
        return steady(FsspecBackend("/place", filesystem=overwriting, **options))

    older = Job(backend())
    older.save({"a": 1}).result()
    newer = Job(backend())
    newer.save({"b": 1}).result()
    with pytest.raises(FencedError):
        older.save({"a": 2}).result()
    assert Job(backend()).state == {"a": 1, "b": 1}


# Forks


@pytest.mark.fault("H7")
def test_a_forked_process_can_not_commit(store: HookedStore, clock: Clock) -> None:
    job = job_on(store, clock)
    job.save({"a": 1}).result()
    clock.process = 2
    for attempt in (lambda: job.save({"a": 2}), job.session.check):
        with pytest.raises(FencedError, match=r"forked from the one that runs the job; only its parent may commit"):
            attempt()
    clock.process = 1
    assert job.save({"a": 3}).result() == 3


@pytest.mark.fault("H7")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_really_forked_process_can_not_commit(tmp_path: Path) -> None:
    job = Job(FsspecBackend(str(tmp_path)))
    job.save({"a": 1}).result()
    child = os.fork()
    if not child:
        try:
            job.save({"a": 2})
        except FencedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    job.save({"a": 3}).result()
    assert Job(FsspecBackend(str(tmp_path))).state == {"a": 3}


def test_a_commit_never_writes_over_anything(store: HookedStore) -> None:
    job = job_on(store)
    _fill(job, 3)
    before = dict(store.objects)
    for key in before:
        with pytest.raises(KeyExists):
            store.put_new(key, b"")
    newer = job_on(store)
    _fill(newer, 3)
    assert {key: store.objects[key] for key in before} == before


@pytest.mark.fault("D7", "D8")
def test_the_clock_of_the_day_may_jump_and_nothing_depends_on_it(store: HookedStore) -> None:
    times = iter([5_000_000.0, 0.0, 86400.0 * 365, -3600.0, 7.0, 3.0, 1.0, 2.0])
    clock = Clock()

    def jump(operation: str, key: str) -> None:
        if operation == "put" and key.startswith("m/"):
            clock.time = next(times)

    store.before.append(jump)
    job = job_on(store, clock, retain=2)
    _fill(job, 4)
    newer = job_on(store, clock, retain=2)
    assert newer.state == job.state
    assert [it.id for it in snapshots(newer.backend)] == [3, 4, 5]
    assert fsck(newer.backend).problems == ()

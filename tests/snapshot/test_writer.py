"""The memory of a snapshot writer from one snapshot to the next."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from malflow.errors import SnapshotError, StoreError
from malflow.snapshot.executors import ThreadExecutor
from malflow.snapshot.persistence import RestoreOptions
from malflow.snapshot.protocol.manifest import Manifest
from malflow.states.keyed import Delta, StateDelta
from tests.kit.jobs import SUM, Failing, Job, StoreBackend, seqs
from tests.kit.memory_store import HookedStore


class Later:
    """Does work when told to."""

    def __init__(self) -> None:
        self.queue: list[tuple[Callable[[], Any], Future[Any]]] = []

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self.queue.append((work, future))
        return future

    def close(self) -> None:
        pass

    def catch_up(self) -> None:
        while self.queue:
            work, future = self.queue.pop(0)
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - the future tells it
                future.set_exception(error)


@pytest.fixture
def store() -> HookedStore:
    return HookedStore()


@pytest.mark.fault("C1")
def test_last_snapshot_contains_what_a_failed_one_could_not_write(
    store: HookedStore,
) -> None:
    job = Job(StoreBackend(store))
    job.save({"a": 1}).result()
    fault = Failing("put", "d/", StoreError("the disk is full"))
    store.before.append(fault)
    with pytest.raises(StoreError, match="the disk is full"):
        job.save({"a": 2}).result()
    assert job.save().result() == 3
    assert fault.fired == 1
    assert Job(StoreBackend(store)).state == {"a": 2}


def test_captured_increment_is_never_written_as_a_base(store: HookedStore) -> None:
    later = Later()
    backend = StoreBackend(store, growth=0.01)
    backend._executor = lambda: later  # type: ignore[assignment] # it does what a test does by hand
    job = Job(backend)
    job.save({"a": 1, "b": 2})
    later.catch_up()
    job.save({"a": 10})
    assert not job.session.needs_full_snapshot(1)
    later.catch_up()  # the increment outgrows the base: just after it was asked, and before it commits
    job.session.commit(3, 1, [SUM], [StateDelta(0, "sum", Delta({"a": 11}), 2)])
    later.catch_up()
    assert job.session.needs_full_snapshot(1)
    assert Job(StoreBackend(store)).state == {"a": 11, "b": 2}


def test_rescaling_back_during_a_snapshot_begins_a_base(
    store: HookedStore,
) -> None:
    later = Later()
    backend = StoreBackend(store)
    backend._executor = lambda: later  # type: ignore[assignment] # it does what a test does by hand
    session, _ = backend.open([SUM], RestoreOptions())

    def whole(parallelism: int) -> None:
        assert session.needs_full_snapshot(parallelism)
        states = [StateDelta(worker, "sum", Delta({worker: 1}, whole=True), 1) for worker in range(parallelism)]
        session.commit(1, parallelism, [SUM], states)

    whole(1)
    later.catch_up()
    whole(2)
    whole(1)
    later.catch_up()
    assert seqs(store) == [1, 2, 3, 4]
    _, restored = StoreBackend(store).open([SUM], RestoreOptions())
    assert restored is not None
    assert restored.states == {"sum": {0: {0: 1}}}


def test_a_fault_that_nobody_foresaw_says_what_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(_self: object, _seal: object) -> bytes:
        raise SystemError("bad argument")

    job = Job(StoreBackend(HookedStore()))
    monkeypatch.setattr(Manifest, "to_bytes", fault)
    told = r"failed unexpectedly in fault \(test_writer.py:\d+\): SystemError: bad argument; the previous snapshot"
    with pytest.raises(SnapshotError, match=told):
        job.save({"a": 1}).result()
    with pytest.raises(SnapshotError, match=told):
        job.session.check()


@pytest.mark.slow
def test_a_thread_whose_session_nobody_closed_ends_with_it() -> None:
    background = ThreadExecutor()
    assert background.submit(lambda: 7).result(60) == 7
    thread = background._thread
    assert thread is not None
    del background
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()

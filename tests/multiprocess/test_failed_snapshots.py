"""Snapshots that fail while worker processes write them lose no change, against a plain sum."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from malflow import MultiProcessRuntime, SnapshotError, StoreError, StreamProvider
from malflow.engine.plan import Program
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, fsck
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.store.contract import KeyExists, KeyMissing
from malflow.store.local import LocalStore
from malflow.testing.driven import DrivenProcesses
from malflow.testing.inputs import Feed, FeedRecord
from malflow.testing.shared_count import SharedCount
from malflow.testing.trial import built
from tests.kit.backends import kept_states

pytestmark = pytest.mark.slow

KEYS = 5
RECORDS = 60


class BrittleStore:
    """A store in a folder, in which no data file can be written while another file exists."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStore(folder / "objects", durable=False)
        self._is_full = folder / "full"

    def put_new(self, key: str, data: bytes) -> None:
        """Create an object, unless it is a data file and the disk is full."""
        if key.startswith("d/") and self._is_full.exists():
            raise StoreError("the disk is full")
        self._store.put_new(key, data)

    def get(self, key: str, limit: int) -> bytes:
        """Read an object."""
        return self._store.get(key, limit)

    def list(self, prefix: str) -> list[str]:
        """List the keys."""
        return self._store.list(prefix)

    def delete(self, key: str) -> None:
        """Delete an object."""
        self._store.delete(key)

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """Delete remains."""
        self._store.sweep(prefix, dead)

    def break_it(self) -> None:
        """Make writes of data files fail from now on."""
        self._is_full.touch()

    def mend_it(self) -> None:
        """Make them succeed again."""
        self._is_full.unlink(missing_ok=True)


def records(part: str, numbers: range) -> list[FeedRecord]:
    return [FeedRecord("numbers", part, number, number) for number in numbers]


def program(feed: Feed) -> Program:
    def build(provider: StreamProvider) -> None:
        source: StatefulSource[Any, Any, Any, int] = feed.source("numbers", keyed=False)
        numbers = provider.new_stream().source("numbers", source)
        keyed = numbers.key_distribute("key", lambda msg: msg.value % KEYS)
        keyed.stateful_map("sum", lambda _, value, total: (total, total + value), default=int).sink("out", VecSink())

    return built(build)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ticks"), st.integers(1, 8)),
        st.tuples(st.sampled_from(["snapshot", "failing", "restart"]), st.just(0)),
        st.tuples(st.just("rescale"), st.integers(1, 3)),
    ),
    min_size=3,
    max_size=20,
)


@pytest.mark.fault("J5")
@settings(max_examples=max(5, settings().max_examples // 10), deadline=None)
@example(  # a change is only in the snapshot that fails
    steps=[("ticks", 6), ("snapshot", 0), ("ticks", 1), ("failing", 0), ("ticks", 1), ("snapshot", 0)], growth=100.0
)
@given(steps=STEPS, growth=st.sampled_from([0.1, 100.0]))
def test_failed_snapshots_lose_nothing(steps: list[tuple[str, int]], growth: float) -> None:
    feed = Feed({"numbers": {part: records(part, range(at, RECORDS, 3)) for at, part in enumerate("abc")}})
    with TemporaryDirectory() as folder, closing(SharedCount()) as feed.count:
        store = BrittleStore(Path(folder))
        backend = FsspecBackend(
            store=store, allow_unsigned_pickle=True, growth=growth, retry_for=timedelta(microseconds=1)
        )
        made, kept, workers = program(feed), 0, 2
        run = DrivenProcesses(made, parallelism=workers, persistence=backend)
        run.resume()
        try:
            for what, count in [*steps, ("ticks", RECORDS), ("snapshot", 0)]:
                if what == "ticks":
                    for _ in range(min(count, RECORDS - feed.allowed)):
                        feed.allowed += 1
                        run.tick()
                elif what == "rescale":
                    run.rescale(count)
                elif what == "restart":
                    run.close(SnapshotError("crashed"))
                    feed.allowed = kept
                    run = DrivenProcesses(made, parallelism=run.parallelism, persistence=backend)
                    run.resume()
                elif what == "failing":
                    store.break_it()
                    snapshot = run.snapshots.take()
                    assert snapshot is not None
                    if snapshot.exception() is None:  # nothing had changed
                        kept = feed.allowed
                    store.mend_it()
                else:
                    run.snapshots.take(ending=True)
                    kept = feed.allowed
                    assert kept_states(backend, "sum") == summed(feed, kept)
        finally:
            run.close(SnapshotError("over"))
        assert kept_states(backend, "sum") == summed(feed, RECORDS)
        assert fsck(backend).problems == ()


def summed(feed: Feed, until: int) -> Counter[int]:
    total: Counter[int] = Counter()
    for record in feed.records[:until]:
        total[record.value % KEYS] += record.value
    return total


class SlowStore(BrittleStore):
    """A store in which data files take their time."""

    def put_new(self, key: str, data: bytes) -> None:
        """Create an object."""
        if key.startswith("d/"):
            time.sleep(0.3)
        super().put_new(key, data)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_rescale_waits_for_the_snapshot_that_is_being_written(workers: int, tmp_path: Path) -> None:
    feed = Feed({"numbers": {part: records(part, range(at, RECORDS, 3)) for at, part in enumerate("abc")}})
    backend = FsspecBackend(store=SlowStore(tmp_path), allow_unsigned_pickle=True)
    with closing(SharedCount()) as feed.count:
        run = DrivenProcesses(program(feed), parallelism=2, persistence=backend)
        run.resume()
        try:
            for _ in range(12):
                feed.allowed += 1
                run.tick()
            snapshot = run.snapshots.take()
            run.rescale(workers)
            assert snapshot is not None
            snapshot.result()
            assert kept_states(backend, "sum") == summed(feed, 12)
            assert fsck(backend).problems == ()
        finally:
            run.close(SnapshotError("over"))


class Alone:
    """A store in the memory of each process, which forgets to say so."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def put_new(self, key: str, data: bytes) -> None:
        """Create an object."""
        if key in self._objects:
            raise KeyExists(key)
        self._objects[key] = data

    def get(self, key: str, limit: int) -> bytes:
        """Read an object."""
        if key not in self._objects:
            raise KeyMissing(key)
        return self._objects[key][: limit + 1]

    def list(self, prefix: str) -> list[str]:
        """List the keys."""
        return sorted(key for key in self._objects if key.startswith(prefix))

    def delete(self, key: str) -> None:
        """Delete an object."""
        self._objects.pop(key, None)

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """Delete nothing."""


@pytest.mark.fault("J6")
def test_a_store_of_which_each_process_has_its_own_is_refused() -> None:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(10)))
        keyed = numbers.key_distribute("key", lambda msg: msg.value % KEYS)
        keyed.stateful_map("sum", lambda _, value, total: (total, total + value), default=int).sink("out", VecSink())

    backend = FsspecBackend(store=Alone(), allow_unsigned_pickle=True)
    runtime = partial(MultiProcessRuntime, processes=2, start_method="forkserver")
    with pytest.raises(SnapshotError, match=r"another process has written 'd/.*in the memory"):
        runtime(build, backend).execute()

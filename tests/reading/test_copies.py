"""`copy_snapshot`: a snapshot in another place, which a run continues from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.errors import GraphError, OperatorError, SnapshotCorrupt, SnapshotError, StoreError
from malflow.snapshot import FsspecBackend, MsgpackCodec, copy_snapshot, fsck, read_state, snapshots
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource
from tests.kit.backends import at_once
from tests.kit.extras import needs
from tests.kit.jobs import Clock, Failing, StoreBackend
from tests.kit.memory_store import HookedStore, MemoryStore
from tests.reading.keeping import Keeper

KEY, OTHER = "a signing key of the tests", "quite another signing key"


def counted(words: str, backend: FsspecBackend, **options: Any) -> None:
    """Count letters, resuming from the last snapshot."""

    def build(provider: StreamProvider) -> None:
        source = provider.new_stream().source("letters", StatefulSource(ScriptedSource(words)))
        source.key_distribute("letter", lambda msg: msg.value).stateful_map(
            "count", lambda _key, _value, count: (None, count + 1), default=int
        )

    SingleThreadRuntime(build, backend, **options).execute()


def test_a_run_continues_from_a_copy_as_from_the_original(tmp_path: Path) -> None:
    job, copy = at_once(tmp_path / "job", signing_key=KEY), at_once(tmp_path / "copy", job="may", signing_key=OTHER)
    counted("aab", job, parallelism=2)
    counted("aabbc", job, parallelism=2)
    first, second = (it.id for it in snapshots(job))
    assert copy_snapshot(job, first, to=copy) == 2
    assert dict(read_state(copy, "count")) == {"a": 2, "b": 1}
    (only,) = snapshots(copy)
    assert (only.tick, only.parallelism) == (next(snapshots(job)).tick, 2)
    counted("aabbc", copy, parallelism=3)
    assert dict(read_state(copy, "count")) == dict(read_state(job, "count", at=second)) == {"a": 2, "b": 2, "c": 1}


def test_a_copy_outlives_the_original() -> None:
    job = Keeper(StoreBackend(MemoryStore(), retain=1, growth=1e9), 2)
    ids = [job.save({key: key, 0: None if key == 5 else key}) for key in range(1, 7)]
    copy = StoreBackend(MemoryStore())
    copy_snapshot(job.backend, to=copy)
    for workers in (1, 2, 3, 4):
        job.rescale(workers)
    assert list(read_state(copy, "sum")) == job.taken[ids[-1]]
    assert fsck(copy).problems == ()


def test_a_job_with_snapshots_is_not_copied_to_and_its_run_continues() -> None:
    job, other = (Keeper(StoreBackend(MemoryStore())) for _ in range(2))
    job.save({1: 1})
    other.save({2: 2})
    with pytest.raises(SnapshotError, match=r"FsspecBackend\(.*\) has snapshots; choose another job="):
        copy_snapshot(job.backend, to=other.backend)
    with pytest.raises(SnapshotError, match="has snapshots; choose another job="):
        copy_snapshot(job.backend, to=job.backend)
    assert other.save({2: 3}) == 3
    assert job.save({1: 3}) == 3


@pytest.mark.fault("K7")
@pytest.mark.parametrize("prefix", ["job", "m/", "d/"])
def test_a_copy_that_was_interrupted_is_no_snapshot_and_can_be_repeated(prefix: str) -> None:
    job, store = Keeper(StoreBackend(MemoryStore(), growth=1e9), 2), HookedStore()
    for key in range(3):
        job.save({key: key})
    full = Failing("put", prefix, StoreError("the disk is full"), times=1)
    store.before.append(full)
    for _ in range(2):
        with pytest.raises(StoreError, match="the disk is full"):
            copy_snapshot(job.backend, to=StoreBackend(store, Clock()))
        assert list(snapshots(StoreBackend(store))) == []
        full.fired = 0
    store.before.clear()
    copy_snapshot(job.backend, to=StoreBackend(store))
    assert list(read_state(StoreBackend(store), "sum")) == list(read_state(job.backend, "sum"))


@pytest.mark.damages_snapshots("a file of the original")
def test_a_damaged_snapshot_is_not_copied() -> None:
    source, store = MemoryStore(), MemoryStore()
    job = Keeper(StoreBackend(source))
    job.save({1: 1})
    (name,) = (key for key in source.objects if key.startswith("d/"))
    source.objects[name] += b" "
    with pytest.raises(SnapshotCorrupt, match=name):
        copy_snapshot(job.backend, to=StoreBackend(store))
    assert list(snapshots(StoreBackend(store))) == []


def test_the_other_backend_is_checked_before_anything_is_written() -> None:
    job, store = Keeper(StoreBackend(MemoryStore())), MemoryStore()
    job.save({1: 1})
    with pytest.raises(GraphError, match="copy_snapshot needs an FsspecBackend as to=; got 'folder'"):
        copy_snapshot(job.backend, to="folder")  # type: ignore[arg-type] # the mistake
    with pytest.raises(SnapshotError, match=r"with codec 'pickle', but FsspecBackend.* has codec 'msgpack'; pass"):
        copy_snapshot(job.backend, to=StoreBackend(store, codec=MsgpackCodec()))
    assert store.objects == {}


@needs("pyarrow")
def test_a_run_from_a_copy_needs_a_sink_of_its_own(tmp_path: Path) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415 - only the extra has it

    from malflow.connectors.parquet import ParquetSink  # noqa: PLC0415 - as above

    def build(words: str, name: str) -> Any:
        def build_dataflow(provider: StreamProvider) -> None:
            source = provider.new_stream().source("letters", StatefulSource(ScriptedSource(words)))
            keyed = source.key_distribute("letter", lambda msg: msg.value)
            counts = keyed.stateful_map("count", lambda key, _, n: ({"letter": key, "n": n + 1}, n + 1), default=int)
            counts.sink(name, ParquetSink(tmp_path / name))

        return build_dataflow

    job, copy = at_once(tmp_path / "job"), at_once(tmp_path / "copy")
    SingleThreadRuntime(build("aab", "out"), job).execute()
    copy_snapshot(job, to=copy)
    with pytest.raises(OperatorError, match=r"operator 'out' failed at fence: .* lacks committed records"):
        SingleThreadRuntime(build("aabb", "out"), copy).execute()
    SingleThreadRuntime(build("aabb", "new"), copy, allow_dropped_state=["out"]).execute()
    assert pq.read_table(tmp_path / "new").to_pylist() == [{"letter": "b", "n": 2}]
    assert pq.read_table(tmp_path / "out").num_rows == 3

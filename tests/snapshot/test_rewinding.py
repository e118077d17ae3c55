"""An earlier snapshot becomes the latest, and old ones are deleted, without the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from malflow import FencedError, SingleThreadRuntime, SnapshotError, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, fsck, read_state, snapshots
from malflow.snapshot.rewinding import delete_snapshots, deleted_with, rewind
from malflow.sources import SingleIteratorSource

pytestmark = pytest.mark.slow


def count(backend: FsspecBackend, words: str, at_record: Any = None) -> list[int]:
    """Count words, with state; call something at each record."""
    out: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        source = provider.new_stream().source("words", SingleIteratorSource([*words]))
        seen = source.inspect("see", lambda _msg, _: at_record() if at_record else None)
        keyed = seen.key_distribute("word", lambda msg: msg.value)
        keyed.stateful_map("count", lambda _k, _v, count: (count + 1, count + 1), default=int).sink("out", out)

    SingleThreadRuntime(build_dataflow, persistence=backend).execute()
    return out.values


@pytest.fixture
def backend(tmp_path: Path) -> FsspecBackend:
    """Return a job with five snapshots, in which 'a' was counted one to five times."""
    backend = FsspecBackend(str(tmp_path / "kept"))
    for number in range(1, 6):
        assert count(backend, "a") == [number]
    return backend


def ids(backend: FsspecBackend) -> list[int]:
    return [it.id for it in snapshots(backend)]


@pytest.mark.parametrize("place", range(5))
def test_next_run_resumes_from_the_snapshot(place: int, backend: FsspecBackend) -> None:
    number = ids(backend)[place]
    assert rewind(backend, number) == number
    assert read_state(backend, "count", key="a") == place + 1
    assert count(backend, "a") == [place + 2]
    assert fsck(backend).problems == ()


def test_rewinding_again_and_to_the_newest(backend: FsspecBackend) -> None:
    first, *_, last = ids(backend)
    rewind(backend, first)
    rewind(backend, last)
    rewind(backend, "latest")
    assert count(backend, "a") == [6]


def test_run_that_is_alive_is_fenced(backend: FsspecBackend) -> None:
    first = ids(backend)[0]
    with pytest.raises(FencedError):
        count(backend, "a", lambda: rewind(backend, first))
    assert count(backend, "a") == [2]


@pytest.mark.parametrize("at", [77, 0])
def test_snapshot_that_is_not_there(at: int, backend: FsspecBackend) -> None:
    for work in (rewind, delete_snapshots, deleted_with):
        with pytest.raises(SnapshotError, match=f"no snapshot with the id {at}"):
            work(backend, at)


def test_job_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    nowhere = FsspecBackend(str(tmp_path / "nowhere"))
    with pytest.raises(SnapshotError, match="no run has begun there"):
        rewind(nowhere, 1)
    with pytest.raises(SnapshotError, match="no run has begun there"):
        delete_snapshots(nowhere, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", range(5))
def test_deleted_with_all_older_ones(place: int, backend: FsspecBackend) -> None:
    before = ids(backend)
    number = before[place]
    if place >= 3:  # the newest three manifests always stay
        with pytest.raises(SnapshotError, match="one of the newest"):
            delete_snapshots(backend, number)
        assert ids(backend) == before
        return
    assert deleted_with(backend, number) == before[: place + 1]
    assert ids(backend) == before
    assert delete_snapshots(backend, number) == before[: place + 1]
    assert ids(backend) == before[place + 1 :]
    report = fsck(backend)
    assert (report.problems, report.unused) == ((), ())
    assert count(backend, "a") == [6]


def test_latest_after_rewinding_is_not_deleted(backend: FsspecBackend) -> None:
    first, second, *_ = ids(backend)
    rewind(backend, first)
    with pytest.raises(SnapshotError, match="one of the newest"):
        delete_snapshots(backend, first)
    assert delete_snapshots(backend, second) == [second]
    assert count(backend, "a") == [2]


def test_run_continues_while_old_snapshots_are_deleted(backend: FsspecBackend) -> None:
    second = ids(backend)[1]
    assert count(backend, "aa", lambda: second in ids(backend) and delete_snapshots(backend, second)) == [6, 7]
    assert fsck(backend).problems == ()
    assert count(backend, "a") == [8]

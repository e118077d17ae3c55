"""Requests to a run while it runs: on every runtime."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, OperatorError, SnapshotError, StreamProvider
from malflow.errors import StoreError
from malflow.snapshot import FsspecBackend, snapshots
from tests.conformance.dataflow import SECONDS, Started, count, counting
from tests.kit.backends import kept_states
from tests.kit.growing_file import GrowingFile
from tests.kit.waiting import wait_until


@pytest.fixture
def lines(tmp_path: Path) -> GrowingFile:
    """Make an input that has two lines, and more when a test writes them."""
    file = GrowingFile(tmp_path / "lines")
    file.write("a", "b")
    return file


def has_read(started: Started, lines: int) -> None:
    """Wait until a run has read so many lines, itself or before."""
    wait_until(lambda: started.run.progress.records.get("count", 0) >= lines)


def test_snapshot_holds_what_was_read(any_parallelism: Any, store: FsspecBackend, lines: GrowingFile) -> None:
    with Started(any_parallelism(counting(lines), store)) as started:
        has_read(started, 2)
        made = started.run.snapshot().result(SECONDS)
        lines.write("b", "end")
        started.finish()
        with pytest.raises(SnapshotError, match="the run has ended"):
            started.run.snapshot()
    assert next(iter(snapshots(store))).id == made
    assert kept_states(store, "count", made) == {"a": 1, "b": 1}
    assert kept_states(store, "count") == {"a": 1, "b": 2, "end": 1}


def test_stop_takes_a_last_snapshot(any_parallelism: Any, store: FsspecBackend, lines: GrowingFile) -> None:
    with Started(any_parallelism(counting(lines), store)) as started:
        has_read(started, 2)
        started.run.stop()
        started.finish()
    assert kept_states(store, "count") == {"a": 1, "b": 1}
    lines.write("b", "end")
    any_parallelism(counting(lines), store).execute()
    assert kept_states(store, "count") == {"a": 1, "b": 2, "end": 1}


def test_snapshot_requested_after_a_rescale_is_of_the_new_workers(
    runtime: Any, store: FsspecBackend, lines: GrowingFile
) -> None:
    with Started(runtime(counting(lines), store)) as started:
        has_read(started, 2)
        first, _, second = asked = [started.run.snapshot(), started.run.rescale(3), started.run.snapshot()]
        for answer in asked:
            answer.result(SECONDS)
        lines.write("end")
        started.finish()
    workers = {snapshot.id: snapshot.parallelism for snapshot in snapshots(store)}
    assert first.result() <= second.result()
    assert workers[second.result()] == 3


@pytest.mark.fault("C6")
@pytest.mark.slow
def test_failed_snapshot_is_reported_and_tried_again(runtime: Any, tmp_path: Path, lines: GrowingFile) -> None:
    backend = FsspecBackend(str(tmp_path / "kept"), retry_for=timedelta(milliseconds=1))
    data = tmp_path / "kept" / "default" / "d"
    with Started(runtime(counting(lines), backend)) as started:
        has_read(started, 2)
        data.write_text("no folder")
        with pytest.raises(StoreError):
            started.run.snapshot().result(SECONDS)
        data.unlink()
        data.mkdir()
        wait_until(lambda: started.run.progress.snapshot is not None)
        lines.write("b", "end")
        started.finish()
    assert kept_states(backend, "count") == {"a": 1, "b": 2, "end": 1}


def test_snapshot_needs_persistence(runtime: Any, lines: GrowingFile) -> None:
    with Started(runtime(counting(lines))) as started:
        has_read(started, 2)
        with pytest.raises(GraphError, match="pass persistence="):
            started.run.snapshot()
        for workers in (0, 1.5, True):
            with pytest.raises(GraphError, match="parallelism"):
                started.run.rescale(workers)


@pytest.mark.fault("H3")
def test_requests_are_answered_whatever_ends_the_run(runtime: Any, store: FsspecBackend, lines: GrowingFile) -> None:
    def nowhere(_key: Any, workers: Sequence[int]) -> int:
        if len(workers) > 2:
            raise ValueError("too many")
        return workers[0]

    def build_dataflow(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("items", lines).key_distribute("item", lambda msg: msg.value, nowhere)
        keyed.stateful_map("count", count, int)

    with Started(runtime(build_dataflow, store)) as started:
        has_read(started, 2)
        asked = [started.run.rescale(3), started.run.rescale(4), started.run.snapshot()]
        with pytest.raises(OperatorError, match="too many"):
            started.finish()
    with pytest.raises(OperatorError, match="too many"):
        asked[0].result(SECONDS)
    for answer in asked[1:]:
        with pytest.raises(CancelledError):
            answer.result(SECONDS)

"""Programs whose windows or aggregators have changed since the snapshot."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, SnapshotError, agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import END, ScriptedSource
from malflow.windows import Timing, WindowResult, counting, session, sliding, tumbling


class Job:
    """A job that counts in windows, and is stopped after three records of the first one."""

    def __init__(self, folder: Path, windows: Any) -> None:
        self.folder = folder
        self.source = StatefulSource(ScriptedSource([7, 7, 7, END, 7, 7, END, 7]))
        self.run(windows, agg.count())

    def run(self, windows: Any, *aggregators: Any, name: str = "counts", **options: Any) -> list[Any]:
        """Run the job again, and return its results."""
        changes = {key: options.pop(key) for key in ("version", "migrate") if key in options}
        sink: VecSink[Any, Any, Any] = VecSink()

        def build(provider: Any) -> None:
            stream = provider.new_stream().source("source", self.source)
            on_time, late = stream.generate_epochs("epochs", limit_out_of_orderness(0))
            late.sink("late", VecSink())
            keyed = on_time.key_distribute("all", lambda msg: "all")
            keyed.window(windows).aggregate(name, *aggregators, **changes).sink("results", sink)

        backend = FsspecBackend(str(self.folder))
        SingleThreadRuntime(build, backend, **{"at_end": "finish", **options}).execute()
        return list(sink.values)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, tumbling(10))


def test_windows_continue_with_what_they_had(job: Job) -> None:
    assert job.run(tumbling(10), agg.count()) == [WindowResult(0, 10, 5, Timing.END)]


def test_other_windows_are_refused_with_both_sides(job: Job) -> None:
    with pytest.raises(SnapshotError, match=r"is agg.count\(\) in windows of 20, but .* in windows of 10; .*version="):
        job.run(tumbling(20), agg.count())
    with pytest.raises(SnapshotError, match="one every 1, but"):
        job.run(sliding(10, 5), agg.count())


def test_other_aggregators_are_refused_with_both_sides(job: Job) -> None:
    with pytest.raises(SnapshotError, match=r"is agg.count\(\), agg.sum\(\) in .*, but .* it is agg.count\(\) in"):
        job.run(tumbling(10), agg.count(), agg.sum())


def test_accumulators_are_migrated(job: Job) -> None:
    results = job.run(
        tumbling(10), agg.count(), agg.sum(), version=2, migrate=lambda count, _version: [count, 7 * count]
    )
    assert results == [WindowResult(0, 10, (5, 35), Timing.END)]


def test_other_windows_of_a_new_version_start_empty(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "malflow.snapshot"):
        assert job.run(tumbling(20), agg.count(), version=2) == [WindowResult(0, 20, 2, Timing.END)]
    assert "starts without the 1 accumulators of open windows" in caplog.text


def test_renamed_windows_keep_their_hidden_state(job: Job) -> None:
    results = job.run(tumbling(10), agg.count(), name="renamed", renamed={"counts": "renamed"})
    assert results == [WindowResult(0, 10, 5, Timing.END)]


def test_dropped_windows_drop_their_hidden_state(job: Job) -> None:
    with pytest.raises(SnapshotError, match="allow_dropped_state=\\['counts'\\]"):
        job.run(tumbling(10), agg.count(), name="other")
    results = job.run(tumbling(10), agg.count(), name="other", allow_dropped_state=["counts"])
    assert results == [WindowResult(0, 10, 2, Timing.END)]


def test_sessions_continue_with_what_they_had(tmp_path: Path) -> None:
    assert Job(tmp_path, session(3)).run(session(3), agg.count()) == [WindowResult(0, 7, 5, Timing.END)]


def test_another_gap_is_refused_with_both_sides(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"in sessions with a gap of 4, but .* in sessions with a gap of 3"):
        Job(tmp_path, session(3)).run(session(4), agg.count())


def test_another_gap_of_a_new_version_starts_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "malflow.snapshot"):
        assert Job(tmp_path, session(3)).run(session(4), agg.count(), version=2) == [WindowResult(3, 8, 2, Timing.END)]
    assert "starts without the 1 accumulators of open windows" in caplog.text


def test_accumulators_of_sessions_are_migrated(tmp_path: Path) -> None:
    aggregators = agg.count(), agg.sum()
    results = Job(tmp_path, session(3)).run(
        session(3), *aggregators, version=2, migrate=lambda count, _version: [count, 7 * count]
    )
    assert results == [WindowResult(0, 7, (5, 35), Timing.END)]


def test_windows_of_records_continue_with_what_they_had(tmp_path: Path) -> None:
    assert Job(tmp_path, counting(5)).run(counting(5), agg.count()) == [WindowResult(0, 5, 5, Timing.FINAL)]


def test_other_numbers_of_records_are_refused_with_both_sides(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"in windows of 5 records, one every 2, but .* in windows of 5 records;"):
        Job(tmp_path, counting(5)).run(counting(5, 2), agg.count())


def test_accumulators_of_windows_of_records_are_migrated(tmp_path: Path) -> None:
    results = Job(tmp_path, counting(5, 2)).run(
        counting(5, 2), agg.count(), agg.sum(), version=2, migrate=lambda count, _version: [count, 7 * count]
    )
    assert results[0] == WindowResult(0, 5, (5, 35), Timing.FINAL)

"""Programs whose joins have changed since the snapshot."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, SnapshotError
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import END, ScriptedSource, Timed
from malflow.windows import session, sliding, tumbling
from tests.joins.running import Add, asof, interval, joined_flow


class Job:
    """A job that is stopped after a left record at 0, and continues with a right one at 1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = StatefulSource(ScriptedSource([Timed((0, "a", "left"), 0), END, Timed((1, "a", "right"), 1)]))

    def run(self, add: Add, **options: Any) -> list[Any]:
        """Run the job again, and return its results."""
        sink: VecSink[Any, Any, Any] = VecSink()
        build = joined_flow(self.source, 5, add, sink)
        backend = FsspecBackend(str(self.folder))
        SingleThreadRuntime(build, backend, **{"at_end": "finish", **options}).execute()
        return list(sink.values)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_an_interval_join_continues_with_its_records(job: Job) -> None:
    job.run(interval(1, 2))
    assert job.run(interval(1, 2)) == [("left", "right")]


def test_other_bounds_are_refused_with_both_sides(job: Job) -> None:
    job.run(interval(1, 2))
    with pytest.raises(
        SnapshotError, match=r"is an inner join from 1 before to 3 after, but .* 1 before to 2 after; .*"
    ):
        job.run(interval(1, 3))
    with pytest.raises(SnapshotError, match=r"is a left join from .*, but .* it is an inner join from"):
        job.run(interval(1, 2, how="left"))


def test_other_bounds_of_a_new_version_start_empty(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    job.run(interval(1, 2))
    with caplog.at_level(logging.WARNING, "malflow.snapshot"):
        assert job.run(interval(1, 3, version=2)) == []
    assert "starts without the 1 states" in caplog.text


def test_values_of_waiting_records_are_migrated(job: Job) -> None:
    job.run(interval(1, 2))
    add = interval(1, 2, version=2, migrate=lambda value, version: f"{value} of version {version}")
    assert job.run(add) == [("left of version 1", "right")]


def asof_job(folder: Path) -> Job:
    job = Job(folder)
    job.source = StatefulSource(ScriptedSource([Timed((1, "a", "right"), 0), END, Timed((0, "a", "left"), 1)]))
    return job


def test_an_asof_join_continues_with_its_records(tmp_path: Path) -> None:
    job = asof_job(tmp_path)
    job.run(asof())
    assert job.run(asof()) == [("left", "right")]


def test_another_tolerance_is_refused_with_both_sides(tmp_path: Path) -> None:
    job = asof_job(tmp_path)
    job.run(asof())
    with pytest.raises(SnapshotError, match=r"is a left as-of join with a tolerance of 5, but .* a left as-of join;"):
        job.run(asof(5))
    assert job.run(asof(5, version=2)) == [("left", None)]


def grouped(windows: Any, **options: Any) -> Add:
    def add(left: Any, right: Any) -> Any:
        return left.window(windows).cogroup("join", right, **options).map("value", lambda it: it.value)

    return add


@pytest.mark.parametrize("windows", [tumbling(10), sliding(10, 20), session(5)])
def test_a_cogroup_continues_with_its_records(job: Job, windows: Any) -> None:
    job.run(grouped(windows))
    add = grouped(windows, version=2, migrate=lambda value, version: f"{value} of version {version}")
    assert job.run(add) == [(["left of version 1"], ["right"])]


def test_other_windows_of_a_cogroup_are_refused(job: Job) -> None:
    job.run(grouped(tumbling(10)))
    with pytest.raises(SnapshotError, match=r"is groups of 2 streams in windows of 20, but .* in windows of 10;"):
        job.run(grouped(tumbling(20)))

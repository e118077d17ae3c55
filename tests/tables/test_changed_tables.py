"""Programs whose tables have changed since the snapshot."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, SnapshotError, agg
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, read_state
from malflow.sources import StatefulSource
from malflow.testing import END, ScriptedSource
from tests.tables.running import flow_of, script_of

FIRST = [(1, "a", 0, 1), (1, "b", 1, 2), (1, "c", 2, 3), (1, "c", 3, None)]
SECOND = [(0, "a", 10, "record"), (1, "b", 20, 2), (1, "b", 21, 5), (0, "b", 30, "record")]
THIRD = [(1, "x", 27, 7), (1, "x", 28, 8)]


def pair(value: Any, row: Any) -> Any:
    return value, row


class Job:
    """A job that is stopped after three rows, of which one is deleted, and then has two records and a change."""

    def __init__(self, folder: Path) -> None:
        self.backend = FsspecBackend(str(folder))
        self.source = StatefulSource(
            ScriptedSource([*script_of(FIRST), END, *script_of(SECOND), END, *script_of(THIRD)])
        )

    def run(self, add: Any, **options: Any) -> list[Any]:
        """Run the job again, and return its results."""
        sink: VecSink[Any, Any, Any] = VecSink()
        build = flow_of(self.source, add, sink, bound=0)
        SingleThreadRuntime(build, self.backend, **{"at_end": "keep", **options}).execute()
        return list(sink.values)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def changes(_left: Any, right: Any) -> Any:
    return right.to_table("table").changes().map("plain", tuple)


def by_arrival(left: Any, right: Any) -> Any:
    return left.join_table("join", right.to_table("table"), pair, at="arrival")


def test_rows_are_kept_and_not_sent_again(job: Job) -> None:
    assert job.run(changes) == [(None, 1), (None, 2), (None, 3), (3, None)]
    assert dict(read_state(job.backend, "table")) == {"a": 1, "b": 2}
    assert job.run(changes) == [(2, 5)]
    assert dict(read_state(job.backend, "table")) == {"a": 1, "b": 5}


@pytest.mark.fault("L6")
def test_a_consumer_that_is_added_later_is_warned_of(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    job.run(lambda _, right: right.to_table("table").changes())
    with caplog.at_level(logging.WARNING):
        assert job.run(by_arrival) == [("record", None), ("record", 5)]
    (said,) = [it.getMessage() for it in caplog.records if "is new" in it.getMessage()]
    assert said.startswith("operator 'join' is new, and starts without the 2 rows that table 'table' has in snapshot ")
    assert "read_state(backend, 'table') returns them" in said


def grouped(_left: Any, right: Any) -> Any:
    table = right.to_table("table")
    groups = table.filter("small", lambda row: row < 9).grouped("group", lambda row: row % 2)
    return groups.aggregate("group count", agg.count())


def test_a_consumer_of_a_derived_table_is_warned_of(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    job.run(changes)
    with caplog.at_level(logging.WARNING):
        job.run(grouped)
    assert "operator 'group count' is new, and starts without the 2 rows that table 'table' has in" in caplog.text


def test_consumers_that_were_there_are_not_warned_of(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        job.run(by_arrival)
        assert job.run(by_arrival) == [("record", 1), ("record", 5)]
    assert caplog.text == ""


def test_rows_are_migrated(job: Job) -> None:
    job.run(changes)

    def migrated(_left: Any, right: Any) -> Any:
        table = right.map("ten", lambda row: row and row * 10).to_table(
            "table", version=2, migrate=lambda row, version: None if row == 1 else row * 10
        )
        return table.changes().map("plain", tuple)

    assert job.run(migrated) == [(20, 50)]
    assert dict(read_state(job.backend, "table")) == {"b": 50}


def test_an_added_ttl_counts_from_the_first_epoch_for_present_rows(job: Job) -> None:
    job.run(changes)

    def expiring(_left: Any, right: Any) -> Any:
        return right.to_table("table", ttl=7).changes().map("plain", tuple)

    assert job.run(expiring) == [(2, 5)]  # at 20, row a gets until 27, and no epoch of the rows is beyond 21
    assert job.run(expiring) == [(None, 7), (1, None), (7, 8), (5, None)]


def test_a_join_by_arrival_is_not_a_table(job: Job) -> None:
    job.run(lambda _, right: right.to_table("join").changes())
    with pytest.raises(SnapshotError, match=r"'join' is rows joined by arrival, but in snapshot \d+ it is a table"):
        job.run(lambda left, right: left.join_table("join", right, pair, at="arrival"))


def test_rows_joined_in_time_continue_and_migrate(job: Job) -> None:
    def in_time(left: Any, right: Any, **options: Any) -> Any:
        return left.join_table("join", right.to_table("table"), pair, **options)

    job.run(in_time)
    found = job.run(lambda left, right: in_time(left, right, version=2, migrate=lambda row, version: row * 100))
    assert found == [("record", 100)]  # that of time 30 waits for rows


def test_joined_tables_continue(job: Job) -> None:
    def both(left: Any, right: Any) -> Any:
        return left.to_table("records").join("both", right.to_table("rows"), pair).rows()

    assert job.run(both) == []
    assert job.run(both)[-1] == ("record", 5)
    assert dict(read_state(job.backend, "both"))[0, "a"] == "record"

"""Notebooks show runs, their progress and their time as tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from malflow import SingleThreadRuntime, StreamProvider, TimeRow, TimeTable
from malflow.drawing.html_tables import table
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

pytestmark = pytest.mark.slow


def flow(provider: StreamProvider) -> None:
    provider.new_stream().source("numbers", SingleIteratorSource(range(1_200))).sink("out", VecSink())


def test_a_handle_shows_its_dataflow_and_progress() -> None:
    handle = SingleThreadRuntime(flow, parallelism=2).start()
    handle.await_termination()
    shown = handle._repr_mimebundle_()
    assert shown["text/plain"].splitlines()[-1] == f"ended, tick {handle.progress.tick}, parallelism 2"
    assert "│ numbers " in shown["text/plain"]
    assert "<svg " in shown["text/html"]
    assert "<p>ended</p><table>" in shown["text/html"]


def test_progress_is_a_table_of_the_operators() -> None:
    runtime = SingleThreadRuntime(flow)
    runtime.execute()
    shown = runtime.progress._repr_mimebundle_()
    assert shown["text/plain"] == repr(runtime.progress)
    for name in ("numbers", "out"):
        assert f"<tr><td>{name}</td><td>1,200</td><td></td><td></td><td></td></tr>" in shown["text/html"]


def test_a_time_table_is_a_table_of_those_that_wait() -> None:
    row = TimeRow("sums", 0, "windows", 3, 10, 20, "time", "numbers", "a.txt", 10, timedelta(minutes=9))
    shown = TimeTable(datetime.now(UTC), (row,), {"time": 2}, {"time": 5})._repr_mimebundle_()
    cells = ["sums", "3 windows", "10", "20", "numbers", "&#39;a.txt&#39;", "540 s", "time"]
    assert "".join(f"<td>{cell}</td>" for cell in cells) in shown["text/html"]
    assert "<caption>late so far: 2 records at &#39;time&#39;, by at most 5</caption>" in shown["text/html"]
    assert "operator 'sums' has 3 windows open" in shown["text/plain"]


def test_truth_values_are_words_and_nothing_is_empty() -> None:
    assert "<tr><td>True</td><td></td><td>-1,000</td></tr>" in table(["a", "b", "c"], [[True, None, -1000]])

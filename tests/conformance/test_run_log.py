"""The log of a run: the same texts on every runtime, built from its events."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from malflow import StreamProvider
from malflow.events import RunFinished, RunStarted
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from malflow.testing import END, ScriptedSource
from tests.conformance.dataflow import count, counting
from tests.conformance.test_events import Asks, Heard, slow_sums

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


def lines_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    ours = [it for it in caplog.records if it.name in ("malflow.runtime", "malflow.snapshot")]
    assert all(it.event is not None for it in ours)  # type: ignore[attr-defined] # malflow's own
    return [
        (it.levelname, re.sub(TIME, "TIME", re.sub(r"(snapshot|tick) \d+", r"\1 N", it.getMessage()))) for it in ours
    ]


def test_a_run_and_the_next_one_are_logged(
    runtime: Any, store: FsspecBackend, caplog: pytest.LogCaptureFixture
) -> None:
    source, heard = ScriptedSource(["a", "b", "a", END, "c"]), Heard()
    with caplog.at_level(logging.INFO, "malflow"):
        runtime(counting(source), store).execute()
        first = lines_of(caplog)
        caplog.clear()
        runtime(counting(source), store, listeners=[heard]).execute()
    rest = [
        ("INFO", "job 'default' has snapshot N, of tick N"),
        ("INFO", "the input has ended after tick N; the run is suspended"),
        ("INFO", "job 'default' has ended after tick N, with snapshot N"),
    ]
    assert first == [("INFO", "job 'default' starts without state, with 1 worker"), *rest]
    resumes = "job 'default' resumes from snapshot N of TIME, tick N, with 1 worker, 2 keys of operator 'count'"
    assert lines_of(caplog) == [("INFO", resumes), *rest]
    began, ended = heard.events[0], heard.events[-1]
    assert isinstance(began, RunStarted)
    assert isinstance(ended, RunFinished)
    assert (began.keys, began.restarts, began.parallelism) == ({"count": 2}, 0, 1)
    assert None is not began.snapshot != ended.snapshot


def test_a_rescale_is_logged(runtime: Any, caplog: pytest.LogCaptureFixture) -> None:
    asks = Asks(("rescale", (2,)))
    with caplog.at_level(logging.INFO, "malflow"):
        asks.runtime = runtime(slow_sums, listeners=[asks])
        asks.runtime.execute()
    assert ("INFO", "rescaled from 1 worker to 2") in lines_of(caplog)


def test_a_run_says_nothing_below_warnings(
    runtime: Any, store: FsspecBackend, caplog: pytest.LogCaptureFixture
) -> None:
    runtime(counting(ScriptedSource(["a", "b"])), store).execute()
    assert not caplog.records


def test_a_source_without_positions_is_told_of_where_it_begins_anew(
    runtime: Any, store: FsspecBackend, caplog: pytest.LogCaptureFixture
) -> None:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource([1, 2, 3]))
        numbers.key_distribute("all", lambda _: "all").stateful_map("count", count, int).sink("out", sink)

    sink: VecSink[Any, int, Any] = VecSink()
    runtime(build, store).execute()
    assert not caplog.text, "the first run has nothing to begin anew"
    runtime(build, store, restore=None).execute()
    assert not caplog.text
    assert sink.values == [1, 2, 3] * 2
    runtime(build, store).execute()
    assert "source 'numbers' has no positions and starts over, but the run resumes from snapshot" in caplog.text
    assert "Pass restore=None" in caplog.text
    assert [it.levelname for it in caplog.records] == ["WARNING"]

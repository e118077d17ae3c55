"""The handle of a run that a listener receives, on every runtime."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, OperatorError, StreamProvider
from malflow.events import Event, Run, RunStarted, TickFinished
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.waiting import wait_until


class Watches:
    """Keeps the handles, and what comes with them and after."""

    def __init__(self, *, asks: bool = False) -> None:
        self.asks = asks
        self.runs: list[Run] = []
        self.heard: list[Any] = []
        self.answer: Future[int] | None = None

    def on_start(self, run: Run, /) -> None:
        """Receive the handle of a run."""
        self.runs.append(run)
        self.heard.append(run.progress.tick)

    def on_event(self, event: Event, /) -> None:
        """Receive an event; ask for a snapshot in the first tick with records."""
        self.heard.append(type(event))
        if isinstance(event, TickFinished) and event.polled and self.asks:
            self.asks, self.answer = False, self.runs[-1].snapshot()


def test_handle_before_the_first_event(runtime: Any, tmp_path: Path) -> None:
    watches = Watches(asks=True)

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource([1, PAUSE, 2, PAUSE, 3]))
        numbers.sink("out", VecSink())

    backend = FsspecBackend(tmp_path)
    made = runtime(build_dataflow, backend, listeners=[watches])
    for run in range(2):
        watches.heard.clear()
        made.execute()
        assert watches.heard[:2] == [0, RunStarted]
        assert len(watches.runs) == run + 1
        assert watches.runs[run].has_ended
        if run == 0:
            assert watches.answer is not None
            assert watches.answer.result(10) >= 1
            assert watches.runs[0].progress.records["numbers"] == 3


def test_handle_of_a_run_that_fails(runtime: Any) -> None:
    watches = Watches()

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource([1, 0]))
        numbers.map("inverse", lambda number: 1 // number).sink("out", VecSink())

    with pytest.raises(OperatorError, match="inverse"):
        runtime(build_dataflow, listeners=[watches]).execute()
    [run] = watches.runs
    assert run.has_ended
    with pytest.raises(OperatorError, match="inverse"):
        run.await_termination(10)  # type: ignore[attr-defined] # it is a RunHandle


def test_stop_by_the_handle_while_execute_waits(runtime: Any) -> None:
    watches, ended = Watches(), []

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource([1, *[PAUSE] * 10_000, 2]))
        numbers.sink("out", VecSink())

    made = runtime(build_dataflow, listeners=[watches])
    thread = threading.Thread(target=lambda: (made.execute(), ended.append(True)))
    thread.start()
    wait_until(lambda: bool(watches.runs) and watches.runs[0].progress.tick > 0)
    watches.runs[0].stop()
    thread.join(60)
    assert ended == [True]
    assert watches.runs[0].has_ended


class Fails:
    """Fails when it receives the handle."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_start(self, run: Run, /) -> None:
        """Fail."""
        run.explain_time()

    def on_event(self, event: Event, /) -> None:
        """Receive an event."""
        self.events.append(event)


def test_listener_that_fails_when_it_receives_the_handle(runtime: Any, caplog: pytest.LogCaptureFixture) -> None:
    fails = Fails()

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", SingleIteratorSource([1, 2])).sink("out", VecSink())

    made = runtime(build_dataflow, listeners=[fails])
    with caplog.at_level(logging.ERROR, "malflow.runtime"):
        made.execute()
    assert made.progress.records["out"] == 2
    assert fails.events == []
    [record] = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], GraphError)

"""Runs in the background of their caller."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from malflow import GraphError, OperatorError, SnapshotError, StreamProvider
from malflow.runtime.handle import RunHandle
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.log import Log

SECONDS = 60.0


def endless(provider: StreamProvider) -> None:
    numbers = provider.new_stream().source("numbers", ScriptedSource([1, 2, 3, *[PAUSE] * 1_000_000]))
    keyed = numbers.key_distribute("parity", lambda msg: msg.value % 2)
    keyed.stateful_map("sum", lambda _, value, state: (state + value, state + value), default=int)


def test_a_started_run_ends_with_its_sources(runtime: Any, log: Log) -> None:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(10)))
        numbers.inspect("look", lambda msg, _: log.append(msg.value)).sink("seen", VecSink())

    handle = runtime(build).start()
    assert isinstance(handle, RunHandle)
    assert handle.await_termination(SECONDS)
    assert handle.has_ended
    assert log == list(range(10))
    assert handle.progress.records == {"numbers": 10, "look": 10, "seen": 10}
    with pytest.raises(SnapshotError, match="the run has ended"):
        handle.rescale(2)


@pytest.mark.slow
def test_a_started_run_serves_requests(runtime: Any, store: FsspecBackend) -> None:
    handle = runtime(endless, store).start()
    try:
        assert not handle.await_termination(0.01)
        snapshot = handle.snapshot().result(SECONDS)
        handle.rescale(2).result(SECONDS)
        assert handle.snapshot().result(SECONDS) > snapshot
        assert handle.progress.parallelism == 2
        assert handle.progress.records["numbers"] == 3
        assert not handle.is_stopping
    finally:
        handle.stop()
        assert handle.is_stopping
        assert handle.await_termination(SECONDS)
    assert handle.progress.snapshot is not None


def test_a_started_run_raises_its_error_where_it_is_awaited(runtime: Any) -> None:
    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", SingleIteratorSource([1, 0])).map("invert", lambda value: 1 / value)

    handle = runtime(build).start()
    for _ in range(2):
        with pytest.raises(OperatorError, match="operator 'invert' failed"):
            handle.await_termination(SECONDS)


def test_a_malformed_dataflow_is_refused_at_the_start(runtime: Any) -> None:
    made = runtime(lambda provider: provider.new_stream().map("nothing", abs))
    for _ in range(2):
        with pytest.raises(GraphError):
            made.start()


@pytest.mark.slow
def test_a_runtime_has_one_run_at_a_time(runtime: Any) -> None:
    made = runtime(endless)
    first = made.start()
    try:
        for begin in (made.start, made.execute):
            with pytest.raises(GraphError, match="this runtime is already running a dataflow"):
                begin()
    finally:
        first.stop()
        first.await_termination(SECONDS)
    second = made.start()
    first.stop()
    assert not second.is_stopping, "it is another run"
    assert not second.await_termination(0.01)
    made.stop()
    assert second.await_termination(SECONDS)


def test_run_without_persistence_takes_no_snapshot(runtime: Any) -> None:
    handle = runtime(endless).start()
    try:
        with pytest.raises(GraphError, match="a snapshot needs a persistence"):
            handle.snapshot()
        with pytest.raises(GraphError, match="parallelism must be a whole number, at least 1"):
            handle.rescale(0)
    finally:
        handle.stop()
        handle.await_termination(SECONDS)


def test_a_run_can_be_started_from_any_thread(runtime: Any) -> None:
    handles: list[RunHandle] = []
    thread = threading.Thread(target=lambda: handles.append(runtime(endless).start()))
    thread.start()
    thread.join()
    handles[0].stop()
    assert handles[0].await_termination(SECONDS)

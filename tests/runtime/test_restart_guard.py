"""A restart is refused if a source would emit records again that the restored state has."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import SnapshotError, StreamProvider
from malflow.engine.plan import Program
from malflow.runtime.restarts import RestartGuard
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import ScriptedSource
from malflow.testing.trial import built

FAILED = ConnectionError("an executor is lost")


def program() -> Program:
    def build(provider: StreamProvider) -> None:
        scripted: Any = ScriptedSource([1])
        streams = [
            provider.new_stream().source("anew", SingleIteratorSource([1])),
            provider.new_stream().source("resumes", scripted),
        ]
        for number, stream in enumerate(streams):
            stream.sink(f"out {number}", VecSink())

    return built(build)


def test_a_snapshot_with_records_of_a_source_without_positions_is_refused() -> None:
    guard = RestartGuard(program())
    guard.check(None)
    guard.note_failure(None, {"anew": 5, "resumes": 5}, FAILED)
    with pytest.raises(SnapshotError, match=r"source 'anew' has no positions.*snapshot 3 already has some") as caught:
        guard.check(3)
    assert caught.value.__cause__ is FAILED
    assert "an executor is lost" in str(caught.value)


def test_a_restart_with_the_state_of_the_start_is_allowed() -> None:
    guard = RestartGuard(program())
    guard.note_failure(7, {"anew": 5}, FAILED)
    guard.check(7)
    guard.note_failure(7, {"anew": 0}, FAILED)
    with pytest.raises(SnapshotError, match="source 'anew'"):
        guard.check(8)


def test_sources_with_positions_and_those_that_emitted_nothing_may_restart() -> None:
    guard = RestartGuard(program())
    guard.note_failure(None, {"resumes": 5}, FAILED)
    guard.check(3)

"""What a signal does to a run in this process."""

from __future__ import annotations

import os
import signal

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from tests.kit.waiting import wait_until


def test_signal_in_a_long_tick_is_answered_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("malflow.runtime.process_state._PATIENCE", 0.01)

    def slow(value: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: "a second signal ends the run at once" in caplog.text, 60)
        return value

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("n", SingleIteratorSource([1])).map("slow", slow).sink("out", VecSink())

    SingleThreadRuntime(build).execute()

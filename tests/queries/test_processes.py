"""Questions while a worker process dies, and the run continues from its last snapshot."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from malflow import MultiProcessRuntime, RestartPolicy, StreamProvider
from malflow.snapshot import FsspecBackend
from malflow.testing import PAUSE, ScriptedSource
from tests.queries.asking import SECONDS

VALUES = [f"{number % 4}" for number in range(12)]


def dies_once(marker: Path, _key: str, _value: str, so_far: int) -> tuple[int, int]:
    if so_far == 2 and not marker.exists():
        marker.touch()
        os._exit(3)
    return so_far + 1, so_far + 1


@pytest.mark.fault("K11")
@pytest.mark.slow
def test_questions_outlive_a_process(tmp_path: Path) -> None:
    script = [step for value in VALUES for step in (value, *[PAUSE] * 5)] + [PAUSE] * 10_000

    def build(provider: StreamProvider) -> None:
        keyed = (
            provider.new_stream().source("values", ScriptedSource(script)).key_distribute("k", lambda msg: msg.value)
        )
        keyed.stateful_map("count", partial(dies_once, tmp_path / "died"), default=int)

    backend = FsspecBackend(str(tmp_path / "kept"))
    policy = RestartPolicy(backoff=timedelta(milliseconds=10))
    runtime: Any = MultiProcessRuntime(build, backend, parallelism=2, processes=2, restart=policy)
    handle = runtime.start()
    view, asked = handle.state("count"), list[Future[Any]]()
    try:
        while not asked or asked[-1].result(SECONDS) != dict.fromkeys("0123", 3):
            asked += [view.get_many("0123") for _ in range(3)]
            threading.Event().wait(0.002)
    finally:
        handle.stop()
        assert handle.await_termination(SECONDS)
    assert handle.progress.restarts == 1
    for future in asked:
        counts = future.result(0)
        total = sum(counts.values())
        assert counts == {key: VALUES[:total].count(key) for key in VALUES[:total]}, "a state between two ticks"

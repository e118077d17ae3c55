"""Ticks that are far apart: Spark would end processes that are idle for a minute."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import SparkRuntime, StreamProvider
from malflow.runtime.spark import streaming_query as heartbeat
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.spark

FEW = 3
"""Ticks in which all is read."""

SUMS = {0: 12, 1: 18}


def noted(folder: Path, sink: Any) -> Any:
    """Add up a few numbers a tick, and note which processes do it."""

    def add(_key: Any, value: int, total: int) -> tuple[int, int]:
        (folder / str(os.getpid())).touch()
        return total + value, total + value

    def build(provider: StreamProvider) -> None:
        script = {part: list(range(2 * FEW)) for part in "ab"}
        numbers = provider.new_stream().source("numbers", StatefulSource(ScriptedSource(script)))
        numbers.key_distribute("key", lambda msg: msg.value % 2).stateful_map("sum", add, default=int).sink("out", sink)

    return build


def jobs(spark: Any) -> set[int]:
    """Return the jobs of Spark that no query has started, as far as it has not forgotten them."""
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


@pytest.mark.fault("I23")
@pytest.mark.parametrize("seconds", [0.2, 60.0])
def test_executors_have_a_task_now_and_then_while_ticks_rest(
    seconds: float, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "_SECONDS", seconds)
    out, before = VecSink[Any, Any, Any](), jobs(spark)
    rest = timedelta(seconds=1.5 if seconds < 1 else 0.1)
    runtime = SparkRuntime(noted(tmp_path, out), parallelism=2, spark=spark, trigger=rest, max_records_per_tick=4)
    runtime.execute()
    assert {it.key: it.value for it in out} == SUMS
    assert (len(jobs(spark) - before) > 4) is (seconds < 1)
    assert not [it for it in threading.enumerate() if it.name == "malflow-heartbeat"]


@pytest.mark.fault("I23")
@pytest.mark.nightly
def test_a_run_whose_idle_processes_end_goes_on_with_its_state(spark: Any, tmp_path: Path) -> None:
    out = VecSink[Any, Any, Any]()
    runtime = SparkRuntime(
        noted(tmp_path, out), parallelism=2, spark=spark, trigger=timedelta(seconds=2), max_records_per_tick=4
    )
    handle = runtime.start()
    wait_until(lambda: handle.progress.tick == 1)
    ended = {int(file.name) for file in tmp_path.iterdir()}
    for pid in ended:
        os.kill(pid, signal.SIGKILL)
    assert handle.await_termination(60)
    assert {it.key: it.value for it in out} == SUMS
    assert {int(file.name) for file in tmp_path.iterdir()} - ended, "others have taken over"


@pytest.mark.fault("I23")
def test_failure_between_ticks_is_left_to_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_SECONDS", 0.01)
    asked = threading.Semaphore(0)

    class Gone:
        @property
        def sparkContext(self) -> Any:  # noqa: N802 - as Spark names it
            asked.release()
            raise ConnectionRefusedError

    beating = heartbeat.Heartbeat(Gone())  # type: ignore[arg-type] # stands for a session
    beating.start()
    assert all(asked.acquire(timeout=60) for _ in range(3)), "it does not give up"
    beating.close()
    assert not beating._thread.is_alive()

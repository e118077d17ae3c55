"""Ticks of Spark with few records: how long they take, and where their tasks run."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Any

from malflow import SparkRuntime, StreamProvider
from malflow.events import TickFinished
from malflow.runtime.spark.session.session import leave_session, make_session, share_interpreter
from malflow.sinks import StatelessSink, VecSink
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource

__all__ = ["measure_places", "measure_query", "measure_tick", "small_cluster"]

_WORKERS = 2
_WARM_UP = 12
_TICKS = 60

_CLUSTER = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.memory": "700m",
    "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path),
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class _Times:
    """Notes when each tick ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_event(self, event: object) -> None:
        """Note the end of a tick."""
        if isinstance(event, TickFinished):
            self.ends.append(time.monotonic())

    @property
    def took(self) -> float:
        """The median from the end of one tick to that of the next, in milliseconds, without the first ones."""
        ends = self.ends[_WARM_UP:]
        return 1e3 * median(later - earlier for earlier, later in pairwise(ends))


def measure_tick(stages: int) -> float:
    """Return the milliseconds of a tick with a record for each worker."""
    session, _ = make_session()
    times = _Times()
    SparkRuntime(
        lambda provider: _sums(provider, stages, _WORKERS, _TICKS + _WARM_UP),
        parallelism=_WORKERS,
        spark=session,
        max_records_per_tick=_WORKERS,
        listeners=[times],
    ).execute()
    leave_session()
    return times.took


def measure_query(stages: int) -> float:
    """Return the milliseconds of a batch of a query that has as many stages and does nothing."""
    session, _ = make_session()
    share_interpreter(session)
    times, over = _Times(), threading.Event()
    rows: Any = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 2 * _WORKERS)
    rows = rows.option("numPartitions", _WORKERS).load()
    rows = rows.selectExpr("CAST(value % 2 AS int) AS worker", "value").mapInArrow(_same, "worker int, value long")
    for _ in range(stages - 1):
        rows = rows.repartitionById(_WORKERS, "worker").mapInArrow(_same, "worker int, value long")

    def after(frame: Any, _batch: int) -> None:
        frame.collect()
        times.ends.append(time.monotonic())
        if len(times.ends) > _TICKS + _WARM_UP:
            over.set()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        query = rows.writeStream.option("checkpointLocation", folder).foreachBatch(after).start()
        over.wait(300)
        query.stop()
    leave_session()
    return times.took


def small_cluster(executors: int) -> Any:
    """Return a session with executors of one core each, as processes of this machine, all of which have started."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the extra has it

    builder: Any = SparkSession.builder.master(f"local-cluster[{executors},1,700]")
    for name, value in _CLUSTER.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    while session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() <= executors:  # noqa: SLF001
        time.sleep(0.1)
    return session


def measure_places(executors: int, workers: int) -> dict[str, float]:
    """Run on executors of one core each; return the share of tasks that stay, and the copies of a state."""
    session = small_cluster(executors)
    stages, times = 3, _Times()
    with tempfile.TemporaryDirectory() as scratch:
        handle = SparkRuntime(
            lambda provider: _sums(provider, stages, workers, _TICKS),
            parallelism=workers,
            spark=session,
            max_records_per_tick=workers,
            scratch=scratch,
            listeners=[times],
        ).start()
        handle.await_termination()
    session.stop()
    tasks = (handle.progress.tick - 1) * stages * workers
    return {"stay": 1 - handle.moves / tasks, "copies": handle.copies, "ms": times.took}


def _sums(provider: StreamProvider, stages: int, parts: int, ticks: int) -> None:
    script = {str(part): list(range(ticks)) for part in range(parts)}
    numbers: Any = provider.new_stream().source("numbers", StatefulSource(ScriptedSource(script)))
    for stage in range(1, stages):
        numbers = numbers.key_distribute(f"key {stage}", _key).stateful_map(f"sum {stage}", _add, default=int)
    numbers.sink("out", StatelessSink(VecSink()))


def _key(message: Any) -> int:
    return int(message.value) % 64


def _add(_key: int, value: int, total: int) -> tuple[int, int]:
    return value, total + value


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    return batches

"""The ticks of an idle dataflow of 24 operators on Spark, compared with another version."""

from __future__ import annotations

import os
import time
from functools import cache
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession
from tables import print_table

from malflow import NoKey, SparkRuntime, StreamProvider
from malflow.events import TickFinished
from malflow.sinks import VecSink
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from operate_parts.versions import ROOT, other_version, serve

__all__ = ["print_idle_tick"]

_OPERATORS = 24
_TICKS = 6
_PAUSE = 0.01


class _Silent(StatefulSourcePartition[Any, Any, int]):
    """Reads nothing, and does not end."""

    def poll(self) -> None:
        return None

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> int:
        return 0


class _Source(StatefulSourceImpl[Any, Any, Any, int]):
    """A source without records."""

    def list_parts(self) -> list[Any]:
        return [NoKey]

    def build_part(self, _part: Any, _state: int | None) -> _Silent:
        return _Silent()


class _Ticks:
    """Keeps the durations of ticks."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_event(self, event: object) -> None:
        if isinstance(event, TickFinished):
            self.seconds.append(event.seconds)


def print_idle_tick(rounds: int, before: Path | None = None) -> None:
    """Print the table; without a version before, this one is measured alone."""
    folders = {"now": ROOT, **({} if before is None else {"before": before})}
    times: dict[str, list[float]] = {}
    with other_version(__file__, ROOT) as now, other_version(__file__, before or ROOT) as other:
        measures = dict(zip(folders, (now, other), strict=False))
        for measure in measures.values():
            measure()  # warm
        for turn in range(rounds):
            for name in list(measures)[:: -1 if turn % 2 else 1]:
                times.setdefault(name, []).append(measures[name]())
    ratio = median(map(truediv, times["now"], times["before"])) if before else 1.0
    print(f"\nms of a tick of an idle dataflow of {_OPERATORS} operators on Spark, medians\n")
    row = [f"{1000 * median(found):,.1f}" for found in times.values()]
    print_table(("operators", *times, "now / before"), [(str(_OPERATORS), *row, f"{ratio:.3f}")])


def _measured() -> float:
    """Return the seconds of an idle tick, the median of some."""

    def build_dataflow(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("silent", StatefulSource(_Source()))
        for number in range((_OPERATORS - 4) // 2):
            stream = stream.map(f"before {number}", _same)
        stream = stream.key_distribute("key", lambda _: 0).stateful_map("state", lambda _, value, held: (value, held))
        for number in range((_OPERATORS - 4) // 2):
            stream = stream.map(f"after {number}", _same)
        stream.sink("out", VecSink())

    ticks = _Ticks()
    handle = SparkRuntime(build_dataflow, parallelism=2, spark=_session(), listeners=[ticks]).start()
    while len(ticks.seconds) < 2 * _TICKS:
        time.sleep(_PAUSE)
    handle.stop()
    handle.await_termination()
    return median(ticks.seconds[_TICKS : 2 * _TICKS])


@cache
def _session() -> SparkSession:
    """Return the session of all measurements of this process."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()


def _same(value: Any) -> Any:
    return value


if __name__ == "__main__":  # a process of one of the versions
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    serve(_measured)

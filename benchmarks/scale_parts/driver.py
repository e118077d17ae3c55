"""The driver's own work between two ticks on Spark, with reports that no task has made."""

from __future__ import annotations

import pickle
import resource
import tempfile
import time
from statistics import median
from typing import Any

from malflow import StreamProvider
from malflow.engine.plan import Program, compile_graph
from malflow.engine.reports import Report
from malflow.engine.sinks import RunSinks
from malflow.graph import Graph
from malflow.runtime.coordinator import Coordinator
from malflow.runtime.requests import RunRequests
from malflow.runtime.spark.changelog import ScratchFolder
from malflow.runtime.spark.host import SparkHost
from malflow.runtime.spark.protocol import StageReport, TickCommand
from malflow.runtime.spark.record_counts import RecordCounts, summed
from malflow.runtime.spark.settings import Settings, SparkOptions
from malflow.runtime.spark.shuffle import Row, RowKind
from malflow.runtime.transport.sink_proxies import driver_sinks
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.sources import SingleIteratorSource

__all__ = ["measure_driver"]

_RECORDS = 10
"""Records from each worker to each other one, in each stage and tick."""

_STAY = 40
"""Ticks after which one worker in ten moves to another process."""


class Forget(StatelessSinkImpl[Any, Any, Any]):
    """A sink on the workers that does nothing."""

    def sink(self, msg: Any) -> None:
        """Do nothing."""


def measure_driver(workers: int, stages: int, ticks: int) -> dict[str, float]:
    """Run the driver for some ticks: a third of the workers are quiet, and some move to another process.

    Half of the sources end in the middle. Workers write full or merged changelog entries where the driver asks for
    them.

    Returns:
        The median of its processor time a tick, in milliseconds; the characters of a command; the bytes of a tick's
        reports; and the peaks of resident memory after a quarter of the ticks and after all, in MB.
    """
    program = _program(stages)
    with tempfile.TemporaryDirectory() as folder:
        scratch = ScratchFolder(folder, {}, "run-0", b"k" * 32, pickle.dumps({}))
        settings = Settings(SparkOptions(scratch=folder, name="driver"), 1, scratch)
        sinks, requests = RunSinks(driver_sinks(program)), RunRequests()
        host = SparkHost(program, workers, None, settings, sinks, requests, 0)  # type: ignore[arg-type] # no snapshots
        coordinator = Coordinator(program, host, sinks, settings.options, requests)
        step: Any = coordinator.begin()
        spent, sizes, texts = [], [], []
        early = 0.0
        for number in range(ticks):
            began = time.process_time()
            command = host.command(step)
            text = command.dumps()
            commanded = time.process_time() - began
            rows = _rows(program, workers, command, number, ticks)
            began = time.process_time()
            reports, seconds = host.take(rows, 0.1)
            step = coordinator.next(reports, seconds)
            spent.append(commanded + time.process_time() - began)
            sizes.append(sum(len(row.blob) for row in rows))
            texts.append(len(text))
            if number == ticks // 4:
                early = _peak()
        coordinator.close(None)
    return {
        "ms": 1_000 * median(spent),
        "characters": median(texts),
        "bytes": median(sizes),
        "early": early,
        "memory": _peak(),
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


def _program(stages: int) -> Program:
    graph = Graph()
    stream: Any = StreamProvider(graph).new_stream().source("numbers", SingleIteratorSource(range(1)))
    for stage in range(1, stages):
        keyed = stream.key_distribute(f"key {stage}", lambda msg: msg.value)
        stream = keyed.stateful_map(f"sum {stage}", lambda key, value, state: (value, state + value), default=int)
    stream.sink("forget", StatelessSink(Forget()))
    return compile_graph(graph)


def _rows(program: Program, workers: int, command: TickCommand, number: int, ticks: int) -> list[Row]:
    rows = []
    names = len(program.counters) + len(program.gauges)
    for stage, of_stage in enumerate(program.stages):
        for worker in range(workers):
            is_quiet = (worker + number) % 3 == 0
            report = Report(worker)
            if stage == 0 and (worker % 2 or 2 * number < ticks):
                report.live, report.polled = ["numbers"], 0 if is_quiet else _RECORDS * workers
                report.emitting = [] if is_quiet else ["numbers"]
            writes = stage > 0 and not is_quiet
            merged = command.merged_after(stage, worker) if writes else None
            told = StageReport(
                command.tick,
                stage,
                report,
                bytes=1_000 if writes else None,
                whole=writes and command.asks_full_entry(stage, worker),
                merged=merged,
                keys={f"sum {stage}": number} if writes else {},
                taken=summed(_counts(of_stage.inputs, worker)),
                sent=summed(_counts(of_stage.outputs, worker)),
                process=f"machine:{(worker + (number // _STAY if worker % 10 == 0 else 0)) % 50}:{worker}",
            )
            rows.append(Row(worker, RowKind.REPORT, 0, worker, pickle.dumps(told, 5), [_RECORDS] * names))
    return rows


def _counts(channels: Any, worker: int) -> Any:
    """Return what a worker sent or received; it is a single number, as if each worker wrote to itself alone."""
    counts = RecordCounts({}, {(channel.number, worker): _RECORDS for channel in channels})
    return counts.sent_by(worker)

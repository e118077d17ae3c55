"""The driver's own work between two ticks on Spark, with reports and snapshots that no task has made."""

from __future__ import annotations

import pickle
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

from malflow import StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program
from malflow.engine.reports import Report
from malflow.engine.sinks import RunSinks
from malflow.errors import StoreError
from malflow.event_time.tick import Tick
from malflow.graph import Graph
from malflow.runtime.coordination.coordinator import Coordinator
from malflow.runtime.requests.answers import SnapshotRequest
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.spark import snapshots
from malflow.runtime.spark.changelog.changelog import ScratchFolder
from malflow.runtime.spark.host import SparkHost
from malflow.runtime.spark.protocol import StageReport, TickCommand
from malflow.runtime.spark.settings import Settings, SparkOptions
from malflow.runtime.spark.sinks import SinkPieces, StoredShare
from malflow.runtime.spark.tasks.records import RecordCounts, Row, RowKind, summed
from malflow.runtime.transport.sink_proxies import driver_sinks
from malflow.sinks import DistributedSinkImpl, SinkOwner
from malflow.snapshot import FsspecBackend
from malflow.snapshot.executors import InlineExecutor
from malflow.snapshot.protocol.manifest import FileEntry
from malflow.sources import SingleIteratorSource

__all__ = ["measure_driver"]

_RECORDS = 10
"""Records from each worker to each other one, in each stage and tick."""

_STAY = 40
"""Ticks after which one worker in ten moves to another process."""


_FILE = bytes(1_000)
"""The content of a data file, which the driver reads only to see that it is there."""

_SNAPSHOT = 10
"""Ticks from one snapshot to the next; one in seven fails."""


class Forget(DistributedSinkImpl[Any, Any, Any]):
    """A sink that the workers write; it counts the shares that are committed."""

    share_bytes = 200_000
    """The pieces of ten ticks of some twenty workers."""

    def __init__(self) -> None:
        self.committed = 0

    def encode(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> Any:
        """Return nothing: no task runs."""

    def open_writer(self, share: Any) -> Any:
        """Return nothing, as above."""

    def fence(self, owner: SinkOwner) -> int:
        """Do nothing."""
        del owner
        return 0

    def commit(self, handles: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Count the shares."""
        self.committed += sum(len(shares) for _, shares in handles)

    def abort(self, keep: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Do nothing."""


class _Jobs:
    """Stands for the jobs that write snapshots: each worker has a file, each share of the sink a name."""

    defaultParallelism = 4  # noqa: N815 - as Spark names it

    def __init__(self) -> None:
        self.snapshots = 0

    def results(self, _context: Any, task: Any, items: Sequence[Any], _tasks: int) -> list[Any]:
        """Return the results of a job, or fail."""
        if isinstance(task, snapshots.MergeTask):
            return [[self._file(task.writer, base=False)]]
        self.snapshots += 1
        if self.snapshots % 7 == 0:
            raise StoreError("the store is down")
        written = task.snapshot
        file = self._file(written.writer, base=written.base)  # tasks write theirs, which the driver does not read
        return [
            f"share {it.number} of {it.transaction}"
            if isinstance(it, StoredShare)
            else ([replace(file, name=file.name.replace(".mfs", f"{it:08x}.mfs")) if it else file], [])
            for it in items
        ]

    def _file(self, writer: Any, *, base: bool) -> FileEntry:
        return FileEntry(writer.write(_FILE), len(_FILE), sha256(_FILE).hexdigest(), 10 * len(_FILE), base)


def measure_driver(workers: int, stages: int, ticks: int) -> dict[str, float]:
    """Run the driver for some ticks: a third of the workers are quiet, and some move to another process.

    Half of the sources end in the middle. Workers write full or merged changelog entries where the driver asks for
    them. Some snapshots fail, and the others commit shares of a sink.

    Returns:
        The median and the mean of its processor time a tick, in milliseconds; the characters of a command; the bytes of
        a tick's reports; the peaks of resident memory after a quarter of the ticks and after all, in MB; and the shares
        that were committed.
    """
    sink, jobs = Forget(), _Jobs()
    program = _program(stages, sink)
    snapshots.results = jobs.results  # type: ignore[assignment] # there is no Spark
    with tempfile.TemporaryDirectory() as folder:
        scratch = ScratchFolder(folder, {}, "run-0", b"k" * 32, pickle.dumps({}))
        backend = FsspecBackend(str(Path(folder, "state")))
        backend._executor = InlineExecutor  # noqa: SLF001 - its time is the driver's
        settings = Settings(SparkOptions(persistence=backend, scratch=folder, name="driver"), 1, scratch)
        pieces: Any = SinkPieces(program, jobs, scratch)  # type: ignore[arg-type] # stands for Spark's context
        sinks, requests = RunSinks(driver_sinks(program), pieces), RunRequests()
        host = SparkHost(program, workers, jobs, settings, sinks, requests, 0, pieces)  # type: ignore[arg-type] # as above
        coordinator = Coordinator(program, host, sinks, settings.options, requests)
        coordinator.restore()
        step: Any = coordinator.begin()
        spent, sizes, texts = [], [], []
        early = 0.0
        for number in range(ticks):
            if number % _SNAPSHOT == _SNAPSHOT - 1:
                requests.mailbox.post(SnapshotRequest())
            began = time.process_time()
            command = host.command(step)
            text = command.dumps()
            commanded = time.process_time() - began
            rows = _rows(program, workers, command, number, ticks)
            began = time.process_time()
            reports, seconds = host.take(rows, 0.1)
            step = coordinator.next(reports, seconds)
            while not isinstance(step, Tick):
                step = coordinator.apply(step)
            spent.append(commanded + time.process_time() - began)
            sizes.append(sum(len(row.blob) for row in rows))
            texts.append(len(text))
            if number == ticks // 4:
                early = _peak()
        coordinator.close(None)
    return {
        "ms": 1_000 * median(spent),
        "mean": 1_000 * sum(spent) / ticks,
        "characters": median(texts),
        "bytes": median(sizes),
        "early": early,
        "memory": _peak(),
        "shares": sink.committed,
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


def _program(stages: int, sink: Forget) -> Program:
    graph = Graph()
    stream: Any = StreamProvider(graph).new_stream().source("numbers", SingleIteratorSource(range(1)))
    for stage in range(1, stages):
        keyed = stream.key_distribute(f"key {stage}", lambda msg: msg.value)
        stream = keyed.stateful_map(f"sum {stage}", lambda key, value, state: (value, state + value), default=int)
    stream.sink("forget", sink)
    return compile_graph(graph)


def _rows(program: Program, workers: int, command: TickCommand, number: int, ticks: int) -> list[Row]:
    rows = []
    names = len(program.counters) + len(program.gauges)
    for stage, of_stage in enumerate(program.stages):
        for worker in range(workers):
            is_quiet = (worker + number) % 3 == 0
            report = Report(worker)
            if stage == 0 and (worker % 2 or 2 * number < ticks):
                report.live, report.polled = {"numbers": 1}, 0 if is_quiet else _RECORDS * workers
                report.emitting = [] if is_quiet else ["numbers"]
            writes = stage > 0 and not is_quiet
            pieces = [(0, f"runs/run-0/sinks/1-{number:012d}-{stage}-{worker}-0123456789abcdef", 1_000)]
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
                sinks=pieces if writes and stage == len(program.stages) - 1 else [],
                process=f"machine:{(worker + (number // _STAY if worker % 10 == 0 else 0)) % 50}:{worker}",
            )
            rows.append(Row(worker, RowKind.REPORT, 0, worker, pickle.dumps(told, 5), [_RECORDS] * names))
    return rows


def _counts(channels: Any, worker: int) -> Any:
    """Return what a worker sent or received; it is a single number, as if each worker wrote to itself alone."""
    counts = RecordCounts({}, {(channel.number, worker): _RECORDS for channel in channels})
    return counts.sent_by(worker)

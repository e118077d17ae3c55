"""The Spark task that runs one stage of one worker on an executor."""

from __future__ import annotations

import gc
import pickle
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from malflow.engine.worker import Inputs, Worker
from malflow.errors import MalflowError, OperatorError, RunFailed, release_all
from malflow.operators.epochs.lateness import merge_lateness
from malflow.operators.hosting.source import Source
from malflow.operators.waiting import OperatorTime
from malflow.records.batch import BATCH_SIZE, Batch
from malflow.runtime.garbage import rarer_collections
from malflow.runtime.spark.changelog import NEVER, ChangelogEntry
from malflow.runtime.spark.driver_sinks import SinkProxy, collected
from malflow.runtime.spark.error_transport import dumps_error
from malflow.runtime.spark.pacing import MOST_BYTES
from malflow.runtime.spark.pickling import NotPicklable
from malflow.runtime.spark.position_memory import PositionMemory
from malflow.runtime.spark.protocol import COMMAND, RunSpec, StageReport, TickCommand, names_of_counts
from malflow.runtime.spark.shuffle import (
    Chunk,
    Row,
    RowKind,
    ShuffleBuffer,
    chunks_of,
    read_rows,
    write_rows,
)
from malflow.runtime.spark.stage_changes import deltas_of, packed
from malflow.runtime.spark.stage_output import OutputLog, read_output
from malflow.runtime.spark.worker_cache import LIVE_WORKERS, SHARED, LiveWorker, load, process_name
from malflow.snapshot.delta_check import Recount
from malflow.states.keyed import Delta, StateDelta

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StageTask"]

_Arrived = Mapping[tuple[int, int], Sequence[Chunk]]
"""The input of a stage, by channel and the worker that sent it."""


class StageTask:
    """A stage of a program as a function that Spark calls with the rows of one worker."""

    def __init__(self, spec: RunSpec, stage: int) -> None:
        self._spec = spec
        self._stage = stage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the stage for one tick."""
        return write_rows(_run(self._spec, self._stage, batches))


def _run(spec: RunSpec, stage: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    from pyspark import TaskContext  # noqa: PLC0415 - only the extra has it

    context = TaskContext.get()
    command = TickCommand.loads(context.getLocalProperty(COMMAND))
    worker = context.partitionId()
    rows = list(_drained(batches)) if stage == 0 else list(read_rows(batches))
    try:
        with rarer_collections():
            attempt = StageAttempt(spec, stage, worker, command)
            _leave_modules_out()
            yield from attempt.take(rows)
    except MalflowError as error:
        lasts = isinstance(error, NotPicklable) or not isinstance(error, OperatorError)
        if not lasts and context.attemptNumber() + 1 < spec.attempts:
            raise
        yield Row(worker, RowKind.FAILURE, 0, worker, dumps_error(error))


@cache
def _leave_modules_out() -> None:
    """Leave what has been imported by now out of later collections of garbage.

    Spark collects after each task. That would walk all objects of pandas, Arrow and the program's modules, and take
    longer than the task of a small tick.
    """
    gc.collect()
    gc.freeze()


def _drained(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """Consume the rows that trigger a tick, which carry no data."""
    for _ in batches:
        pass
    return iter(())


class StageAttempt:
    """One attempt at a tick of one stage of one worker.

    The first attempt that writes the changelog entry counts, with all that it sends: the output is stored with the
    entry. Any other attempt sends that again and calls no user code, so that nobody receives what the state does not
    hold. Sinks on the workers are flushed before the entry is written, so that what counts has reached them.
    """

    def __init__(self, spec: RunSpec, stage: int, worker: int, command: TickCommand) -> None:
        self._spec = spec
        self._stage = stage
        self._worker = worker
        self._command = command
        self._tick = command.as_tick()
        self._program, self._parts, self._discovered, self._changelog = load(spec, command)
        self._last = command.last[stage][worker]
        self._counts: Counter[str] = Counter()
        self._lateness: dict[str, Any] = {}
        self._taken: dict[tuple[int, int], int] = {}
        self._sent: dict[tuple[int, int], int] = {}
        self._buffers: dict[int, list[ShuffleBuffer]] = {}
        self._may_come = False
        self._times: Mapping[int, OperatorTime] = {}
        self._recount: Recount | None = None
        self._memory = PositionMemory()
        self._unconfirmed: Sequence[bytes] = ()
        self._name = (spec.scratch.run, spec.generation, stage, worker)

    def take(self, rows: list[Row]) -> Iterator[Row]:
        """Run the stage, append its changes to the changelog, and yield its output rows."""
        own = {channel.number for channel in self._program.stages[self._stage].inputs}
        blobs: dict[tuple[int, int], list[bytes]] = {}
        passing: list[Row] = []
        for row in rows:
            if row.kind == RowKind.CHANNEL and row.number in own:
                blobs.setdefault((row.number, row.sender), []).append(row.blob)
            else:
                passing.append(row)
        yield from passing
        del rows, passing
        output = self._stored() or self._completed(blobs) or self._stored()
        if output is None:
            raise RunFailed(
                f"what stage {self._stage} of worker {self._worker} sent is missing from the scratch folder"
            )
        yield from output

    def _stored(self) -> Iterable[Row] | None:
        """Return the output of an earlier attempt, None if none has written its changelog entry."""
        stored = self._changelog.output(self._stage, self._worker, self._command.tick)
        return None if stored is None else map(self._signed, read_output(self._changelog, stored))

    def _signed(self, row: Row) -> Row:
        """Return the row; a report in the last stage with the name of this process."""
        if row.kind != RowKind.REPORT or not self._is_last:
            return row
        return row._replace(blob=pickle.dumps(replace(pickle.loads(row.blob), process=process_name()), 5))  # noqa: S301 - of this run

    @property
    def _is_last(self) -> bool:
        return self._stage == len(self._program.stages) - 1

    def _completed(self, blobs: dict[tuple[int, int], list[bytes]]) -> Iterable[Row] | None:
        """Run the tick; return its output, None if another attempt has written the changelog entry meanwhile."""
        arrived: dict[tuple[int, int], list[Chunk]] = {}
        for channel, sender in [*blobs]:
            arrived[channel, sender] = chunks = chunks_of(blobs.pop((channel, sender)))
            self._taken[channel, sender] = sum(chunk.records for chunk in chunks)
        worker = self._current_worker()
        try:
            return self._do(worker, arrived)
        except BaseException as error:
            release_all((worker.close,), error)
            raise

    def _do(self, worker: Worker, arrived: _Arrived) -> Iterable[Row] | None:
        for _ in collected(worker.sinks):
            pass  # records left by a failed attempt
        self._times = _times_of(worker) if self._command.explains else {}
        self._buffers = {
            channel.number: [ShuffleBuffer(channel.name, debug=self._spec.debug) for _ in range(self._spec.parallelism)]
            for channel in worker.stage.outputs
        }
        polls: list[dict[str, dict[Any, int]]] = []
        if self._stage == 0:
            self._confirm(worker)
            self._poll(worker, polls)
        else:
            self._process(worker, arrived)
        worker.flush()
        output, report = self._append_changes(worker, polls)
        if output is None:
            worker.close()  # its state differs from the entry that counts
            return None
        last = self._last if report.bytes is None else self._command.tick
        LIVE_WORKERS[self._name] = LiveWorker(worker, self._command.tick, last, self._recount, self._memory)
        return output

    def _confirm(self, worker: Worker) -> None:
        """Confirm the positions of the newest durable snapshot to the readers."""
        command = self._command
        sources = [source for source in worker.sources if source.confirms]
        if sources:
            self._memory.note(sources, self._last, command.tick, command.snapshots)
            errors = self._memory.confirm(sources, command.durable)
            self._unconfirmed = [dumps_error(error) for error in errors if isinstance(error, MalflowError)]

    def _process(self, worker: Worker, arrived: _Arrived) -> None:
        """Process the input chunk by chunk, unpacking one at a time, if that gives the same result."""
        chunks = [(channel, sender, chunk) for (channel, sender), them in sorted(arrived.items()) for chunk in them]
        timed = any(chunk.timed for _, _, chunk in chunks)
        if not chunks or timed or self._command.final or not worker.takes_pieces:
            self._run(worker, self._input(worker, chunks))
            return
        for chunk in chunks:
            self._run(worker, self._input(worker, [chunk]))

    def _input(self, worker: Worker, chunks: Iterable[tuple[int, int, Chunk]]) -> Inputs:
        inputs: dict[int, list[list[Batch]]] = {
            channel.number: [[] for _ in range(self._spec.parallelism)] for channel in worker.stage.inputs
        }
        for channel, sender, chunk in chunks:
            inputs[channel][sender].append(chunk.batch(self._program.channels[channel].name))
        return inputs

    def _run(self, worker: Worker, inputs: Inputs) -> None:
        outputs = worker.run(inputs, self._tick)
        self._counts.update(worker.counts)
        self._counts.update(worker.gauges)
        merge_lateness(self._lateness, worker.lateness)
        for channel, by_target in outputs.items():
            for buffer, batches in zip(self._buffers[channel], by_target, strict=True):
                buffer.add(batches)

    def _current_worker(self) -> Worker:
        """Return the worker with its state after the previous tick: cached, caught up, or rebuilt."""
        held = LIVE_WORKERS.pop(self._name, None)  # so that no later attempt finds it in a partial state
        if held is not None and held.tick < self._command.tick and held.last == self._last:
            self._recount, self._memory = held.recount, held.memory
            return held.worker
        if held is not None and (missed := self._missed_entries(held)):
            self._memory = held.memory
            self._begin_to_recount(self._caught_up(held.worker, missed, held.last))
            return held.worker
        worker = Worker(
            self._program,
            self._stage,
            self._worker,
            parallelism=self._spec.parallelism,
            parts=self._parts,
            tracked=True,
            debug=self._spec.debug,
            pickle_reader=_pickle_reader,
        )
        if self._discovered:
            worker.set_parts(self._parts, self._discovered)
        SHARED.setdefault(self._spec.scratch.run, {}).update((id(it.resource), it) for it in worker.shared)
        worker = self._caught_up(worker, self._changelog.since(self._stage, self._worker, self._last, NEVER), NEVER)
        self._begin_to_recount(worker)
        return worker

    def _caught_up(self, worker: Worker, changes: Iterable[ChangelogEntry], since: int) -> Worker:
        """Apply changelog entries to a worker, and open its readers at the positions in them.

        Args:
            worker: the worker.
            changes: the entries that it has not applied.
            since: the tick of the last one that it has; `NEVER` if it has none.
        """
        try:
            for change in changes:
                if worker.sources and change.before == since > NEVER:
                    self._memory.note(worker.sources, since, change.tick, self._command.snapshots)
                worker.apply(change.deltas)
                worker.finish(change.finished)
                since = change.tick
            worker.open()
        except BaseException as error:
            release_all((worker.close,), error)
            raise
        return worker

    def _missed_entries(self, held: LiveWorker) -> Sequence[ChangelogEntry]:
        """Return the entries that a cached worker has missed; if it can't catch up, close it and return none."""
        try:
            if held.tick < self._command.tick and held.last < self._last:
                held.worker.park()
                changes = self._changelog.since(self._stage, self._worker, self._last, held.last)
                if changes[0].whole or changes[0].before == held.last:  # otherwise its state was discarded
                    return changes
        except BaseException as error:
            release_all((held.worker.close,), error)
            raise
        held.worker.close()
        return ()

    def _has_parts(self, source: Source) -> bool:
        """Whether a source may have records here, judged only by facts that all attempts share."""
        name = source.context.operator_name
        return bool(self._parts[name][self._worker]) and name not in self._command.ended

    def _poll(self, worker: Worker, polls: list[Any]) -> None:
        """Poll while there is input, up to the limits."""
        self._may_come = self._command.polls and any(self._has_parts(source) for source in worker.sources)
        for operator in worker.operators:
            operator.reset_pacing()
        deadline = time.monotonic() + self._spec.poll_seconds
        limits = [most for most in (self._spec.most, self._command.most) if most is not None]
        left = min(limits, default=None)
        while True:
            for source in worker.sources:
                source.most = BATCH_SIZE if left is None else max(1, left // len(worker.sources))
            polled = self._polled(worker, polls)
            if self._command.final or not polled or time.monotonic() >= deadline:
                return
            if left is not None and (left := left - polled) <= 0:
                return
            if self._bytes(worker) >= MOST_BYTES:
                return
            growth = worker.largest / max(source.polled for source in worker.sources)
            for operator in worker.operators:
                operator.limit_batch(growth)

    def _bytes(self, worker: Worker) -> float:
        """Return about how many bytes of records the tick sends, as far as they are packed."""
        size = sum(buffer.bytes for by_target in self._buffers.values() for buffer in by_target)
        return size + sum(sink.resource.bytes for sink in worker.sinks if isinstance(sink.resource, SinkProxy))

    def _polled(self, worker: Worker, polls: list[Any]) -> int:
        self._run(worker, {})
        polls.append({source.context.operator_name: dict(source.polled_by_part) for source in worker.sources})
        return sum(source.polled for source in worker.sources)

    def _append_changes(self, worker: Worker, polls: list[Any]) -> tuple[Iterable[Row] | None, StageReport]:
        """Append the tick's changes to the changelog, with its output.

        Returns:
            The output, None if another attempt has written its entry meanwhile; and the report.
        """
        report = self._report(worker, polls)
        change = self._change(worker)
        written = packed(change)
        if change.deltas or change.finished:
            keys = {name: len(held) for name, held in worker.states().items() if name in change.deltas}
            report = replace(report, bytes=written.size, whole=change.whole, keys=keys)
        output = OutputLog(self._changelog, self._stage, self._worker, self._command.tick)
        output.add(self._records(worker))
        # without an entry, another attempt does the same, or its report tells that it has not
        is_noted = bool(report.bytes is not None or report.report.polled or output.rows or self._may_come)
        report = replace(
            report,
            noted=is_noted and report.bytes is None,
            sent=self._sent,
            size=sum(len(row.blob) for row in output.rows),
            pieces=output.pieces,
        )
        counts = [self._counts[name] for name in names_of_counts(self._program)]
        row = Row(self._worker, RowKind.REPORT, 0, self._worker, pickle.dumps(report, 5), counts)
        if not is_noted:
            return (row,), report
        return output.rows if output.end(written, row) else None, report

    def _records(self, worker: Worker) -> Iterator[Row]:
        """Yield the records that the tick sends to other workers, and to sinks on the driver."""
        for channel, by_target in self._buffers.items():
            for target, buffer in enumerate(by_target):
                if buffer:
                    self._sent[channel, target] = buffer.records
                    yield from (Row(target, RowKind.CHANNEL, channel, self._worker, blob) for blob in buffer.blobs())
        for number, name, batches in collected(worker.sinks):
            buffer = ShuffleBuffer(name)
            buffer.add(batches)
            yield from (Row(self._worker, RowKind.SINK, number, self._worker, blob) for blob in buffer.blobs())

    def _report(self, worker: Worker, polls: list[Any]) -> StageReport:
        report = worker.report(self._tick)
        report.counts, report.gauges, report.lateness = {}, {}, self._lateness  # the counts come with the row
        report.polled = sum(count for poll in polls for counts in poll.values() for count in counts.values())
        report.emitting = sorted({name for poll in polls for name, counts in poll.items() if counts})
        report.times = self._times
        if self._tick.asks_held:
            report.held = worker.held()
        return StageReport(
            self._command.tick,
            self._stage,
            report,
            taken=self._taken,
            unconfirmed=self._unconfirmed,
            process=process_name() if self._is_last else "",
        )

    def _change(self, worker: Worker) -> ChangelogEntry:
        """Return the changes of the tick; the last one, in which the epoch `MAX` flows, changes nothing that lasts."""
        tick = self._command.tick
        if self._command.final:
            return ChangelogEntry(tick, self._last, {})
        deltas, whole, recent = deltas_of(worker, whole=self._command.asks_full_entry(self._stage, self._worker))
        if recent is not None:
            self._check(worker, recent)
        self._check(worker, deltas)
        finished = worker.take_finished(whole=whole)
        return ChangelogEntry(tick, self._last, deltas, whole=whole, recent=recent, finished=finished)

    def _begin_to_recount(self, worker: Worker) -> None:
        if self._spec.debug:
            self._recount = Recount(None)
            self._check(worker, {name: Delta(state, whole=True) for name, state in worker.states().items()})

    def _check(self, worker: Worker, deltas: Mapping[str, Delta]) -> None:
        """With `debug`, check that the changelog adds up to the states.

        Raises:
            SnapshotError: if it does not.
        """
        if self._recount is not None:
            live = worker.states()
            changes = [StateDelta(self._worker, name, delta, len(live[name])) for name, delta in deltas.items()]
            states = {(self._worker, name): state for name, state in live.items()}
            self._recount.check(changes, states, base=False)


def _times_of(worker: Worker) -> dict[int, OperatorTime]:
    """Return how far each operator has come; without what only this process knows, since a repetition must agree."""
    times = worker.explain().items()
    return {vertex: time._replace(heard=[(part, None) for part, _ in time.heard]) for vertex, time in times}


def _pickle_reader(partition: Any) -> bytes:
    from pyspark import cloudpickle  # noqa: PLC0415 - only the extra has it

    data: bytes = cloudpickle.dumps(partition, 5)
    return data

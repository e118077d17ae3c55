"""The Spark task that runs one stage of one worker, and one attempt at its tick."""

from __future__ import annotations

import gc
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from struct import Struct
from typing import Any

from malflow.engine.worker import Inputs, Worker
from malflow.errors import MalflowError, OperatorError, RunFailed, own_process, release_all
from malflow.operators.epochs.idle_time import merge_lateness
from malflow.operators.hosting.source import Source
from malflow.operators.waiting import OperatorTime
from malflow.records.batch import BATCH_SIZE, Batch
from malflow.runtime.process_state import rarer_collections
from malflow.runtime.spark.changelog.entry import ChangelogEntry
from malflow.runtime.spark.protocol import COMMAND, RunSpec, StageReport, TickCommand, names_of_counts
from malflow.runtime.spark.session.java import end_quietly
from malflow.runtime.spark.tasks.live_workers import (
    LIVE_WORKERS,
    CurrentWorker,
    LiveWorker,
    held_of,
    load,
    name_of,
    process_name,
)
from malflow.runtime.spark.tasks.polling import TickPolling
from malflow.runtime.spark.tasks.records import (
    OutgoingRecords,
    RecordCounts,
    Row,
    RowKind,
    chunks_of,
    frames_of,
    read_frames,
    summed,
)
from malflow.runtime.spark.tasks.stage_output import OutputLog, deltas_of, merged, packed, read_output
from malflow.runtime.spark.tick_queries import answer_questions
from malflow.runtime.transport.chunks import Chunk
from malflow.runtime.transport.error_pickles import dumps_error
from malflow.runtime.transport.pickling import NotPicklable

__all__ = [
    "StageAttempt",
    "StageTask",
]

_Arrived = Mapping[tuple[int, int], Sequence[Chunk]]
"""The input of a stage, by channel and the worker that sent it."""


# Idea: Spark may run a task twice, also at the same time, so the changelog entry decides which attempt counts. It is
# created exclusively.
#
# Invariant: every attempt that succeeds yields the output that is stored with the entry.
#
# Example: the attempts X and Y at one tick.
#   X runs the tick          creates the entry, and yields its output
#   Y, begun before that     runs the tick too, finds the entry, drops its worker, and yields the output of X
#   Y, begun after that      finds the entry, and yields the output of X without a call of user code
class StageAttempt:
    """One attempt at a tick of one stage of one worker.

    The first attempt that writes the changelog entry counts, with all its output. The output is stored with the entry.
    Any other attempt sends the stored output and calls no user code. No output thus goes beyond the state. Sinks on the
    workers are flushed before the entry is written. They have then received all counted records.
    """

    def __init__(self, spec: RunSpec, stage: int, worker: int, command: TickCommand) -> None:
        self._spec = spec
        self._stage = stage
        self._worker = worker
        self._command = command
        self._loaded = load(spec, command)
        self._tick = command.as_tick(self._loaded.waiting)  # its epochs may be of a class of the script
        self._program, self._changelog = self._loaded.program, self._loaded.changelog
        self._last = command.last[stage][worker]
        self._counts: Counter[str] = Counter()
        self._lateness: dict[str, Any] = {}
        self._taken: dict[tuple[int, int], int] = {}
        self._polled, self._read_of_parts = 0, dict[str, dict[Any, int]]()
        self._may_come = False
        self._times: Mapping[int, OperatorTime] = {}
        self._unconfirmed: Sequence[bytes] = ()
        self._read = 0

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
                f"the output of stage {self._stage} of worker {self._worker} is missing from the scratch folder"
            )
        yield from output

    def _stored(self) -> Iterable[Row] | None:
        """Return the output of an earlier attempt; None if no attempt has written its changelog entry."""
        stored = self._changelog.output(self._stage, self._worker, self._command.tick)
        return None if stored is None else map(self._signed, read_output(self._changelog, stored))

    def _signed(self, row: Row) -> Row:
        """Return the row; a report with the name of this process, and not of the one that stored it."""
        if row.kind != RowKind.REPORT:
            return row
        report = replace(pickle.loads(row.blob), process=process_name(), copies=held_of(self._spec.scratch.run))  # noqa: S301 - of this run
        return row._replace(blob=pickle.dumps(report, 5))

    def _completed(self, blobs: dict[tuple[int, int], list[bytes]]) -> Iterable[Row] | None:
        """Run the tick; return its output, or None if another attempt wrote the changelog entry first."""
        arrived: dict[tuple[int, int], list[Chunk]] = {}
        for channel, sender in [*blobs]:
            arrived[channel, sender] = chunks = chunks_of(blobs.pop((channel, sender)))
            self._taken[channel, sender] = sum(chunk.records for chunk in chunks)
        before = self._changelog.read_bytes
        live = CurrentWorker(self._spec, self._loaded, self._stage, self._worker, self._command).take()
        self._read = self._changelog.read_bytes - before
        try:
            return self._do(live, arrived)
        except BaseException as error:
            release_all((live.worker.close,), error)
            raise

    def _do(self, live: LiveWorker, arrived: _Arrived) -> Iterable[Row] | None:
        worker = live.worker
        outgoing = OutgoingRecords(worker, self._spec.parallelism, debug=self._spec.debug)
        worker.note_waiting(self._tick.waiting)  # a worker that was rebuilt here has not seen the tick before
        if queries := self._command.queries:
            answer_questions(queries, self._program, self._changelog, worker, self._stage, self._command.tick)
        self._times = _times_of(worker) if self._command.explains else {}
        if self._stage == 0:
            self._confirm(live)
            self._poll(live, outgoing)
        else:
            self._process(worker, arrived, outgoing)
        outgoing.add(worker.drain())
        worker.flush()
        output, report = self._append_changes(live, outgoing)
        if output is None:
            worker.close()  # its state differs from the entry that counts
            return None
        live.tick = self._command.tick
        live.last = self._last if report.bytes is None else self._command.tick
        LIVE_WORKERS[name_of(self._spec, self._stage, self._worker)] = live
        return output

    # Running the operators

    def _confirm(self, live: LiveWorker) -> None:
        """Confirm the positions of the newest durable snapshot to the readers."""
        command = self._command
        sources = [source for source in live.worker.sources if source.confirms]
        if sources:
            live.memory.note(sources, self._last, command.tick, command.snapshots)
            errors = live.memory.confirm(sources, command.durable)
            self._unconfirmed = [dumps_error(error) for error in errors if isinstance(error, MalflowError)]

    def _poll(self, live: LiveWorker, outgoing: OutgoingRecords) -> None:
        worker, polling = live.worker, TickPolling(live.pacing)
        self._may_come = self._command.polls and any(self._has_parts(source) for source in worker.sources)
        polling.poll(
            worker,
            self._spec,
            self._command,
            run=lambda limit: self._run(worker, {}, outgoing, limit),
            size=lambda: outgoing.bytes,
        )
        self._polled = polling.records
        self._read_of_parts = {name: dict(by_part) for name, by_part in polling.read.items()}

    def _has_parts(self, source: Source) -> bool:
        """Whether a source may have records here, judged only by facts that all attempts share."""
        name = source.context.operator_name
        has_parts = self._loaded.parts[name][self._worker] or name in self._loaded.waiting
        return bool(has_parts) and name not in self._command.ended

    def _process(self, worker: Worker, arrived: _Arrived, outgoing: OutgoingRecords) -> None:
        """Process the input, unpacking one chunk at a time if that has the same result."""
        chunks = [(channel, sender, chunk) for (channel, sender), them in sorted(arrived.items()) for chunk in them]
        timed = any(chunk.timed for _, _, chunk in chunks)
        if not chunks or timed or self._command.final or not worker.takes_pieces:
            self._run(worker, self._input(worker, chunks), outgoing)
            return
        for chunk in chunks:
            self._run(worker, self._input(worker, [chunk]), outgoing)

    def _input(self, worker: Worker, chunks: Iterable[tuple[int, int, Chunk]]) -> Inputs:
        inputs: dict[int, list[list[Batch]]] = {
            channel.number: [[] for _ in range(self._spec.parallelism)] for channel in worker.stage.inputs
        }
        for channel, sender, chunk in chunks:
            inputs[channel][sender].append(chunk.batch(self._program.channels[channel].name))
        return inputs

    def _run(self, worker: Worker, inputs: Inputs, outgoing: OutgoingRecords, limit: int = BATCH_SIZE) -> None:
        outputs = worker.run(inputs, replace(self._tick, limit=limit), ends=False)
        self._counts.update(worker.reports.counts)
        merge_lateness(self._lateness, worker.reports.lateness)
        outgoing.add(outputs)

    # Writing the changelog entry

    def _append_changes(self, live: LiveWorker, outgoing: OutgoingRecords) -> tuple[Iterable[Row] | None, StageReport]:
        """Append the tick's changes to the changelog, with its output.

        Returns:
            The output, or None if another attempt wrote its entry first; and the report.
        """
        report = self._report(live.worker)
        change = self._change(live)
        written = packed(change)
        if change.deltas or change.finished:
            keys = {name: len(held) for name, held in live.worker.states.live().items() if name in change.deltas}
            merged = change.before if change.merged else None
            report = replace(report, bytes=written.size, whole=change.whole, merged=merged, keys=keys)
        output = OutputLog(self._changelog, self._stage, self._worker, self._command.tick)
        output.add(outgoing.rows())
        for sink, pieces in outgoing.pieces():
            output.add_pieces(sink, pieces)
        counts_of_records = RecordCounts(self._taken, outgoing.sent)
        # without an entry, another attempt has the same result, or its report shows that it has not
        is_noted = bool(
            report.bytes is not None
            or report.report.polled
            or output.rows
            or output.sinks
            or self._may_come
            or (self._taken and not all(operator.is_repeatable for operator in live.worker.operators))
        )
        if not is_noted:
            report.report.facts = {}  # another attempt would measure other values
            report.report.ended = {}  # a new worker would tell of all parts; earlier reports had them
            report.report.shares = {}  # the size of a file may have changed
        report = replace(
            report,
            noted=is_noted and report.bytes is None,
            sent=summed(counts_of_records.sent_by(self._worker)),
            size=sum(len(row.blob) for row in output.rows) + sum(size for _, _, size in output.sinks),
            pieces=output.pieces,
            sinks=output.sinks,
        )
        numbers = self._counts | live.worker.reports.gauges
        counts = [numbers.get(name, 0) for name in names_of_counts(self._program)]
        row = Row(self._worker, RowKind.REPORT, 0, self._worker, pickle.dumps(report, 5), counts)
        if not is_noted:
            return (row,), report
        return output.rows if output.end(written, row, counts_of_records) else None, report

    def _report(self, worker: Worker) -> StageReport:
        report = worker.reports.take(self._tick)
        report.counts, report.gauges, report.lateness = {}, {}, self._lateness  # the counts are in the row
        report.largest, report.largest_poll = 1, 0  # of the last poll only
        report.polled = self._polled
        report.emitting = sorted(self._read_of_parts)
        report.read = self._read_of_parts
        report.times = self._times
        if self._tick.asks_held:
            report.held = worker.held()
        return StageReport(
            self._command.tick,
            self._stage,
            report,
            taken=summed(RecordCounts(self._taken, {}).received_by(self._worker)),
            unconfirmed=self._unconfirmed,
            process=process_name(),
            copies=1 + held_of(self._spec.scratch.run),
            read=self._read,
        )

    def _change(self, live: LiveWorker) -> ChangelogEntry:
        """Return the changes of the tick; the changes of the last tick, with the epoch `MAX`, are not kept."""
        tick = self._command.tick
        if self._command.final:
            return ChangelogEntry(tick, self._last, {})
        deltas, whole, recent = deltas_of(live.worker, whole=self._command.asks_full_entry(self._stage, self._worker))
        if recent is not None:
            live.check(recent)
        live.check(deltas)
        finished = live.worker.states.take_finished(whole=whole)
        change = ChangelogEntry(tick, self._last, deltas, whole=whole, recent=recent, finished=finished)
        after = self._command.merged_after(self._stage, self._worker)
        if whole or after is None:
            return change
        return merged([*self._changelog.since(self._stage, self._worker, self._last, after), change])


def _times_of(worker: Worker) -> dict[int, OperatorTime]:
    """Return the progress of each operator, without facts known only here, since a repetition must agree."""
    times = worker.time.explain().items()
    return {vertex: time._replace(heard=[(part, None) for part, _ in time.heard]) for vertex, time in times}


_NUMBER = Struct(">q")
"""A worker's number, in the form in which Spark's Java reads the keys of pairs."""


class StageTask:
    """A stage of a program as a function that Spark calls with the frames for one worker.

    It yields the frames for the next stage's workers, each after the number of the worker; frames of the last stage are
    for the driver and have no number.

    Args:
        spec: the facts about the run.
        stage: the stage.
        is_last: whether it is the last one.
    """

    def __init__(self, spec: RunSpec, stage: int, *, is_last: bool) -> None:
        self._spec = spec
        self._stage = stage
        self._is_last = is_last

    def __call__(self, worker: int, frames: Iterator[bytes]) -> Iterator[bytes]:
        """Run the stage for one tick."""
        end_quietly()
        rows = list(read_frames(frames)) if self._stage else _drained(frames)
        for target, frame in frames_of(_run(self._spec, self._stage, worker, rows)):
            if not self._is_last:
                yield _NUMBER.pack(target)
            yield frame


def _run(spec: RunSpec, stage: int, worker: int, rows: list[Row]) -> Iterator[Row]:
    from pyspark import TaskContext  # noqa: PLC0415 - only the extra has it

    context = TaskContext.get()
    command = TickCommand.loads(context.getLocalProperty(COMMAND))
    own_process()
    try:
        with rarer_collections(), spec.surroundings.applied():
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
    """Exclude everything imported so far from later garbage collections.

    Spark collects after each task. That would walk all objects of pandas, Arrow and the program's modules, and take
    longer than the task of a small tick.
    """
    gc.collect()
    gc.freeze()


def _drained(frames: Iterator[bytes]) -> list[Row]:
    """Consume the input of the first stage. It carries no data: Spark ends a process that leaves some."""
    for _ in frames:
        pass
    return []

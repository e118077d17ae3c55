"""The Spark task that runs one stage of one worker on an executor."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from malflow.batch import BATCH_SIZE, Batch
from malflow.engine.worker import Inputs, Worker
from malflow.errors import MalflowError, OperatorError, RunFailed, release_all
from malflow.operators.lateness import merge_lateness
from malflow.operators.reader_methods import Lags
from malflow.operators.source import Source
from malflow.operators.waiting import OperatorTime
from malflow.runtime.garbage import rarer_collections
from malflow.runtime.spark.changelog import NEVER, ChangelogEntry
from malflow.runtime.spark.driver_sinks import collected
from malflow.runtime.spark.error_transport import dumps_error
from malflow.runtime.spark.position_memory import PositionMemory
from malflow.runtime.spark.protocol import COMMAND, RunSpec, StageReport, TickCommand, names_of_counts
from malflow.runtime.spark.shuffle import (
    Chunk,
    Row,
    RowKind,
    ShuffleBuffer,
    chunks_of,
    pack,
    read_rows,
    write_rows,
)
from malflow.runtime.spark.stage_changes import deltas_of, write_entry
from malflow.runtime.spark.transfer import NotPicklable
from malflow.runtime.spark.worker_cache import LIVE_WORKERS, SHARED, LiveWorker, load, process_name
from malflow.snapshot.recount import Recount
from malflow.state import Delta, StateDelta

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
            yield from StageAttempt(spec, stage, worker, command).take(rows)
    except MalflowError as error:
        lasts = isinstance(error, NotPicklable) or not isinstance(error, OperatorError)
        if not lasts and context.attemptNumber() + 1 < spec.attempts:
            raise
        yield Row(worker, RowKind.FAILURE, 0, worker, dumps_error(error))


def _drained(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """Consume the rows that trigger a tick, which carry no data."""
    for _ in batches:
        pass
    return iter(())


class StageAttempt:
    """One attempt at a tick of one stage of one worker."""

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
        arrived: dict[tuple[int, int], list[Chunk]] = {}
        for (channel, sender), them in blobs.items():
            arrived[channel, sender] = chunks = chunks_of(them)
            self._taken[channel, sender] = sum(chunk.records for chunk in chunks)
        del blobs
        worker, report = self._completed(arrived, None)
        if report is None:  # an earlier attempt finished: repeat what it polled
            before = self._changelog.read(self._stage, self._worker, self._command.tick)
            worker, report = self._completed(arrived, before)
        assert report is not None  # noqa: S101 - the repetition always returns one
        sent: dict[tuple[int, int], int] = {}
        for channel, by_target in self._buffers.items():
            for target, buffer in enumerate(by_target):
                if buffer:
                    sent[channel, target] = buffer.records
                    yield from (Row(target, RowKind.CHANNEL, channel, self._worker, blob) for blob in buffer.blobs())
        for number, name, batches in collected(worker.sinks):
            yield Row(self._worker, RowKind.SINK, number, self._worker, pack(batches, name))
        is_last = self._stage == len(self._program.stages) - 1
        report = replace(report, sent=sent, process=process_name() if is_last else "")
        counts = [self._counts[name] for name in names_of_counts(self._program)]
        yield Row(self._worker, RowKind.REPORT, 0, self._worker, pickle.dumps(report, 5), counts)

    def _completed(self, arrived: _Arrived, before: ChangelogEntry | None) -> tuple[Worker, StageReport | None]:
        """Run the tick and append its changes to the changelog.

        Args:
            arrived: the chunks received from other workers.
            before: the entry of an earlier attempt at the same tick, to be repeated.

        Returns:
            The worker and its report; None instead of the report if an earlier attempt wrote the entry.
        """
        worker = self._current_worker()
        try:
            return worker, self._do(worker, arrived, before)
        except BaseException as error:
            release_all((worker.close,), error)
            raise

    def _do(self, worker: Worker, arrived: _Arrived, before: ChangelogEntry | None) -> StageReport | None:
        for _ in collected(worker.sinks):
            pass  # records left by a failed attempt
        self._counts.clear()
        self._lateness.clear()
        self._times = _times_of(worker) if self._command.explains else {}
        self._buffers = {
            channel.number: [ShuffleBuffer(channel.name, debug=self._spec.debug) for _ in range(self._spec.parallelism)]
            for channel in worker.stage.outputs
        }
        polls: list[dict[str, dict[Any, int]]] = []
        if before is not None and before.taken != self._taken:
            raise RunFailed(
                f"tick {self._command.tick} was repeated with different records in stage {self._stage} of worker "
                f"{self._worker}: it received {before.taken} before, and {self._taken} now"
            )
        if self._stage == 0:
            self._confirm(worker)
            self._poll(worker, polls, before)
        else:
            self._process(worker, arrived)
        report, size = self._append_changes(worker, polls, before)
        if size is None:
            worker.close()
            return None
        worker.flush()
        if before is not None:  # the state may differ from the entry that counts: don't cache the worker
            worker.close()
            return report
        last = self._last if report.bytes is None else self._command.tick
        LIVE_WORKERS[self._name] = LiveWorker(worker, self._command.tick, last, self._recount, self._memory)
        return report

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

    def _poll(self, worker: Worker, polls: list[Any], before: ChangelogEntry | None) -> None:
        """Poll while there is input, up to the limits; in a repeated tick, poll exactly as before."""
        self._may_come = self._command.polls and any(self._has_parts(source) for source in worker.sources)
        for operator in worker.operators:
            operator.reset_pacing()
        try:
            if before is None:
                self._poll_on(worker, polls)
            else:
                self._poll_again(worker, polls, before)
        finally:
            for source in worker.sources:
                source.replay = None

    def _poll_on(self, worker: Worker, polls: list[Any]) -> None:
        deadline = time.monotonic() + self._spec.poll_seconds
        limits = [most for most in (self._spec.most, self._command.most) if most is not None]
        left = min(limits, default=None)
        while True:
            for source in worker.sources:
                source.most = BATCH_SIZE if left is None else max(1, left // len(worker.sources))
                source.replay = None if self._command.polls else {}
            polled = self._polled(worker, polls)
            if self._command.final or not polled or time.monotonic() >= deadline:
                return
            if left is not None and (left := left - polled) <= 0:
                return
            growth = worker.largest / max(source.polled for source in worker.sources)
            for operator in worker.operators:
                operator.limit_batch(growth)

    def _poll_again(self, worker: Worker, polls: list[Any], before: ChangelogEntry) -> None:
        parts: dict[str, set[Any]] = {}
        for counts in before.polls or [{}]:
            for source in worker.sources:
                source.replay = counts.get(source.context.operator_name, {})
                parts.setdefault(source.context.operator_name, set()).update(source.replay)
            self._polled(worker, polls)
        for source in worker.sources:
            name = source.context.operator_name
            if parts[name] and name in before.deltas:
                source.check_repeated(before.deltas[name].changed, parts[name])

    def _polled(self, worker: Worker, polls: list[Any]) -> int:
        self._run(worker, {})
        polls.append({source.context.operator_name: dict(source.polled_by_part) for source in worker.sources})
        return sum(source.polled for source in worker.sources)

    def _append_changes(
        self, worker: Worker, polls: list[Any], before: ChangelogEntry | None
    ) -> tuple[StageReport, int | None]:
        """Append the tick's changes to the changelog.

        Returns:
            The report, and the bytes written (None if an entry was already present).
        """
        polled = sum(count for poll in polls for counts in poll.values() for count in counts.values())
        report = StageReport(
            tick=self._command.tick,
            stage=self._stage,
            worker=self._worker,
            bytes=None,
            whole=False,
            keys={},
            polled=polled,
            live=[source.context.operator_name for source in worker.sources if not source.is_finished],
            taken=self._taken,
            lateness=self._lateness,
            reached=worker.reached() if self._tick.finished or self._program.lifts_silent else {},
            times=self._times,
            skipped=max((source.take_skipped() for source in worker.sources), default=timedelta(0)),
            emitting=sorted({name for poll in polls for name, counts in poll.items() if counts}),
            unconfirmed=self._unconfirmed if before is None else before.unconfirmed,
        )
        if self._command.final:
            return report, 0
        asked = self._command.asks_full_entry(self._stage, self._worker)
        deltas, whole, recent = deltas_of(worker, whole=asked)
        if recent is not None:
            self._check(worker, recent)
        self._check(worker, deltas)
        polls = polls if polled else []
        change = before or ChangelogEntry(
            tick=self._command.tick,
            before=self._last,
            deltas=deltas,
            polls=polls,
            taken=self._taken,
            whole=whole,
            recent=recent,
            finished=worker.take_finished(whole=whole),
            lags=_lags_of(worker),
            unconfirmed=self._unconfirmed,
        )
        is_empty = not (change.deltas or change.polls or change.finished)
        if before is None and is_empty and not self._may_come:
            return report, 0
        if before is None:
            size = write_entry(self._changelog, self._stage, self._worker, change)
        else:  # the same size as before, since Spark compares repeated output with the original
            size = self._changelog.size(self._stage, self._worker, self._command.tick)
        report = replace(report, lags=change.lags)
        if is_empty:  # only a later attempt needs it: it must poll nothing, whatever input there is by then
            return replace(report, noted=True), size
        states = worker.states()
        keys = {name: len(held) for name, held in states.items() if name in change.deltas}
        return replace(report, bytes=size, whole=change.whole, keys=keys), size

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


def _lags_of(worker: Worker) -> dict[str, Lags]:
    return {source.context.operator_name: source.lags() for source in worker.sources if source.tells_lag}


def _times_of(worker: Worker) -> dict[int, OperatorTime]:
    """Return how far each operator has come; without what only this process knows, since a repetition must agree."""
    times = worker.explain().items()
    return {vertex: time._replace(heard=[(part, None) for part, _ in time.heard]) for vertex, time in times}


def _pickle_reader(partition: Any) -> bytes:
    from pyspark import cloudpickle  # noqa: PLC0415 - only the extra has it

    data: bytes = cloudpickle.dumps(partition, 5)
    return data

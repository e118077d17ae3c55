"""Snapshots of a run on Spark: their schedule, and the Spark jobs that write them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.engine.states import states_of
from malflow.errors import MalflowError, RunFailed
from malflow.events import SnapshotCommitted, SnapshotFailed
from malflow.runtime.control import Request, SnapshotAnswers, fail
from malflow.runtime.listeners import Listeners
from malflow.runtime.sink_claims import fenced_first
from malflow.runtime.spark.changelog import NEVER, Changelog, ScratchFolder
from malflow.runtime.spark.changelog_index import ChangelogIndex
from malflow.runtime.spark.error_transport import dumps_error, loaded_error, spark_message
from malflow.runtime.spark.leftovers import Claimed
from malflow.runtime.spark.snapshot_task import SnapshotTask, summed
from malflow.snapshot.codecs.shapes import Finding
from malflow.snapshot.commit import DataWriter
from malflow.snapshot.data_file import Section, pack
from malflow.snapshot.manifest import FileEntry
from malflow.snapshot.persistence import CoordinatingSession, Session, StateNotSerializable
from malflow.snapshot.sections import Written, bare_sections, finding, with_frame, write_file
from malflow.snapshot.writer import SnapshotSession
from malflow.sources.contract import StatefulSource
from malflow.states.keyed import StateDelta

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["SparkRunSnapshots"]


class SparkRunSnapshots:
    """Takes a run's snapshots: each saves the changelog entries since the previous one.

    Args:
        session: the session that holds the job's claim.
        program: the program.
        context: runs the Spark jobs.
        place: the place of the changelog.
        interval: the seconds between snapshots; None for no periodic ones.
        sinks: the driver's sinks.
        listeners: who hears of snapshots.

    Attributes:
        kept_at: the tick of the last snapshot.
        snapshot: the id of the last snapshot.
        durable: the tick of the newest durable snapshot with positions of sources.
        began_with: the id of the snapshot that the run started from, taken before its first record.
    """

    def __init__(
        self,
        session: Session,
        program: Program,
        context: SparkContext,
        place: ScratchFolder,
        interval: float | None,
        sinks: RunSinks,
        listeners: Listeners,
    ) -> None:
        self.kept_at = NEVER
        self.snapshot: int | None = None
        self.began_with: int | None = None
        self.durable = NEVER
        self._session = session
        self._listeners = listeners
        self._specs = states_of(program)
        self._versions = _kept_versions(program)
        self._context = context
        self._place = place
        self._interval = interval
        self._due = time.monotonic() + (interval or 0.0)
        self._asked: list[Request] = []
        self._sinks = sinks
        self._answers = SnapshotAnswers()
        self._making: tuple[int, Mapping[str, Any], Future[int]] | None = None

    def begin(self, parallelism: int, stages: int) -> None:
        """Save the sinks' positions before the first record, so that they can be restored to them.

        Raises:
            SnapshotError: if the snapshot can't be written.
        """
        if not self._has_unkept_sinks():
            return
        base = self._session.needs_full_snapshot(parallelism)
        self._commit(0, parallelism, 0, ChangelogIndex(stages, parallelism), base=base).result()
        self.check()
        self.began_with = self.snapshot
        self.kept_at = NEVER  # it does not hold the workers' initial state

    def resume(self, snapshot: int, tick: int) -> None:
        """Continue from a restored snapshot of a tick."""
        self.snapshot = self.began_with = snapshot
        self.durable = tick

    def keep_sinks(self, tick: int, parallelism: int, generation: int, index: ChangelogIndex) -> None:
        """Take a snapshot before the first record if a sink's position differs from that in the last snapshot.

        Args:
            tick: the tick of the initial states.
            parallelism: the number of workers.
            generation: the generation of the entries in `index`.
            index: the index of the initial states, as full entries.

        Raises:
            SnapshotError: if the snapshot can't be written.
        """
        if not self._has_unkept_sinks():
            return
        if not self.keep(tick, parallelism, generation, index, ending=True):
            self.kept_at = tick - 1  # so that all state is written again
            self.keep(tick, parallelism, generation, index, ending=True)
        self.began_with = self.snapshot

    def ask(self, request: Request) -> None:
        """Queue a request for a snapshot, which is taken as soon as possible."""
        self._asked.append(request)

    def answer_with_last(self) -> None:
        """Answer requests with the last snapshot, which has all state: nothing has changed since."""
        if self.snapshot is not None:
            last: Future[int] = Future()
            last.set_result(self.snapshot)
            self._answers.follow(self.take_asked(), last)
            self._answers.give()

    def check(self) -> None:
        """Record a committed snapshot, and raise the error of one that failed.

        Raises:
            SnapshotError: if the run can't go on.
        """
        self._settle()
        self._session.check()

    def _settle(self) -> None:
        """Record a committed snapshot, commit the sinks' transactions in it, and answer the requests for it."""
        durable = self._note_made()
        with fenced_first(self._session):
            self._sinks.commit(durable)
        self._answers.give()

    def _note_made(self) -> Mapping[str, Any]:
        """Record a snapshot that is done; return the positions of the sinks in it, if it was committed."""
        if self._making is None or not self._making[2].done():
            return {}
        tick, positions, made = self._making
        self._making = None
        error = made.exception()
        if error is not None:
            self._sinks.note_lost()
            self._listeners.notify(SnapshotFailed(tick, error, self._session.retry_after))
            return {}
        previous, self.snapshot = self.snapshot, made.result()
        self.kept_at = self.durable = tick
        if self.snapshot != previous:  # otherwise nothing had changed
            self._listeners.notify(SnapshotCommitted(self.snapshot, tick))
        return positions

    @property
    def is_blocked(self) -> bool:
        """Whether the run must wait for a snapshot, because its sinks allow no more uncommitted transactions."""
        return self._sinks.is_full

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is being written."""
        return self._session.is_busy

    @property
    def writing(self) -> int:
        """The tick of the snapshot that is being written; `NEVER` if there is none."""
        return NEVER if self._making is None else self._making[0]

    @property
    def claimed(self) -> Claimed | None:
        """The job and claim (fencing token) that the run holds."""
        return Claimed(*self._session.claimed) if isinstance(self._session, SnapshotSession) else None

    def confirm(self) -> None:
        """Check that this run still holds the job's claim.

        Raises:
            SnapshotError: such as a `FencedError`.
        """
        self._session.confirm()

    @property
    def reading(self) -> range:
        """The ticks whose entries the pending snapshot reads; empty if none is pending."""
        return range(0) if self._making is None else range(self.kept_at + 1, self._making[0] + 1)

    def keep(self, tick: int, parallelism: int, generation: int, index: ChangelogIndex, *, ending: bool) -> bool:
        """Take a snapshot if one is due or requested; at the end of the run, always, and wait for it.

        Returns:
            False if a tick must first write full changelog entries for a full snapshot; True otherwise.

        Raises:
            SnapshotError: if a snapshot can't be written and the run can't go on.
        """
        due = self._session.wants_retry or (self._interval is not None and time.monotonic() >= self._due)
        if not (due or ending or self._asked):
            return True
        if self._session.is_busy and not ending:
            return True
        self.settle()
        base = index.covers(self.kept_at)
        if self._session.needs_full_snapshot(parallelism) and not base:
            return False
        asked, self._asked = self._asked, []
        try:
            made = self._commit(tick, parallelism, generation, index, base=base, ending=ending)
        except BaseException as error:
            fail(asked, error)
            raise
        self._answers.follow(asked, made)
        if self._interval is not None:
            self._due = time.monotonic() + self._interval
        if ending:
            self._await(made)
            self._amend(parallelism)
        return True

    def finish_sinks(self, parallelism: int) -> None:
        """Deliver the output of a run's end to the transactional sinks; the snapshot keeps the states before the end.

        Args:
            parallelism: the number of workers.

        Raises:
            OperatorError: if a sink fails.
            SnapshotError: if the snapshot can't be written.
        """
        if self._sinks.has_transactions:
            self._sinks.end()
            self._amend(parallelism)
            self._amend(parallelism)

    def _amend(self, parallelism: int) -> None:
        """Add to the last snapshot that the sinks' transactions in it are committed, or that there is another one."""
        session = self._session
        if not isinstance(session, CoordinatingSession) or not (deltas := self._sinks.transaction_deltas()):
            return
        try:
            made = session.amend(self.kept_at, parallelism, self._specs, deltas)
        except StateNotSerializable as error:
            raise error.as_operator_error() from error.__cause__
        self._making = (self.kept_at, self._sinks.captured, made)
        self._await(made)

    def _await(self, made: Future[int]) -> None:
        made.exception()
        self._settle()
        made.result()
        self.check()

    def settle(self) -> None:
        """Wait for the pending snapshot, if any."""
        if self._making is not None:
            self._making[2].exception()
            self.check()

    def take_asked(self) -> list[Request]:
        """Remove and return the requests for snapshots that were not begun."""
        asked, self._asked = self._asked, []
        return asked

    def close(self, *, wait: bool) -> None:
        """Close the session, optionally waiting for pending writes."""
        self._session.close(wait=wait)
        self._note_made()
        self._answers.end(None)

    def _commit(
        self, tick: int, parallelism: int, generation: int, index: ChangelogIndex, *, base: bool, ending: bool = False
    ) -> Future[int]:
        session = self._session
        with fenced_first(session):
            ours = self._sinks.deltas(whole=base)
        if isinstance(session, SnapshotSession):
            made = self._commit_by_tasks(session, tick, parallelism, generation, index, ours, base=base, alone=ending)
        else:
            made = self._commit_here(tick, parallelism, generation, index, ours)
        self._making = (tick, self._sinks.captured, made)
        return made

    def _commit_here(
        self, tick: int, parallelism: int, generation: int, index: ChangelogIndex, ours: Sequence[StateDelta]
    ) -> Future[int]:
        """Pass what changed through the driver, to a session that knows nothing of tasks."""
        changelog = Changelog(self._place, generation)
        deltas = [
            StateDelta(worker, name, total.delta(), index.keys[worker, name])
            for worker, stages in index.since(self.kept_at).items()
            for stage, ticks in stages.items()
            for name, total in summed(changelog, stage, worker, ticks, self._versions).items()
        ]
        try:
            return self._session.commit(tick, parallelism, self._specs, [*deltas, *ours])
        except StateNotSerializable as error:
            raise error.as_operator_error() from error.__cause__

    def _commit_by_tasks(
        self,
        session: SnapshotSession,
        tick: int,
        parallelism: int,
        generation: int,
        index: ChangelogIndex,
        ours: Sequence[StateDelta],
        *,
        base: bool,
        alone: bool,
    ) -> Future[int]:
        spans, versions, place = index.since(self.kept_at), self._versions, self._place
        sections, findings = self._sections(session, ours)

        def write(writer: DataWriter) -> Written:
            task = SnapshotTask(place, generation, spans, versions, writer, session.codec, session.compression, base)
            entries, found = _written(self._context, task, sorted(spans), alone=alone)
            files = (write_file(writer, it, session.codec, session.compression, base=base) for it in pack(sections))
            return [*entries, *files], [*found, *findings]

        keys = {name: count for name, count in index.total_keys.items() if name in versions}
        keys.update(dict.fromkeys(self._sinks.captured, 1))
        return session.commit_written(tick, parallelism, self._specs, keys, write, base=base)

    def _has_unkept_sinks(self) -> bool:
        with fenced_first(self._session):
            return self._sinks.has_unkept()

    def _sections(self, session: SnapshotSession, deltas: Sequence[StateDelta]) -> tuple[list[Section], list[Finding]]:
        """Encode the positions of the sinks.

        Raises:
            OperatorError: if a position can't be encoded.
        """
        sections: list[Section] = []
        findings: list[Finding] = []
        for worker, name, delta, _ in deltas:
            kinds: set[type] = set()
            try:
                for bare, raw in bare_sections(session.codec, worker, name, self._versions[name], delta, kinds):
                    sections.append(with_frame(bare, raw, session.compression))
            except StateNotSerializable as error:
                raise error.as_operator_error() from error.__cause__
            findings.append(finding(session.codec, worker, name, delta, kinds))
        return sections, findings


def _written(context: SparkContext, task: SnapshotTask, workers: Sequence[int], *, alone: bool) -> Written:
    """Write the data files of workers in a Spark job.

    Args:
        context: runs the job.
        task: the task to run for each worker.
        workers: the workers.
        alone: whether the job may use all slots; otherwise half of them are left to ticks.
    """
    if not workers:
        return [], []
    tasks = len(workers) if alone else min(len(workers), max(1, context.defaultParallelism // 2))
    entries: list[FileEntry] = []
    findings: list[Finding] = []
    try:
        written = context.parallelize(workers, tasks).map(_reported(task)).collect()
    except Exception as error:
        raise RunFailed(f"Spark could not write a snapshot: {spark_message(error)}") from error
    for (files, found), failure in written:
        if failure is not None:
            raise loaded_error(failure)
        entries += files
        findings += found
    return entries, findings


def _reported(task: SnapshotTask) -> Callable[[int], tuple[Written, bytes | None]]:
    def write(worker: int) -> tuple[Written, bytes | None]:
        try:
            return task(worker), None
        except MalflowError as error:
            return ([], []), dumps_error(error)

    return write


def _kept_versions(program: Program) -> dict[str, int]:
    """Return the versions of the states in snapshots: all but those of sources that start over with each run."""
    sources = program.sources
    return {
        spec.name: spec.version
        for spec in states_of(program)
        if spec.name not in sources or isinstance(sources[spec.name].source, StatefulSource)
    }

"""The snapshots of a run: their schedule, their outcome, and the sinks' transactions that they commit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from malflow.engine.sinks import RunSinks
from malflow.engine.ticks import Ticks
from malflow.errors import FencedError, MalflowError, SnapshotError
from malflow.event_time.tick import Tick
from malflow.events import ConfirmationFailed, SnapshotCommitted, SnapshotFailed
from malflow.runtime.coordination.sink_commits import KeptRecords, begin_transactions, fenced_first
from malflow.runtime.host import Host
from malflow.runtime.progress.listeners import Listeners
from malflow.runtime.progress.progress import Progress, SnapshotFailure, SnapshotInfo
from malflow.runtime.requests.answers import SnapshotAnswers, SnapshotRequest
from malflow.snapshot.persistence import (
    CoordinatingSession,
    Persistence,
    RestoredState,
    RestoreOptions,
    Session,
    StateNotSerializable,
    job_of,
)
from malflow.snapshot.sizes import StateSize
from malflow.snapshot.writer import SnapshotSession
from malflow.states.keyed import StateDelta
from malflow.states.kinds import StateSpec
from malflow.store.failpoint import failpoint
from malflow.words import error_line

__all__ = [
    "PendingSnapshot",
    "RunSnapshots",
    "Stopwatch",
]


class Stopwatch:
    """Measures a snapshot: how long ticks wait for its capture, and how long it is then written."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._captured = 0.0
        self._end: tuple[float, datetime] | None = None

    def follow(self, made: Future[int]) -> None:
        """Measure until a snapshot is written. It is captured now."""
        self._captured = time.monotonic() - self._began
        made.add_done_callback(lambda _: self._note_end())

    def read(self) -> tuple[datetime, float, float]:
        """Return when the snapshot was written, in UTC, and the seconds of its capture and of its writing."""
        end, at = self._end or self._note_end()  # callbacks of a future run after its waiters
        return at, self._captured, end - self._began - self._captured

    def _note_end(self) -> tuple[float, datetime]:
        self._end = end = time.monotonic(), datetime.now(UTC)
        return end


class PendingSnapshot(NamedTuple):
    """A snapshot being written: its tick, the sinks' positions in it, a future of its id, times, and sinks' records."""

    tick: int
    positions: Mapping[str, Any]
    made: Future[int]
    watch: Stopwatch
    taken: Mapping[str, int]


_FENCING = 5.0
"""The most seconds to wait, after a failure, for the snapshot being written."""


# The life of one snapshot:
#   is_due       the interval has passed, or a failed snapshot is to be retried
#   take         waits for the one being written; between two ticks, the sinks end their transactions, and the workers
#                capture their states
#   pending      the session writes it in the background while ticks continue
#   _announce    it is durable, or has failed: then the next one includes its changes
#   _commit      the sinks commit the transactions in it; if records are refused, an amendment of it is written,
#                and the commit repeated
#   _confirm     the readers may forget everything up to its tick
#   answers      requests for a snapshot get its id
#
# Invariant: at most one snapshot is pending, and no transaction is committed before the snapshot that contains it is
# durable.
class RunSnapshots:
    """Takes and restores the snapshots of a run; without a persistence, does nothing.

    Args:
        persistence: where snapshots are saved.
        states: the program's states.
        start: the options for restoring state.
        host: the workers; they capture their states.
        ticks: the run's ticks.
        sinks: the run's sinks.
        interval: the seconds between snapshots; None for no periodic snapshots.
        listeners: the listeners to notify of snapshots; None for the log alone.

    Attributes:
        snapshot: the id of the last snapshot, or None.
        info: the facts about it.
        failure: the last snapshot, if it failed.
        began_with: the id of the snapshot that the run began with; None for an empty state.
    """

    def __init__(
        self,
        persistence: Persistence,
        states: Sequence[StateSpec],
        start: RestoreOptions,
        host: Host,
        ticks: Ticks,
        sinks: RunSinks,
        *,
        interval: float | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        self.snapshot: int | None = None
        self.info: SnapshotInfo | None = None
        self.failure: SnapshotFailure | None = None
        self.began_with: int | None = None
        self._persistence = persistence
        self._states = states
        self._start = start
        self._host = host
        self._ticks = ticks
        self._sinks = sinks
        self._interval = interval
        self._due = 0.0
        self._listeners = Listeners(job=job_of(persistence)) if listeners is None else listeners
        self._session: Session | None = None
        self._tick = 0
        self._parallelism = 1
        self._pending: PendingSnapshot | None = None
        self._answers = SnapshotAnswers()
        self._kept = KeptRecords(sinks, ticks)

    # The start

    def restore(self) -> RestoredState | None:
        """Claim the job, load its last snapshot into the host, the ticks and the sinks, and return its content.

        Raises:
            SnapshotError: if the snapshot can't be read, or does not fit the program.
            OperatorError: if user code fails.
        """
        if not self._persistence.is_enabled:
            return None
        self._session, restored = self._persistence.open(self._states, self._start)
        if restored is not None:
            self.snapshot = self.began_with = restored.snapshot
            keys = sum(count for name, count in restored.keys.items() if "/" not in name)
            self.info = SnapshotInfo(restored.snapshot, restored.tick, restored.time, keys)
            self._sinks.restore(self._host.load(restored))
            self._ticks.place(self._host.parts, self._host.listed)
            self._ticks.number = restored.tick
            self._ticks.clock.advance_to(restored.time)
            self._sinks.begin_tick(Tick(number=restored.tick, now=restored.time or datetime.now(UTC)), is_first=True)
        return restored

    def take_over(self) -> None:
        """Take over the outputs of the sinks, and commit the transactions in the restored snapshot.

        Raises:
            SnapshotError: if a sink has committed more transactions than the snapshot contains.
            OperatorError: if a sink fails.
        """
        if self._session is not None:
            begin_transactions(self._sinks, self._persistence, self._session, self._start, self.snapshot)

    def begin(self) -> None:
        """Confirm the restored positions to the readers. They are now open.

        Also save the sinks' positions before the first record. A resumed run can then return to them.

        Raises:
            OperatorError: if a sink fails.
            SnapshotError: if the snapshot can't be written.
        """
        if self._session is None:
            return
        if self.snapshot is not None:
            self._confirm(self._ticks.number)
        self._due = time.monotonic() + (self._interval or 0.0)
        with fenced_first(self._session):
            is_unkept = self._sinks.has_unkept()
        if is_unkept or self._sinks.awaits_snapshot:
            self.take(ending=True)
            self.began_with = self.snapshot

    # What the coordinator asks

    @property
    def session(self) -> Session | None:
        """The session that holds the job's claim; None without a persistence and before `restore`."""
        return self._session

    @property
    def sizes(self) -> Mapping[str, StateSize]:
        """The sizes of the states in the last snapshot of this run; empty if the session does not know them."""
        session = self._session
        return session.sizes if isinstance(session, SnapshotSession) else {}

    def stamped(self, progress: Progress) -> Progress:
        """Return the progress of the run with that of its snapshots; callable from any thread."""
        return replace(
            progress,
            snapshot=self.snapshot,
            last_snapshot=self.info,
            snapshot_failure=self.failure,
            snapshot_interval=self._interval,
            sinks={} if self._session is None else self._kept.progress,
        )

    @property
    def is_blocked(self) -> bool:
        """Whether the run must wait for a snapshot, because a sink has reached its `max_pending` transactions."""
        return self._session is not None and self._sinks.is_full

    @property
    def is_pending(self) -> bool:
        """Whether a snapshot was begun with an outcome not known here yet."""
        return self._pending is not None

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is being written."""
        return self._session is not None and self._session.is_busy

    @property
    def is_due(self) -> bool:
        """Whether it is time for a snapshot, or for the retry of a failed one."""
        if self._session is None:
            return False
        return self._session.wants_retry or (self._interval is not None and time.monotonic() >= self._due)

    def check(self) -> None:
        """Complete a snapshot that was written: commit its sinks, confirm its positions, and answer its requests.

        Raises:
            OperatorError: if a sink can't be committed.
            SnapshotError: if the run can't continue after a background error.
        """
        self._settle()
        if self._session is not None:
            self._session.check()

    def take(self, requests: Iterable[SnapshotRequest] = (), *, ending: bool = False) -> Future[int] | None:
        """Begin a snapshot of the states after the last tick, once the one being written is done.

        Args:
            requests: requests to answer with its id, once it is durable and its sinks are committed.
            ending: whether to wait for it, since no tick follows.

        Returns:
            A future of its id; None if the workers must first write all of their state, in a tick.

        Raises:
            OperatorError: if a state can't be written, or a sink fails.
            SnapshotError: if the run can't continue.
        """
        session = self._session
        if session is None:
            raise SnapshotError("the run has no persistence")
        self._wait()
        full = session.needs_full_snapshot(self._host.parallelism)
        watch = Stopwatch()
        with _named_states():
            made = self._host.capture(session, self._ticks.number, self._ended_transactions, full=full, alone=ending)
        if made is None:
            return None
        self._tick, self._parallelism = self._ticks.number, self._host.parallelism
        watch.follow(made)
        self._pending = PendingSnapshot(self._tick, self._sinks.captured, made, watch, self._kept.taken)
        self._answers.follow(requests, made)
        self._due = time.monotonic() + (self._interval or 0.0)
        if ending:
            self._await(made)
            self._amend()
        return made

    def wait(self, seconds: float) -> None:
        """Wait at most some seconds for the snapshot being written."""
        if self._pending is None:
            time.sleep(seconds)
            return
        with suppress(CancelledError, TimeoutError):
            self._pending.made.exception(seconds)

    def answer_with_last(self, requests: Iterable[SnapshotRequest]) -> None:
        """Answer requests with the last, up-to-date snapshot."""
        if self.snapshot is not None:
            last: Future[int] = Future()
            last.set_result(self.snapshot)
            self._answers.follow(requests, last)
            self._answers.give()

    def finish_sinks(self) -> None:
        """Deliver the output of a run's end to the transactional sinks; the snapshot keeps the states from before it.

        Raises:
            OperatorError: if a sink fails.
            SnapshotError: if the snapshot can't be written.
        """
        if self._sinks.has_transactions and self._session is not None:
            self._sinks.end()
            self._amend()
            self._amend()

    def fenced(self) -> FencedError | None:
        """Return the error to raise after a failure if another run has claimed the job, None otherwise.

        Without this check, a failing run would restart and claim the job back. It may have failed because the other
        run removed its files, or reads its source.
        """
        session = self._session
        if session is not None and session.is_busy:
            self.wait(_FENCING)  # the snapshot being written will be fenced as well
        if session is None or session.is_busy:
            return None
        try:
            session.confirm()
        except FencedError as fenced:
            return fenced
        except MalflowError:
            pass  # unknown: the store fails as well
        return None

    def close(self, error: BaseException | None) -> None:
        """Close the session; after a failure, a snapshot being written may or may not be committed."""
        if self._session is not None:
            self._session.close(wait=error is None)
            self._announce()
        self._answers.end(error)

    # Inside

    def _ended_transactions(self, whole: bool) -> Sequence[StateDelta]:
        """End the transactions of the sinks, and return their positions for a snapshot.

        Raises:
            OperatorError: if a sink fails.
            SnapshotError: if another run has claimed the job.
        """
        if self._session is None:
            return ()
        with fenced_first(self._session):
            return self._sinks.deltas(whole=whole)

    def _settle(self) -> None:
        """Complete the snapshot that was written, if any."""
        done = self._announce()
        if done is not None and self._session is not None:
            self._commit(done)
            self._confirm(done.tick)
        self._answers.give()

    def _commit(self, done: PendingSnapshot) -> None:
        """Commit the transactions of a durable snapshot, and amend it while records are refused.

        If an amendment can't be written, the next snapshot has it, and its commit follows that.
        """
        positions = done.positions
        while self._session is not None:
            with fenced_first(self._session):
                is_done = self._sinks.commit(positions)
            if is_done:
                return
            self._write_amendment(self._sinks.transaction_deltas(), done.taken)
            made = self._pending
            if made is not None:
                made.made.exception()
                failpoint("amended")
            if self._announce() is None:
                return
            positions = self._sinks.captured

    def _confirm(self, tick: int) -> None:
        for name, error in self._host.settle(tick, self.snapshot):
            self._listeners.notify(ConfirmationFailed(self._ticks.number, name, error))

    def _announce(self) -> PendingSnapshot | None:
        """Announce a snapshot that was written; return it if it became durable."""
        pending = self._pending
        if pending is None or not pending.made.done():
            return None
        self._pending = None
        if pending.made.cancelled() or self._session is None:
            return None
        error = pending.made.exception()
        if error is not None:
            self._sinks.note_lost()
            text = error_line(error)
            self.failure = SnapshotFailure(pending.tick, text, datetime.now(UTC))
            for _ in self._host.settle(pending.tick, None):
                pass
            self._listeners.notify(SnapshotFailed(pending.tick, error, self._session.retry_after))
            return None
        previous, self.snapshot = self.snapshot, pending.made.result()
        self.failure = None
        self._kept.keep(pending.taken)
        if self.snapshot != previous:  # otherwise there were no changes
            self.info = info = self._info_of(self.snapshot, pending)
            seconds = (info.capture_seconds or 0.0) + (info.write_seconds or 0.0)
            self._listeners.notify(SnapshotCommitted(self.snapshot, pending.tick, info.bytes, seconds))
        return pending

    def _info_of(self, snapshot: int, pending: PendingSnapshot) -> SnapshotInfo:
        session, (at, captured, written) = self._session, pending.watch.read()
        if not isinstance(session, SnapshotSession):
            return SnapshotInfo(snapshot, pending.tick, at, capture_seconds=captured, write_seconds=written)
        keys = sum(size.keys for name, size in session.sizes.items() if "/" not in name)
        return SnapshotInfo(snapshot, pending.tick, at, keys, session.bytes, captured, written)

    def _amend(self) -> None:
        """Amend the last snapshot: its transactions are committed, or there is another one."""
        if deltas := self._sinks.transaction_deltas():
            self._await(self._write_amendment(deltas, self._kept.taken))

    def _write_amendment(self, deltas: Sequence[StateDelta], taken: Mapping[str, int]) -> Future[int]:
        """Begin to write an amendment to the last snapshot; return a future of its id."""
        if not isinstance(self._session, CoordinatingSession):
            raise SnapshotError("the session can't amend a snapshot")
        watch = Stopwatch()
        with _named_states():
            made = self._session.amend(self._tick, self._parallelism, self._states, deltas)
        watch.follow(made)
        self._pending = PendingSnapshot(self._tick, self._sinks.captured, made, watch, taken)
        return made

    def _await(self, made: Future[int]) -> None:
        made.exception()
        self._settle()
        made.result()
        self.check()

    def _wait(self) -> None:
        """Wait for the snapshot being written, if any."""
        if self._pending is not None:
            with suppress(CancelledError):
                self._pending.made.exception()
            self.check()


@contextmanager
def _named_states() -> Iterator[None]:
    """Convert an error for a state that can't be written to one that names its operator.

    Raises:
        OperatorError: naming it.
    """
    try:
        yield
    except StateNotSerializable as unwritable:
        raise unwritable.as_operator_error() from unwritable.__cause__

"""The snapshots of a run in this process: restoring, taking them when due or requested, and the last one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from malflow.engine.execution import Run
from malflow.engine.sinks import RunSinks
from malflow.events import SnapshotCommitted, SnapshotFailed
from malflow.runtime.confirmations import Confirmations
from malflow.runtime.control import Request, SnapshotAnswers, abandon
from malflow.runtime.listeners import Listeners
from malflow.runtime.sink_claims import begin_transactions, fenced_first
from malflow.snapshot.delta_check import Recount
from malflow.snapshot.persistence import (
    CoordinatingSession,
    Persistence,
    RestoredState,
    RestoreOptions,
    Session,
    StateNotSerializable,
    job_of,
)
from malflow.states.keyed import StateDelta
from malflow.states.kinds import StateSpec

__all__ = ["RunSnapshots"]


class RunSnapshots:
    """Takes and restores the snapshots of a run; without persistence, does nothing. Closes as a context manager.

    Args:
        persistence: where snapshots are saved.
        states: the program's states.
        start: how the run restores state.
        interval: the seconds between snapshots; None for no periodic ones.
        debug: whether to check that the snapshots add up to the states.
        listeners: the listeners to notify of snapshots; None for the log alone.

    Attributes:
        snapshot: the id of the last snapshot; None if there is none.
    """

    def __init__(
        self,
        persistence: Persistence,
        states: Sequence[StateSpec],
        start: RestoreOptions,
        *,
        interval: float | None = None,
        debug: bool = False,
        listeners: Listeners | None = None,
    ) -> None:
        self._persistence = persistence
        self._states = states
        self._start = start
        self.snapshot: int | None = None
        self._session: Session | None = None
        self._interval = interval
        self._due = 0.0
        self._debug = debug
        self._recount: Recount | None = None
        self._listeners = Listeners(job=job_of(persistence)) if listeners is None else listeners
        self._pending: deque[tuple[int, Future[int], Mapping[str, Any]]] = deque()
        self._sinks: RunSinks | None = None
        self._announced: int | None = None
        self._confirmations = Confirmations(self._listeners)
        self._answers = SnapshotAnswers()

    @property
    def is_blocked(self) -> bool:
        """Whether the run must wait for a snapshot, because its sinks allow no more uncommitted transactions."""
        return self._sinks is not None and self._sinks.is_full

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is still being written."""
        return self._session is not None and self._session.is_busy

    def restore(self, run: Run) -> RestoredState | None:
        """Claim the job, and restore its snapshot into a run that is not open yet; return what it has.

        Raises:
            SnapshotError: if the snapshot can't be read, or does not fit the program.
        """
        if not self._persistence.is_enabled:
            return None
        self._session, restored = self._persistence.open(self._states, self._start)
        self._due = time.monotonic() + (self._interval or 0.0)
        if self._debug:
            self._recount = Recount(restored)
        if restored is not None:
            self.snapshot = self._announced = restored.snapshot
            run.load(restored.tick, restored.parallelism, restored.states, restored.versions, restored.placements)
            run.clock.advance_to(restored.time)
        begin_transactions(run.sinks, self._persistence, self._session, self._start, self.snapshot)
        self._sinks = run.sinks
        if run.sinks.has_unkept():
            self.finish(run)  # where they stand before the first record, so that they can go back there
        return restored

    def check(self) -> None:
        """Announce the snapshots that are done, commit their sinks, and raise what went wrong in the background.

        Raises:
            OperatorError: if a sink can't be committed.
            SnapshotError: if the run can't go on after it.
        """
        self._settle()
        if self._session is not None:
            self._session.check()

    def confirm(self, run: Run) -> None:
        """Confirm positions in a snapshot that has become durable to the readers; called between two ticks.

        Requests for the snapshot are answered then: it has been announced, and its sinks are committed.
        """
        self._confirmations.confirm(run)
        self._answers.give()

    def confirm_restored(self, run: Run) -> None:
        """Confirm the positions in the snapshot that an open run was restored from, if any."""
        if self.snapshot is not None:
            self._confirmations.confirm_restored(run)

    def keep(self, run: Run) -> None:
        """Take a snapshot if one is due or a failed one is to be retried; never two at once.

        Raises:
            OperatorError: if a state can't be written.
            SnapshotError: if the run can't go on.
        """
        session = self._session
        if session is None or session.is_busy:
            return
        if session.wants_retry or (self._interval is not None and time.monotonic() >= self._due):
            self.commit(run)
            self._due = time.monotonic() + (self._interval or 0.0)

    def commit(self, run: Run) -> Future[int] | None:
        """Capture the changed state and write it in the background; None without persistence.

        Raises:
            OperatorError: if a state can't be written.
            SnapshotError: if the run can't go on.
        """
        if self._session is None:
            return None
        self._settle()
        base = self._session.needs_full_snapshot(run.parallelism)
        with fenced_first(self._session):
            deltas = run.deltas(base)
        if self._recount is not None:
            self._recount.check(deltas, run.states(), base=base)
        return self._submit(self._session.commit, run, deltas)

    def _submit(self, commit: Callable[..., Future[int]], run: Run, deltas: Sequence[StateDelta]) -> Future[int]:
        try:
            made = commit(run.ticks, run.parallelism, self._states, deltas)
        except StateNotSerializable as unwritable:
            raise unwritable.as_operator_error() from unwritable.__cause__
        self._confirmations.capture(run, made)
        self._pending.append((run.ticks, made, run.sinks.captured))
        return made

    def _settle(self) -> None:
        """Announce the snapshots that are done, and commit the sinks' transactions that the newest of them has."""
        durable = self._announce()
        if not durable or self._sinks is None or self._session is None:
            return
        with fenced_first(self._session):
            self._sinks.commit(durable)

    def _announce(self) -> Mapping[str, Any]:
        """Announce the snapshots that are done, and return the positions of the sinks in the newest."""
        durable: Mapping[str, Any] = {}
        while self._pending and self._pending[0][1].done():
            tick, made, positions = self._pending.popleft()
            if made.cancelled() or self._session is None:
                continue
            error = made.exception()
            if error is not None:
                self._listeners.notify(SnapshotFailed(tick, error, self._session.retry_after))
                continue
            durable = positions
            self.snapshot = made.result()
            if made.result() != self._announced:  # otherwise nothing had changed
                self._announced = made.result()
                self._listeners.notify(SnapshotCommitted(made.result(), tick))
        return durable

    def answer(self, run: Run, requests: Sequence[Request]) -> None:
        """Take one snapshot, and complete all `requests` with its result once it is confirmed."""
        made = self.commit(run)
        if made is None:
            abandon(requests)
        else:
            self._answers.follow(requests, made)

    def finish(self, run: Run) -> None:
        """Take the last snapshot, wait for it, and commit the transactional sinks.

        Raises:
            OperatorError: if a state can't be written, or a sink fails.
            SnapshotError: if the snapshot can't be written.
        """
        last = self.commit(run)
        if last is not None:
            self._await(last)
            self._amend(run)
            self.confirm(run)

    def finish_sinks(self, run: Run) -> None:
        """Deliver the output of a run's end to the transactional sinks; the snapshot keeps the states before the end.

        Raises:
            OperatorError: if a sink fails.
            SnapshotError: if the snapshot can't be written.
        """
        if run.sinks.has_transactions and self._session is not None:
            run.sinks.end()
            self._amend(run)
            self._amend(run)

    def _amend(self, run: Run) -> None:
        """Add to the last snapshot that the sinks' transactions in it are committed, or that there is another one."""
        if isinstance(self._session, CoordinatingSession) and (deltas := run.sinks.transaction_deltas()):
            self._await(self._submit(self._session.amend, run, deltas))

    def _await(self, made: Future[int]) -> None:
        made.exception()
        self._settle()
        made.result()
        self.check()

    def __enter__(self) -> RunSnapshots:
        """Return this object; `restore` opens the session."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        """Close the session; after a failure, a snapshot that is being written may or may not be committed."""
        if self._session is not None:
            self._session.close(wait=kind is None)
            self._announce()
        self._answers.end(error)

"""The snapshots of a run in this process: restoring, taking them when due or requested, and the last one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

from malflow.engine.execution import Run
from malflow.errors import OperatorError
from malflow.events import SnapshotCommitted, SnapshotFailed
from malflow.runtime.confirmations import Confirmations
from malflow.runtime.control import Request, abandon, follow
from malflow.runtime.listeners import Listeners
from malflow.snapshot.persistence import Persistence, RestoreOptions, Session, StateNotSerializable, job_of
from malflow.snapshot.recount import Recount
from malflow.state_kinds import StateSpec

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
        self._pending: deque[tuple[int, Future[int]]] = deque()
        self._announced: int | None = None
        self._confirmations = Confirmations(self._listeners)

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is still being written."""
        return self._session is not None and self._session.is_busy

    def restore(self, run: Run) -> None:
        """Claim the job, and restore its snapshot into a run that is not open yet.

        Raises:
            SnapshotError: if the snapshot can't be read, or does not fit the program.
        """
        if not self._persistence.is_enabled:
            return
        self._session, restored = self._persistence.open(self._states, self._start)
        self._due = time.monotonic() + (self._interval or 0.0)
        if self._debug:
            self._recount = Recount(restored)
        if restored is not None:
            self.snapshot = self._announced = restored.snapshot
            run.load(restored.tick, restored.parallelism, restored.states, restored.versions, restored.placements)
            run.clock.advance_to(restored.time)
        if run.has_unkept_sinks:
            self.finish(run)  # where they stand before the first record, so that they can go back there

    def check(self) -> None:
        """Announce the snapshots that are done, and raise what went wrong in the background.

        Raises:
            SnapshotError: if the run can't go on after it.
        """
        self._announce()
        if self._session is not None:
            self._session.check()

    def confirm(self, run: Run) -> None:
        """Confirm positions in a snapshot that has become durable to the readers; called between two ticks."""
        self._confirmations.confirm(run)

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
        self._announce()
        base = self._session.needs_full_snapshot(run.parallelism)
        try:
            deltas = run.deltas(base)
        except OperatorError:
            self._session.confirm()  # a run that has taken over has the sinks, too
            raise
        if self._recount is not None:
            self._recount.check(deltas, run.states(), base=base)
        try:
            made = self._session.commit(run.ticks, run.parallelism, self._states, deltas)
        except StateNotSerializable as unwritable:
            raise unwritable.as_operator_error() from unwritable.__cause__
        self._confirmations.capture(run, made)
        made.add_done_callback(self._note)
        self._pending.append((run.ticks, made))
        return made

    def _note(self, made: Future[int]) -> None:
        if not made.cancelled() and made.exception() is None:
            self.snapshot = made.result()

    def _announce(self) -> None:
        while self._pending and self._pending[0][1].done():
            tick, made = self._pending.popleft()
            if made.cancelled() or self._session is None:
                continue
            error = made.exception()
            if error is not None:
                self._listeners.notify(SnapshotFailed(tick, error, self._session.retry_after))
            elif made.result() != self._announced:  # otherwise nothing had changed
                self._announced = made.result()
                self._listeners.notify(SnapshotCommitted(made.result(), tick))

    def answer(self, run: Run, requests: Sequence[Request]) -> None:
        """Take one snapshot and complete all `requests` with its result."""
        made = self.commit(run)
        if made is None:
            abandon(requests)
        else:
            follow(requests, made)

    def finish(self, run: Run) -> None:
        """Take the last snapshot and wait for it.

        Raises:
            OperatorError: if a state can't be written.
            SnapshotError: if the snapshot can't be written.
        """
        last = self.commit(run)
        if last is not None:
            last.exception()
            self._announce()
            last.result()
            self.check()
            self.confirm(run)

    def __enter__(self) -> RunSnapshots:
        """Return this object; `restore` opens the session."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Close the session; after a failure, a snapshot that is being written may or may not be committed."""
        if self._session is not None:
            self._session.close(wait=kind is None)
            self._announce()

"""A run as attempts: each claims the job and drives a host; a loop makes the next one, and a handle has the loop."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, TypeVar

from malflow.checks import checked_seconds
from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.errors import MalflowError, release_all
from malflow.events import Restarted
from malflow.runtime.coordination.coordinator import Coordinator
from malflow.runtime.coordination.snapshots import RunSnapshots
from malflow.runtime.handle import RunHandle
from malflow.runtime.host import Host
from malflow.runtime.options import RunOptions
from malflow.runtime.progress.progress import Progress, finished
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.restarts import PASSING, RestartGuard, RestartPolicy
from malflow.runtime.transport.surroundings import thread_with_context

__all__ = ["Attempt", "DrivenHandle", "Restarts", "RunLoop"]

_TURN = 0.05
"""The seconds after which a pause notices a stop. Half: more wakeups in a pause; double: a stop takes longer."""


class Attempt(ABC):
    """One attempt at a run: claims the job, restores its state, and drives a host to the end.

    It runs only once. A restart makes another attempt, with its own claim, sinks and counts.

    Args:
        program: the program.
        sinks: the sinks in this process.
        options: the options of the run.
        requests: the requests of other threads, and the listeners.
        restarts: decides about another attempt; None if nothing restarts the run.
    """

    def __init__(
        self,
        program: Program,
        sinks: RunSinks,
        options: RunOptions,
        requests: RunRequests,
        restarts: Restarts | None = None,
    ) -> None:
        self._program = program
        self._sinks = sinks
        self._options = options
        self._requests = requests
        self._guard = None if restarts is None else restarts.guard
        self._restarts = 0 if restarts is None else restarts.count
        self._coordinator: Coordinator | None = None
        self._snapshots: RunSnapshots | None = None
        self._last = Progress(0, options.parallelism or 0, {}, 0, None, self._restarts)

    @abstractmethod
    def _drive(self) -> None:
        """Make the coordinator, and drive the host to the end."""

    @abstractmethod
    def _releases(self, error: BaseException | None) -> Sequence[Callable[[], object]]:
        """Return the functions that release everything, in their order.

        Args:
            error: the error that ended the attempt, if any.
        """

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._last if self._coordinator is None else self._coordinator.progress

    @property
    def reader_is_gone(self) -> bool:
        """Whether the reader of a sink's output exited (a broken pipe)."""
        return self._sinks.reader_is_gone

    @property
    def may_follow(self) -> bool:
        """Whether this process can make another attempt after this one."""
        return True

    @property
    def has_begun(self) -> bool:
        """Whether it has claimed the job; another attempt then restores the latest snapshot."""
        return self._snapshots is not None and self._snapshots.session is not None

    @property
    def began_with(self) -> int | None:
        """The id of the snapshot that it began with; None for an empty state."""
        return None if self._snapshots is None else self._snapshots.began_with

    @property
    def has_kept(self) -> bool:
        """Whether it has taken a snapshot since it began."""
        return self._snapshots is not None and self._snapshots.snapshot != self.began_with

    def run(self) -> None:
        """Run to the end, and release everything.

        Raises:
            MalflowError: the error that ended the attempt.
        """
        ended: BaseException | None = None
        try:
            with self._fencing_named():
                self._drive()
        except BaseException as error:
            ended = error
            raise
        finally:
            try:
                release_all(self._releases(ended), ended)
            finally:
                self._last, self._coordinator = self.progress, None  # with all that the run held in memory
                ended = None  # its traceback holds this frame

    def _coordinate(self, host: Host) -> Coordinator:
        """Return the coordinator of this attempt."""
        self._coordinator = made = Coordinator(
            self._program,
            host,
            self._sinks,
            self._options,
            self._requests,
            guard=self._guard,
            restarts=self._restarts,
        )
        self._snapshots = made.snapshots
        return made

    @contextmanager
    def _fencing_named(self) -> Iterator[None]:
        """Convert errors inside this context if another run has claimed the job, so that no restart claims it back."""
        try:
            yield
        except MalflowError as error:
            if self._guard is None or self._coordinator is None:
                raise
            fenced = self._coordinator.snapshots.fenced()
            if fenced is None:
                raise
            raise fenced from error


class Restarts:
    """Decides whether a failed attempt is followed by another, and waits before it.

    Args:
        program: the program.
        policy: the limits; None for the default ones.
        requests: the requests to the run, and its listeners.
        keeps: whether the run has a persistence.

    Attributes:
        count: the number of restarts so far.
        guard: rejects a restart that would count records twice.
    """

    def __init__(self, program: Program, policy: RestartPolicy | None, requests: RunRequests, *, keeps: bool) -> None:
        self.count = 0
        self.guard = RestartGuard(program)
        self._policy = policy or RestartPolicy()
        self._requests = requests
        self._keeps = keeps
        self._failures = 0

    def allows(self, attempt: Attempt, error: BaseException) -> bool:
        """Record the failure of an attempt; return whether another one follows, after a pause.

        Args:
            attempt: the attempt.
            error: one of `PASSING`.
        """
        self._failures = 1 if attempt.has_kept else self._failures + 1
        if attempt.has_begun:
            self.guard.note_failure(attempt.began_with, attempt.progress.records, error)
        is_wanted = not self._requests.stopping and self._keeps and self._failures <= self._policy.attempts
        return is_wanted and attempt.may_follow

    def pause(self, error: BaseException) -> None:
        """Announce a restart, and wait before it; a stop cuts the wait short."""
        self.count += 1
        self._requests.phase = "restarting"
        backoff = checked_seconds("RestartPolicy", "backoff", self._policy.backoff, may_be_zero=True)
        pause = backoff * 2 ** (self._failures - 1)
        self._requests.listeners.notify(Restarted(self.count, error, pause))
        deadline = time.monotonic() + pause
        while time.monotonic() < deadline and not self._requests.stopping:
            time.sleep(_TURN)


A = TypeVar("A", bound=Attempt)


class RunLoop(Generic[A]):
    """Makes attempts at a run until one ends it.

    Args:
        program: the program.
        options: the options of the first attempt; later ones restore the latest snapshot.
        requests: the requests to the run, and its listeners.
        restarts: decides about restarts; None if the run is never restarted.
        new_attempt: returns an attempt with these options, of the class of `options`.

    Attributes:
        attempt: the current attempt, or the last one; None before the first.
    """

    def __init__(
        self,
        program: Program,
        options: RunOptions,
        requests: RunRequests,
        restarts: Restarts | None,
        new_attempt: Callable[[Any], A],
    ) -> None:
        self.attempt: A | None = None
        self._program = program
        self._options = options
        self._requests = requests
        self._restarts = restarts
        self._new_attempt = new_attempt

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        if self.attempt is None:
            return self._requests.stamped(Progress(0, self._options.parallelism or 0, {}, 0, None, 0))
        return self._requests.stamped(self.attempt.progress)

    @property
    def reader_is_gone(self) -> bool:
        """Whether the run has ended because the reader of a sink's output exited (a broken pipe)."""
        return self.attempt is not None and self.attempt.reader_is_gone

    def run(self, within: AbstractContextManager[object]) -> None:
        """Run to the end.

        Args:
            within: the surroundings of all attempts.

        Raises:
            MalflowError: the error that ended the run; see `SingleThreadRuntime.execute`.
        """
        self.attempt = first = self._new_attempt(self._options)
        ended: BaseException | None = None
        try:
            with within:
                self._run_until_done(first)
        except BaseException as error:
            ended = error
            raise
        finally:
            self._requests.end(ended)
            self._requests.listeners.notify(finished(self._program, self.progress, ended))
            ended = None  # its traceback holds this frame

    def _run_until_done(self, attempt: A) -> None:
        """Run to the end, with restarts from the last snapshot after failures outside the dataflow."""
        while True:
            try:
                attempt.run()
            except PASSING as error:
                if self._restarts is None or not self._restarts.allows(attempt, error):
                    raise
                self._restarts.pause(error)
            else:
                return
            options = replace(self._options, parallelism=attempt.progress.parallelism)
            self._options = replace(options, restore="latest") if attempt.has_begun else options
            self.attempt = attempt = self._new_attempt(self._options)


class DrivenHandle(RunHandle, Generic[A]):
    """A handle of a run that this process drives, on the thread of the caller or on one of its own.

    Args:
        loop: makes the attempts at the run.
        requests: the requests to the run.
        keeps: whether the run has a persistence.
    """

    def __init__(self, loop: RunLoop[A], requests: RunRequests, *, keeps: bool) -> None:
        super().__init__(requests, keeps=keeps)
        self._loop = loop

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._loop.progress

    @property
    def reader_is_gone(self) -> bool:
        """Whether the run has ended because the reader of standard output exited (a broken pipe)."""
        return self._loop.reader_is_gone

    @abstractmethod
    def _run(self) -> None:
        """Run the loop to the end."""

    def run(self, held: ExitStack) -> None:
        """Run to the end on this thread.

        Args:
            held: reserves the runtime; closed when the run has ended.

        Raises:
            MalflowError: the error that ended the run.
        """
        try:
            self._supervise(held)
        except BaseException as error:
            if self._requests.listeners.has_handle:  # otherwise nobody can wait, and the error would hold this frame
                self._error = error
            raise
        finally:
            self._ended.set()

    def begin(self, held: ExitStack) -> None:
        """Run in a thread of its own.

        Args:
            held: reserves the runtime until the run has ended; the handle takes it over.
        """
        held = held.pop_all()  # not earlier: until then, the caller's stack is closed after an error
        self._thread = thread_with_context(partial(self._run_apart, held), "malflow-run")
        self._thread.start()

    def _run_apart(self, held: ExitStack) -> None:
        try:
            self._supervise(held)
        except BaseException as error:  # noqa: BLE001 - `await_termination` raises it
            self._error = error

    def _supervise(self, held: ExitStack) -> None:
        with held, self._requests.own.working():
            self._requests.started = datetime.now(UTC)
            self._requests.listeners.start(self)
            self._run()

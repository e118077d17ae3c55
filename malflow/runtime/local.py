"""Runs on ticking hosts: the loop, on the calling thread or in its own thread."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.errors import MalflowError, RunFailed, release_all
from malflow.runtime.base import Runtime
from malflow.runtime.coordination.coordinator import Coordinator, drive
from malflow.runtime.handle import DrivenHandle, RunHandle
from malflow.runtime.host import TickingHost
from malflow.runtime.options import RunOptions
from malflow.runtime.process_state import BROKEN_PIPE, rarer_collections, signals_stop
from malflow.runtime.progress.progress import Progress, finished
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.restarts import PASSING, Restarts

__all__ = ["LocalAttempt", "LocalHandle", "LocalRun", "LocalRuntime"]


class LocalAttempt:
    """One attempt at a run: claims the job, restores its state, and drives the host to the end.

    Args:
        program: the program.
        host: its workers.
        sinks: the sinks in this process.
        options: the options of the run.
        requests: the requests of other threads, and the listeners.
        restarts: makes another attempt after a failure; None if nothing does.
    """

    def __init__(
        self,
        program: Program,
        host: TickingHost,
        sinks: RunSinks,
        options: RunOptions,
        requests: RunRequests,
        restarts: Restarts | None = None,
    ) -> None:
        self._host = host
        self._sinks = sinks
        self._requests = requests
        self._restarts = restarts
        self._coordinator: Coordinator | None = Coordinator(
            program,
            host,
            sinks,
            options,
            requests,
            guard=None if restarts is None else restarts.guard,
            restarts=0 if restarts is None else restarts.count,
        )
        self._snapshots = self._coordinator.snapshots
        self._last = self._coordinator.progress

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        coordinator = self._coordinator
        return self._last if coordinator is None else coordinator.progress

    @property
    def parallelism(self) -> int:
        """The number of workers of each stage."""
        return self._host.parallelism

    @property
    def reader_is_gone(self) -> bool:
        """Whether the reader of a sink's output exited (a broken pipe)."""
        return self._sinks.reader_is_gone

    @property
    def has_begun(self) -> bool:
        """Whether it has claimed the job; another attempt then restores the latest snapshot."""
        return self._snapshots.session is not None

    @property
    def began_with(self) -> int | None:
        """The id of the snapshot that it began with; None for an empty state."""
        return self._snapshots.began_with

    @property
    def has_kept(self) -> bool:
        """Whether it has taken a snapshot since it began."""
        return self._snapshots.snapshot != self.began_with

    def run(self) -> None:
        """Run to the end, and close the host.

        Raises:
            MalflowError: the error that ended the attempt.
        """
        coordinator = self._coordinator
        if coordinator is None:
            raise RunFailed("this run has ended")
        ended: BaseException | None = None
        try:
            self._drive(coordinator)
        except BaseException as error:
            ended = error
            raise
        finally:
            if self._restarts is not None:
                self._requests.ask_again(coordinator.give_back())
            try:
                release_all((partial(self._host.close, ended), partial(coordinator.close, ended)), ended)
            finally:
                self._last, self._coordinator = self.progress, None
                ended = None  # its traceback holds this frame

    def _drive(self, coordinator: Coordinator) -> None:
        try:
            coordinator.restore()
            drive(coordinator, self._host)
        except MalflowError as error:
            if self._restarts is not None and (fenced := self._snapshots.fenced()) is not None:
                raise fenced from error
            raise


class LocalRun:
    """One run of a dataflow, from its first tick to its last, over all restarts.

    Args:
        program: the program.
        new_attempt: returns an attempt with these options.
        options: the options of the run.
        requests: the requests of other threads, and the listeners.
        restarts: decides about restarts; None if the run is never restarted.
    """

    def __init__(
        self,
        program: Program,
        new_attempt: Callable[[RunOptions], LocalAttempt],
        options: RunOptions,
        requests: RunRequests,
        restarts: Restarts | None = None,
    ) -> None:
        self._program = program
        self._new_attempt = new_attempt
        self._options = options
        self._requests = requests
        self._restarts = restarts
        self._attempt = new_attempt(options)

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._requests.stamped(self._attempt.progress)

    @property
    def reader_is_gone(self) -> bool:
        """Whether the run has ended because the reader of a sink's output exited (a broken pipe)."""
        return self._attempt.reader_is_gone

    def run(self) -> None:
        """Run to the end.

        Raises:
            MalflowError: the error that ended the run; see `SingleThreadRuntime.execute`.
        """
        requests = self._requests
        ended: BaseException | None = None
        try:
            with signals_stop(requests.stop, lambda: requests.stopping), rarer_collections():
                self._run_until_done()
        except BaseException as error:
            ended = error
            raise
        finally:
            requests.listeners.notify(finished(self._program, self.progress, ended))
            ended = None  # its traceback holds this frame

    def _run_until_done(self) -> None:
        """Run to the end, with restarts from the last snapshot after failures outside the dataflow."""
        while True:
            attempt = self._attempt
            try:
                attempt.run()
            except PASSING as error:
                if self._restarts is None or not self._restarts.allows(attempt, error):
                    raise
                self._restarts.pause(error)
            else:
                return
            options = replace(self._options, parallelism=attempt.parallelism)
            self._attempt = self._new_attempt(replace(options, restore="latest") if attempt.has_begun else options)


class LocalHandle(DrivenHandle):
    """The handle of a run on ticking hosts.

    Args:
        make: creates the run, in its thread.
        requests: the requests to the run.
        first: the progress before the run is created.
        keeps: whether the run has a persistence.
    """

    def __init__(self, make: Callable[[], LocalRun], requests: RunRequests, first: Progress, *, keeps: bool) -> None:
        super().__init__(requests, keeps=keeps)
        self._make = make
        self._started: LocalRun | None = None
        self._first = first

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._requests.stamped(self._first) if self._started is None else self._started.progress

    @property
    def reader_is_gone(self) -> bool:
        """Whether the run has ended because the reader of standard output exited (a broken pipe)."""
        return self._started is not None and self._started.reader_is_gone

    def _run(self) -> None:
        self._started = self._make()
        self._started.run()


class LocalRuntime(Runtime):
    """A runtime that drives the ticks of its host itself."""

    @abstractmethod
    def _host(self, program: Program, sinks: RunSinks, options: RunOptions) -> TickingHost:
        """Return the workers of a program.

        Raises:
            MalflowError: if they can't be created.
        """

    def _sinks(self, program: Program) -> RunSinks:
        """Return the sinks that are in this process."""
        return RunSinks(program.sinks, policy=program.policy)

    def _restarts(self, program: Program) -> Restarts | None:
        """Return the object that decides about restarts; None if the run is never restarted."""
        del program
        return None

    def _execute(self) -> None:
        with ExitStack() as stack:
            handle = self._handle(stack)
            handle.run(stack.pop_all())
        if handle.reader_is_gone:
            raise SystemExit(BROKEN_PIPE)

    def _start(self) -> RunHandle:
        with ExitStack() as stack:
            handle = self._handle(stack)
            handle.begin(stack)
        return handle

    def _handle(self, held: ExitStack) -> LocalHandle:
        """Reserve the runtime and build the dataflow; return the handle of its run."""
        requests = self._held(held)
        program = self._built()
        return LocalHandle(lambda: self._made(program), requests, self._first_progress, keeps=self._keeps)

    def _made(self, program: Program) -> LocalRun:
        requests, restarts = self._slot.current, self._restarts(program)

        def new_attempt(options: RunOptions) -> LocalAttempt:
            sinks = self._sinks(program)
            return LocalAttempt(program, self._host(program, sinks, options), sinks, options, requests, restarts)

        self._slot.last = run = LocalRun(program, new_attempt, self._options, requests, restarts)
        return run

"""Runs on ticking hosts: the loop, on the calling thread or in its own thread."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.errors import RunFailed, release_all
from malflow.runtime.coordinator import Coordinator, drive
from malflow.runtime.face import Runtime
from malflow.runtime.garbage import rarer_collections
from malflow.runtime.host import TickingHost
from malflow.runtime.options import RunOptions
from malflow.runtime.progress import Progress, finished
from malflow.runtime.requests import RunRequests
from malflow.runtime.run_handle import RunHandle
from malflow.runtime.signals import BROKEN_PIPE, signals_stop

__all__ = ["LocalHandle", "LocalRun", "LocalRuntime"]


class LocalRun:
    """One run of a dataflow, from its first tick to its last.

    Args:
        program: the program.
        host: its workers.
        sinks: the sinks in this process.
        options: the options of the run.
        requests: the requests of other threads, and the listeners.
    """

    def __init__(
        self, program: Program, host: TickingHost, sinks: RunSinks, options: RunOptions, requests: RunRequests
    ) -> None:
        self._program = program
        self._host = host
        self._sinks = sinks
        self._requests = requests
        self._coordinator: Coordinator | None = Coordinator(program, host, sinks, options, requests)
        self._last = self._coordinator.progress

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        coordinator = self._coordinator
        return self._last if coordinator is None else coordinator.progress

    @property
    def reader_is_gone(self) -> bool:
        """Whether the run has ended because the reader of a sink's output exited (a broken pipe)."""
        return self._sinks.reader_is_gone

    def run(self) -> None:
        """Run to the end, and close the host.

        Raises:
            MalflowError: the error that ended the run; see `SingleThreadRuntime.execute`.
        """
        requests = self._requests
        ended: BaseException | None = None
        try:
            with signals_stop(requests.stop, lambda: requests.stopping), rarer_collections():
                self._drive()
        except BaseException as error:
            ended = error
            raise
        finally:
            self._last, self._coordinator = self.progress, None
            requests.listeners.notify(finished(self._program, self._last, ended))
            ended = None  # its traceback holds this frame

    def _drive(self) -> None:
        coordinator = self._coordinator
        if coordinator is None:
            raise RunFailed("this run has ended")
        ended: BaseException | None = None
        try:
            coordinator.restore()
            drive(coordinator, self._host)
        except BaseException as error:
            ended = error
            raise
        finally:
            release_all((partial(self._host.close, ended), partial(coordinator.close, ended)), ended)
            ended = None  # its traceback holds this frame


class LocalHandle(RunHandle):
    """The handle of a run in its own thread.

    Args:
        make: creates the run, in that thread.
        requests: the requests to the run.
        held: reserves the runtime until the run has ended; the handle takes it over.
        first: the progress before the run is created.
        keeps: whether the run has a persistence.
    """

    def __init__(
        self, make: Callable[[], LocalRun], requests: RunRequests, held: ExitStack, first: Progress, *, keeps: bool
    ) -> None:
        super().__init__(requests, keeps=keeps, held=held)
        self._make = make
        self._started: LocalRun | None = None
        self._first = first
        self._begin()

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._first if self._started is None else self._started.progress

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
    def _host(self, program: Program, sinks: RunSinks) -> TickingHost:
        """Return the workers of a program.

        Raises:
            MalflowError: if they can't be created.
        """

    def execute(self) -> None:
        """Build the dataflow and run it until its sources end, `stop` is called, or SIGINT or SIGTERM arrives.

        After a stop, the current tick ends, a last snapshot is taken, and this method returns; a second signal skips
        this. Sinks and sources are always closed. Once it has returned, it may be called again.

        Raises:
            GraphError: if the dataflow is malformed, or this runtime is already running one; nothing has run.
            OperatorError: if user code failed, or a state can't be written.
            SnapshotError: if a snapshot can't be read or written, such as `FencedError` if another run claimed the job.
        """
        with self._held() as requests:
            with requests.own.working():
                run = self._made(self._built())
                run.run()
            if run.reader_is_gone:
                raise SystemExit(BROKEN_PIPE)

    def start(self) -> RunHandle:
        """Build the dataflow and start it in its own thread; signals are left to the caller.

        The thread ends with the process, so wait for the run with `RunHandle.await_termination`.

        Raises:
            GraphError: if the dataflow is malformed, or this runtime is already running one; nothing has run.
        """
        with ExitStack() as stack:
            requests = stack.enter_context(self._held())
            program = self._built()
            return LocalHandle(lambda: self._made(program), requests, stack, self._first_progress, keeps=self._keeps)

    def _made(self, program: Program) -> LocalRun:
        sinks = RunSinks(program.sinks)
        run = LocalRun(program, self._host(program, sinks), sinks, self._options, self._current)
        self._last = run
        return run

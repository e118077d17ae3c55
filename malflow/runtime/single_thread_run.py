"""A run in one thread of this process, from its first tick to its last."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.engine.transactions import check_deliveries
from malflow.engine.workers import Workers
from malflow.errors import release_all
from malflow.runtime.control import RunHandle, RunRequests, table_of
from malflow.runtime.coordinator import Coordinator, drive
from malflow.runtime.garbage import rarer_collections
from malflow.runtime.listeners import Listeners
from malflow.runtime.options import RunOptions
from malflow.runtime.progress import Progress, finished
from malflow.runtime.signals import signals_stop
from malflow.runtime.single_thread_host import SingleThreadHost
from malflow.runtime.time_table import TimeTable

__all__ = ["SingleThreadHandle", "SingleThreadRun"]


class SingleThreadRun:
    """One run of a dataflow, from its first tick to its last.

    Args:
        options: the options of the run.

    Attributes:
        requests: the requests of other threads, and the listeners.
        reader_is_gone: whether it has ended because nobody reads what a sink writes.
    """

    def __init__(self, options: RunOptions) -> None:
        self.requests = RunRequests(Listeners(options.listeners, job=options.job))
        self.reader_is_gone = False
        self._options = options
        self._parallelism = options.parallelism or 1
        self._running: Coordinator | None = None
        self._last = Progress(0, self._parallelism, {}, 0, None, 0)

    @property
    def keeps(self) -> bool:
        """Whether the run has a persistence."""
        return self._options.persistence.is_enabled

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        running = self._running
        return self._last if running is None else running.progress

    def explain_time(self, timeout: float) -> TimeTable:
        """Return which operators wait for an epoch, and for which source.

        Raises:
            GraphError: if user code of the dataflow asks.
            TimeoutError: if the tick does not end in time.
        """
        if self._running is not None:
            self.requests.ask_explanation(timeout)
        return table_of(self.requests.explained, self.progress)

    def run(self, program: Program) -> None:
        """Run a program to its end.

        Raises:
            MalflowError: the error that ended it; see `SingleThreadRuntime.execute`.
        """
        options, requests = self._options, self.requests
        check_deliveries(program, keeps=self.keeps)
        workers = Workers(program, parallelism=self._parallelism, tracked=self.keeps, debug=options.debug)
        sinks = RunSinks(program.sinks)
        host = SingleThreadHost(program, workers, sinks, debug=options.debug and self.keeps)
        self._running = Coordinator(program, host, sinks, options, requests)
        try:
            with signals_stop(requests.stop, lambda: requests.stopping), rarer_collections():
                self._drive(self._running, host)
        except BaseException as error:
            requests.listeners.notify(finished(program, self.progress, error))
            raise
        requests.listeners.notify(finished(program, self.progress, None))
        self.reader_is_gone = sinks.reader_is_gone

    def _drive(self, coordinator: Coordinator, host: SingleThreadHost) -> None:
        ended: BaseException | None = None
        try:
            coordinator.restore()
            drive(coordinator, host)
        except BaseException as error:
            ended = error
            raise
        finally:
            release_all((partial(host.close, ended), partial(coordinator.close, ended)), ended)
            ended = None  # its traceback holds this frame

    def end(self, error: BaseException | None) -> None:
        """Record the last progress, and cancel or fail all requests."""
        self._last, self._running = self.progress, None
        self.requests.end(error)


class SingleThreadHandle(RunHandle):
    """The handle of a run in a thread of its own.

    Args:
        run: the run.
        program: the program to run.
        held: reserves the runtime until the run has ended; the handle takes it over.
    """

    def __init__(self, run: SingleThreadRun, program: Program, held: ExitStack) -> None:
        super().__init__(run.requests, keeps=run.keeps, held=held)
        self._started = run
        self._program = program
        self._begin()

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._started.progress

    @property
    def reader_is_gone(self) -> bool:
        """Whether the run has ended because the reader of standard output has gone (a broken pipe)."""
        return self._started.reader_is_gone

    def _run(self) -> None:
        self._started.run(self._program)

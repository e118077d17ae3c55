"""The common interface of all runtimes: one run at a time, the requests to it, and its progress."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Protocol

from malflow.engine.plan import Program, compile_graph
from malflow.engine.sink_transactions import check_deliveries
from malflow.errors import GraphError
from malflow.graph import Graph
from malflow.runtime.listeners import Listeners
from malflow.runtime.options import RunOptions, check_build
from malflow.runtime.progress import Progress
from malflow.runtime.requests import RunRequests
from malflow.runtime.run_handle import RunHandle
from malflow.runtime.state_views import StateView, WindowsView
from malflow.runtime.time_table import TimeTable
from malflow.streams.stream import StreamProvider

__all__ = ["Runtime"]


class _Running(Protocol):
    @property
    def progress(self) -> Progress: ...


class Runtime(ABC):
    """A runtime: builds a dataflow and runs it, any number of times, but one run at a time.

    Args:
        build_dataflow: builds the dataflow with the `StreamProvider` that it receives; called once per execution.
        options: the options of the runs.

    Raises:
        GraphError: if `build_dataflow` is not a plain function.
    """

    def __init__(self, build_dataflow: Callable[[StreamProvider], object], options: RunOptions) -> None:
        check_build(build_dataflow, type(self).__name__)
        self._build = build_dataflow
        self._options = options
        self._executing = threading.Lock()
        self._current = self._next = self._new_requests()
        self._last: _Running | None = None

    @abstractmethod
    def execute(self) -> None:
        """Build the dataflow and run it to its end."""

    @abstractmethod
    def start(self) -> RunHandle:
        """Build the dataflow and start it in the background."""

    def stop(self) -> None:
        """Stop the run after the current tick; callable from another thread, a signal handler or user code.

        If nothing is running, the next run ends before its first tick.
        """
        self._next.stop()

    def snapshot(self) -> Future[int]:
        """Request a snapshot after the current tick; callable from anywhere `stop` is.

        Requests made while a snapshot is being written share the next one.

        Returns:
            A future of the snapshot's id or its error; cancelled if the run ends first. If user code of the dataflow or
            a signal handler waits for it, that is a `GraphError`, since the tick could never end.

        Raises:
            GraphError: if the runtime has no persistence.
            SnapshotError: if the run has ended.
        """
        return self._current.ask_snapshot(keeps=self._keeps)

    def rescale(self, parallelism: int) -> Future[None]:
        """Change the number of workers after the current tick; callable from anywhere `stop` is.

        Each key moves to the worker that its partitioner chooses, and the parts of sources are reassigned. Requests are
        served in order.

        Returns:
            A future that completes with the rescale and is cancelled if the run ends first. It holds the error if the
            run fails in between. If the dataflow can't be rescaled, the run continues unchanged, and it holds a
            `SnapshotError` for state under ``key_local``, or a `GraphError` for readers that can't move between
            processes. User code of the dataflow can't wait for it.

        Raises:
            GraphError: if `parallelism` is not a positive integer.
            SnapshotError: if the run has ended.
        """
        return self._current.ask_rescale(parallelism)

    def state(self, name: str) -> StateView:
        """Return the states of an operator, to ask for them while it runs; callable from another thread.

        Args:
            name: the name of the operator, or of one of its hidden states.

        Raises:
            GraphError: if there is no such state, or its entries have no keys.
            QueryError: if no run has begun.
        """
        return StateView(self._current, name)

    def windows(self, name: str) -> WindowsView:
        """Return the windows of an operator, to ask for their results while it runs; callable from another thread.

        Args:
            name: the name of windows, sessions, a cogroup or a rollup.

        Raises:
            GraphError: if there is no such operator, or it has no windows.
            QueryError: if no run has begun.
        """
        return WindowsView(self._current, name)

    def explain_time(self, timeout: float = 30.0) -> TimeTable:
        """Return which operators wait for an epoch (watermark), and for which source; it prints as text.

        During a run, call it from another thread; it waits for the end of the current tick. Afterwards, it returns the
        situation before the end of the stream.

        Args:
            timeout: the maximum number of seconds to wait.

        Raises:
            GraphError: if the run's own thread calls it, as in user code of the dataflow.
            TimeoutError: if the tick takes longer.
        """
        if self._last is not None:
            self._current.ask_explanation(timeout)
        return self._current.time_table(self.progress)

    @property
    def progress(self) -> Progress:
        """The progress of the current or last run; readable from anywhere `stop` is callable.

        On Spark, the parallelism is 0 before the first run, unless it was chosen.
        """
        return self._first_progress if self._last is None else self._last.progress

    @property
    def _first_progress(self) -> Progress:
        return Progress(0, self._options.parallelism or 0, {}, 0, None, 0)

    @property
    def _keeps(self) -> bool:
        return self._options.persistence.is_enabled

    @contextmanager
    def _held(self) -> Iterator[RunRequests]:
        """Reserve the runtime for its next run; after that run, `stop` applies to the following one.

        Raises:
            GraphError: if it is already running.
        """
        error: BaseException | None = None
        with _reserved(self._executing):
            self._last, self._current = None, self._next
            try:
                yield self._current
            except BaseException as raised:
                error = raised
                raise
            finally:
                self._next = self._new_requests()
                self._current.end(error)
                error = None  # its traceback holds this frame

    def _new_requests(self) -> RunRequests:
        return RunRequests(Listeners(self._options.listeners, job=self._options.job))

    def _built(self) -> Program:
        """Build the dataflow.

        Raises:
            GraphError: if it is malformed, or a sink can't provide its delivery guarantee.
        """
        graph = Graph()
        with self._current.own.working():
            self._build(StreamProvider(graph))
            program = compile_graph(graph)
        check_deliveries(program, keeps=self._keeps)
        self._current.program = program
        return program


@contextmanager
def _reserved(lock: threading.Lock) -> Iterator[None]:
    """Hold the lock of a runtime, which executes one run at a time.

    Raises:
        GraphError: if the runtime is already running.
    """
    if not lock.acquire(blocking=False):
        raise GraphError("this runtime is already running a dataflow; create another one for another run")
    try:
        yield
    finally:
        lock.release()

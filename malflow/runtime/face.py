"""The common interface of all runtimes: one run at a time, the requests to it, and its progress."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, ClassVar

from malflow.diagnostics import location
from malflow.engine.plan import Program, compile_graph
from malflow.engine.policies import with_policies
from malflow.engine.sink_transactions import check_deliveries
from malflow.errors import GraphError, OperatorError
from malflow.failures import Replayed
from malflow.graph import Graph
from malflow.runtime.hooks import Call, chosen_by_hook, of_all_runs
from malflow.runtime.listeners import Listeners
from malflow.runtime.options import RunOptions, check_build
from malflow.runtime.progress import Progress
from malflow.runtime.requests import RunRequests
from malflow.runtime.run_handle import RunHandle, SkippedHandle
from malflow.runtime.run_slot import RunSlot
from malflow.runtime.state_views import StateView, WindowsView
from malflow.runtime.time_table import TimeTable
from malflow.runtime.tracebacks import of_user
from malflow.runtime.why_answer import Why
from malflow.runtime.why_asking import ask_why
from malflow.streams.stream import StreamProvider

__all__ = ["Runtime"]


class Runtime(ABC):
    """A runtime: builds a dataflow and runs it, any number of times, but one run at a time.

    Args:
        build_dataflow: builds the dataflow with the `StreamProvider` that it receives; called once per execution.
        options: the options of the runs.

    Raises:
        GraphError: if `build_dataflow` is not a plain function.
    """

    _kind: ClassVar[str] = "single"
    """The kind of the runtime, for those who look at its runs."""

    def __init__(self, build_dataflow: Callable[[StreamProvider], object], options: RunOptions) -> None:
        check_build(build_dataflow, type(self).__name__)
        self._build = build_dataflow
        self._options = options
        self._location = location()
        self._slot = RunSlot()

    def execute(self) -> None:
        """Build the dataflow and run it until its sources end, `stop` is called, or SIGINT or SIGTERM arrives.

        After a stop, the current tick ends, a last snapshot is taken, and this method returns; a second signal skips
        this. Sinks and sources are always closed. Once it has returned, it may be called again.

        Raises:
            GraphError: if the dataflow is malformed or can't run on this runtime, or the runtime is already running
                one; nothing has run.
            MissingDependency: if a package or Java is missing.
            OperatorError: if user code failed, or a state can't be written.
            SnapshotError: if a snapshot can't be read or written, such as `FencedError` if another run claimed the job.
            RunFailed: if processes failed more often than `restart` allows, where the runtime has such.
        """
        runtime = self._chosen("execute")
        if runtime is None:
            return
        try:
            runtime._execute()
        except (GraphError, OperatorError) as error:
            of_user(error)
            raise

    def start(self) -> RunHandle:
        """Build the dataflow and start it in its own thread; signals are left to the caller.

        The thread ends with the process, so wait for the run with `RunHandle.await_termination`.

        Raises:
            MalflowError: any error that `execute` raises before anything has run.
        """
        runtime = self._chosen("start")
        return SkippedHandle(self.progress) if runtime is None else runtime._start()

    @abstractmethod
    def _execute(self) -> None:
        """Build the dataflow and run it to its end."""

    @abstractmethod
    def _start(self) -> RunHandle:
        """Build the dataflow and start it in the background."""

    def _chosen(self, call: Call) -> Runtime | None:
        """Return the runtime that runs in place of this one, with its slot; None if nothing is to run."""
        runtime: Runtime | None = chosen_by_hook(self, call)
        if runtime is not None:
            runtime._slot = self._slot
        return runtime

    def stop(self) -> None:
        """Stop the run after the current tick; callable from another thread, a signal handler or user code.

        If nothing is running, the next run ends before its first tick.
        """
        self._slot.next.stop()

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
        return self._slot.current.ask_snapshot(keeps=self._keeps)

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
        return self._slot.current.ask_rescale(parallelism)

    def replay(self, operator: str, ids: Sequence[str] | None = None) -> Future[Replayed]:
        """Process dead letters of an operator again, in the next tick, before its input; oldest first.

        A letter leaves the state with the effect of its record, so that a snapshot has both or neither. If it fails
        again, it is a new letter with one more attempt. A crash before the next snapshot brings it back.

        Args:
            operator: the operator.
            ids: the ids of the letters; None for all. Unknown ones are ignored.

        Returns:
            A future of a `Replayed`, which counts them, and those that can't be replayed. It holds a `QueryError` if
            the run ends before. User code of the dataflow can't wait for it.

        Raises:
            GraphError: if no such operator can have dead letters.
            QueryError: if the run has not begun, or has ended.
        """
        return self._slot.current.ask_replay(operator, ids, discards=False)

    def discard(self, operator: str, ids: Sequence[str] | None = None) -> Future[Replayed]:
        """Remove dead letters of an operator without a further attempt, in the next tick.

        Args:
            operator: the operator.
            ids: the ids of the letters; None for all. Unknown ones are ignored.

        Returns:
            A future of a `Replayed`, which counts them; see `replay`.

        Raises:
            GraphError: if no such operator can have dead letters.
            QueryError: if the run has not begun, or has ended.
        """
        return self._slot.current.ask_replay(operator, ids, discards=True)

    def state(self, name: str) -> StateView[Any, Any]:
        """Return the states of an operator, to ask for them while it runs; callable from another thread.

        Args:
            name: the name of the operator, or of one of its hidden states.

        Raises:
            GraphError: if there is no such state, or its entries have no keys.
            QueryError: if no run has begun.
        """
        return StateView(self._slot.current, name)

    def windows(self, name: str) -> WindowsView[Any, Any, Any]:
        """Return the windows of an operator, to ask for their results while it runs; callable from another thread.

        Args:
            name: the name of windows, sessions, a cogroup or a rollup.

        Raises:
            GraphError: if there is no such operator, or it has no windows.
            QueryError: if no run has begun.
        """
        return WindowsView(self._slot.current, name)

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
        if self._slot.last is not None:
            self._slot.current.ask_explanation(timeout)
        return self._slot.current.time_table(self.progress)

    def why(self, operator: str | None = None, timeout: float = 30.0) -> Why:
        """Return why nothing comes out of an operator, or of the whole run; it prints as text.

        It takes two readings of the run, up to two seconds apart, and names the first cause that applies: see `Why`.
        During a run, call it from another thread. Afterwards, it tells what came out of the run that has ended.

        Args:
            operator: the name of the operator, such as of a sink. None looks at all sinks, or at the operators that
                nothing reads if there are none, and tells the first one with a fault.
            timeout: the maximum number of seconds to wait for the end of a tick; if it takes longer, that is the cause.

        Raises:
            GraphError: if there is no such operator, or user code of the dataflow calls it.
        """
        return ask_why(self._slot.current, lambda: self.progress, operator, timeout)

    @property
    def progress(self) -> Progress:
        """The progress of the current or last run; readable from anywhere `stop` is callable.

        On Spark, the parallelism is 0 before the first run, unless it was chosen.
        """
        return self._first_progress if self._slot.last is None else self._slot.last.progress

    @property
    def _first_progress(self) -> Progress:
        return Progress(0, self._options.parallelism or 0, {}, 0, None, 0)

    @property
    def _keeps(self) -> bool:
        return self._options.persistence.is_enabled

    def _held(self, stack: ExitStack) -> RunRequests:
        """Reserve the runtime for its next run, until the stack is closed.

        Raises:
            GraphError: if it is already running, or the environment asks for something unknown.
        """
        listeners = Listeners(of_all_runs(self._options.listeners), job=self._options.job)
        requests = stack.enter_context(self._slot.held(listeners))
        requests.runtime = self._kind
        return requests

    def _built(self) -> Program:
        """Build the dataflow.

        Raises:
            GraphError: if it is malformed, or a sink can't provide its delivery guarantee.
        """
        graph = Graph()
        with self._slot.current.own.working():
            self._build(StreamProvider(graph))
            program = compile_graph(graph)
            if graph.policies or graph.default_policy is not None:
                program = with_policies(program, graph.policies, graph.default_policy)
        check_deliveries(program, keeps=self._keeps)
        self._slot.current.program = program
        return program

"""The common interface of all runtimes: one run at a time, the requests to it, and its progress."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from typing import ClassVar

from malflow.diagnostics import location
from malflow.engine.plan import Program
from malflow.engine.sink_transactions import check_deliveries
from malflow.errors import GraphError, OperatorError
from malflow.runtime.building import built
from malflow.runtime.hooks import Call, chosen_by_hook, of_all_runs
from malflow.runtime.listeners import Listeners
from malflow.runtime.options import RunOptions, check_build
from malflow.runtime.progress import Progress
from malflow.runtime.requests import RunRequests
from malflow.runtime.run_handle import RunHandle, SkippedHandle
from malflow.runtime.run_slot import RunSlot
from malflow.runtime.steered import Steered
from malflow.runtime.tracebacks import of_user
from malflow.snapshot.persistence import place_of
from malflow.streams.stream import StreamProvider

__all__ = ["Runtime"]


class Runtime(Steered):
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
        except (GraphError, OperatorError, KeyboardInterrupt) as error:
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
    def _asked(self) -> RunRequests:
        return self._slot.current

    @property
    def _has_begun(self) -> bool:
        return self._slot.last is not None

    @property
    def _keeps(self) -> bool:
        return self._options.persistence.is_enabled

    def _held(self, stack: ExitStack) -> RunRequests:
        """Reserve the runtime for its next run, until the stack is closed.

        Raises:
            GraphError: if it is already running, or the environment asks for something unknown.
        """
        own, options = of_all_runs(self._options.listeners), self._options
        listeners = Listeners(own, job=options.job, place=place_of(options.persistence))
        requests = stack.enter_context(self._slot.held(listeners))
        requests.runtime = self._kind
        return requests

    def _built(self) -> Program:
        """Build the dataflow.

        Raises:
            GraphError: if it is malformed, or a sink can't provide its delivery guarantee.
        """
        with self._slot.current.own.working():
            program = built(self._build)
        check_deliveries(program, keeps=self._keeps)
        self._slot.current.program = program
        return program

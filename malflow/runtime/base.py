"""The common interface of all runtimes: one run at a time, the requests to it, and its progress."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from malflow.diagnostics import location
from malflow.engine.plan import Program
from malflow.engine.sink_transactions import check_deliveries
from malflow.errors import GraphError, OperatorError
from malflow.runtime.building import built
from malflow.runtime.handle import RunHandle, SkippedHandle, Steered, of_user
from malflow.runtime.hooks import Call, chosen_by_hook, of_all_runs
from malflow.runtime.options import RunOptions, check_build
from malflow.runtime.progress.listeners import Listeners
from malflow.runtime.progress.progress import Progress
from malflow.runtime.requests.mailbox import RunRequests
from malflow.snapshot.persistence import place_of
from malflow.streams.stream import StreamProvider

__all__ = [
    "Declared",
    "RunSlot",
    "Runtime",
    "declared_by",
    "remade",
]


class _Running(Protocol):
    @property
    def progress(self) -> Progress: ...


class RunSlot:
    """The run of a runtime, with its requests; a runtime that runs in place of another one takes over its slot.

    Attributes:
        current: the requests to the current run, or to the last one.
        next: the requests to the current run or, if nothing runs, to the next one.
        last: the current or last run; None before the first.
    """

    def __init__(self) -> None:
        self._executing = threading.Lock()
        self.current = self.next = RunRequests()
        self.last: _Running | None = None

    @contextmanager
    def held(self, listeners: Listeners) -> Iterator[RunRequests]:
        """Reserve the slot for the next run; after that run, `stop` applies to the following one.

        Args:
            listeners: the listeners of the run.

        Raises:
            GraphError: if a run is in it.
        """
        if not self._executing.acquire(blocking=False):
            raise GraphError("this runtime is already running a dataflow; create another one for another run")
        error: BaseException | None = None
        try:
            self.last, self.current = None, self.next
            self.current.listeners = listeners
            yield self.current
        except BaseException as raised:
            error = raised
            raise
        finally:
            self.next = RunRequests()
            self.current.end(error)
            error = None  # its traceback holds this frame
            self._executing.release()


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
            program = replace(built(self._build), part_assignment=self._options.part_assignment)
        check_deliveries(program, keeps=self._keeps)
        self._slot.current.program = program
        return program


@dataclass(frozen=True, slots=True)
class Declared:
    """The arguments of a runtime.

    Attributes:
        build_dataflow: builds the dataflow.
        options: its options, of the class of its runtime.
        location: the ``file:line`` of the user's code that made it, or None if unknown.
    """

    build_dataflow: Callable[[StreamProvider], object]
    options: RunOptions
    location: str | None


def declared_by(runtime: Runtime) -> Declared:
    """Return the arguments with which a runtime was made."""
    return Declared(runtime._build, runtime._options, runtime._location)


def remade(runtime: Runtime, build_dataflow: Callable[[StreamProvider], object], changes: Mapping[str, Any]) -> Runtime:
    """Return a runtime like another one, of the same class, with some other options, to run in its place.

    Raises:
        GraphError: if an option is invalid.
    """
    made = copy(runtime)
    made._build = build_dataflow
    made._options = replace(runtime._options, **changes)
    return made

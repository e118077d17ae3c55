"""The runtime in one thread of this process; it defines the semantics of every operator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from malflow.engine.execution import Run
from malflow.engine.plan import Program, compile_graph
from malflow.engine.states import states_of
from malflow.errors import GraphError, SnapshotError
from malflow.events import Listener, Rescaled, RescaleRefused, TickFinished
from malflow.graph import Graph
from malflow.runtime.builder import RuntimeBuilder
from malflow.runtime.control import Request, RunHandle, RunRequests, abandon, fail
from malflow.runtime.listeners import Listeners, check_listeners
from malflow.runtime.options import NOTHING, check_build, check_interval, check_parallelism, check_start
from malflow.runtime.progress import Progress, finished, late_of, records_of
from malflow.runtime.signals import BROKEN_PIPE, signals_stop
from malflow.runtime.snapshots import RunSnapshots
from malflow.snapshot.persistence import Persistence, RestoreOptions, job_of
from malflow.streams.stream import StreamProvider

__all__ = ["SingleThreadRuntime", "SingleThreadRuntimeBuilder"]

_SHORTEST_REST = 0.001
_LONGEST_REST = 0.05


class SingleThreadRuntime:
    """Run a dataflow in this process, on the calling thread.

    Args:
        build_dataflow: builds the dataflow with the `StreamProvider` that it is passed; called once per execution.
        persistence: where snapshots are saved, such as a `malflow.snapshot.FsspecBackend`.
        snapshots: the interval between snapshots. With None, one is taken only at the end of the run and on request.
        parallelism: the number of logical workers, which share the thread in a fixed order.
        restore: the snapshot to restore: ``"latest"``, an id, or None to start without state.
        recovery: what to do if that snapshot is damaged: ``"strict"`` raises; ``"previous"`` restores the newest intact
            one, so that later records are processed, and written, again.
        renamed: the new names of stateful operators, by their old names.
        allow_dropped_state: stateful operators whose state may be dropped if the program no longer has them.
        debug: whether to make checks that are too expensive to make always. They detect values that change after they
            were emitted, key functions that are not deterministic, changes of keys that would lose state on several
            workers, and states that differ from what snapshots add up to. For tests: records are processed one by one.
        listeners: notified of ticks, snapshots and the end of the run: see `malflow.events`.

    Raises:
        GraphError: if an argument is not valid.
    """

    def __init__(
        self,
        build_dataflow: Callable[[StreamProvider], object],
        persistence: Persistence = NOTHING,
        snapshots: timedelta | None = None,
        parallelism: int = 1,
        *,
        restore: Literal["latest"] | int | None = "latest",
        recovery: Literal["strict", "previous"] = "strict",
        renamed: Mapping[str, str] | None = None,
        allow_dropped_state: Collection[str] = (),
        debug: bool = False,
        listeners: Sequence[Listener] = (),
    ) -> None:
        check_build(build_dataflow, "SingleThreadRuntime")
        self._build = build_dataflow
        self._interval = check_interval(snapshots, persistence)
        self._persistence = persistence
        self._parallelism = check_parallelism(parallelism)
        self._start = RestoreOptions(restore, recovery, dict(renamed or {}), allow_dropped_state)
        check_start(self._start)
        self._debug = debug
        self._listeners = check_listeners(listeners)
        self._executing = threading.Lock()
        self._stopping = False
        self._execution = self._new_execution()

    @classmethod
    def builder(cls) -> SingleThreadRuntimeBuilder:
        """Return a builder, as in Malstrom."""
        return SingleThreadRuntimeBuilder()

    def execute(self) -> None:
        """Build the dataflow and run it until its sources end, `stop` is called, or SIGINT or SIGTERM comes.

        After a stop, the current tick ends, a last snapshot is taken, and this method returns; a second signal does not
        wait for that. Sinks and sources are closed in every case. It may be called again after it has returned.

        Raises:
            GraphError: if the dataflow is malformed, or this runtime is already running one; nothing has run.
            OperatorError: if user code failed, or a state can't be written.
            SnapshotError: if a snapshot can't be read or written, such as `FencedError` if another run claimed the job.
        """
        with self._held() as execution:
            execution.run(self._built())
            if execution.reader_is_gone:
                raise SystemExit(BROKEN_PIPE)

    def start(self) -> RunHandle:
        """Build the dataflow and start it in a thread of its own; it runs beside the caller, who handles signals.

        The thread ends with the process: wait for the run with `RunHandle.await_termination`.

        Raises:
            GraphError: if the dataflow is malformed, or this runtime is already running one; nothing has run.
        """
        with ExitStack() as stack:
            execution = stack.enter_context(self._held())
            work = partial(execution.run, self._built())
            return _SingleThreadHandle(execution, work, stack.pop_all(), keeps=self._persistence.is_enabled)

    def _built(self) -> Program:
        graph = Graph()
        self._build(StreamProvider(graph))
        return compile_graph(graph)

    @contextmanager
    def _held(self) -> Iterator[_Execution]:
        """Hold the runtime for one execution.

        Raises:
            GraphError: if there is one already.
        """
        if not self._executing.acquire(blocking=False):
            raise GraphError("this runtime is already running a dataflow; create another one for another run")
        error: BaseException | None = None
        try:
            execution = self._execution
            if execution.requests.is_over:
                self._execution = execution = self._new_execution()
            if self._stopping:
                execution.requests.stop()
            yield execution
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._stopping = False
            execution.end(error)
            error = None  # its traceback holds this frame
            self._executing.release()

    def _new_execution(self) -> _Execution:
        return _Execution(
            self._persistence,
            self._start,
            self._parallelism,
            Listeners(self._listeners, job=job_of(self._persistence)),
            interval=self._interval,
            debug=self._debug,
        )

    def stop(self) -> None:
        """Stop the run after the current tick; may be called from another thread, a signal handler or user code.

        If nothing is running, the next execution ends before its first tick.
        """
        self._stopping = True  # before the look: an execution that begins meanwhile looks at it afterwards
        self._execution.requests.stop()

    def snapshot(self) -> Future[int]:
        """Request a snapshot after the current tick; may be called from anywhere `stop` may.

        Requests made while a snapshot is being written share the next one.

        Returns:
            A future of the snapshot's id or its error; cancelled if the run ends first. Don't wait for it in user code
            of the dataflow or in a signal handler, since the tick can't end meanwhile.

        Raises:
            GraphError: if the runtime has no persistence.
            SnapshotError: if the run has ended.
        """
        return self._execution.requests.ask_snapshot(keeps=self._persistence.is_enabled)

    def rescale(self, parallelism: int) -> Future[None]:
        """Change the number of workers after the current tick; may be called from anywhere `stop` may.

        Each key moves to the worker that the partitioner of its exchange chooses, and parts of sources are assigned
        anew. Requests are served in order.

        Returns:
            A future that completes with the rescale and is cancelled if the run ends first. It holds the error if the
            run fails meanwhile, and a `SnapshotError` if the dataflow keeps state under ``key_local``; the run then
            continues as it is.

        Raises:
            GraphError: if `parallelism` is not a positive integer.
            SnapshotError: if the run has ended.
        """
        return self._execution.requests.ask_rescale(parallelism)

    @property
    def progress(self) -> Progress:
        """The progress of the current or last run; may be read from anywhere `stop` may be called."""
        return self._execution.progress


class _Execution:
    """One execution of a dataflow, from its first tick to its last.

    Args:
        persistence: where snapshots are saved.
        start: how the run restores state.
        parallelism: the initial number of workers.
        listeners: the listeners of the run.
        interval: the seconds between snapshots; None for no periodic ones.
        debug: whether to make checks that are too expensive to make always.

    Attributes:
        requests: the requests of other threads.
        reader_is_gone: whether it has ended because nobody reads what a sink writes.
    """

    def __init__(
        self,
        persistence: Persistence,
        start: RestoreOptions,
        parallelism: int,
        listeners: Listeners,
        *,
        interval: float | None,
        debug: bool,
    ) -> None:
        self.requests = RunRequests(listeners)
        self.reader_is_gone = False
        self._listeners = listeners
        self._persistence = persistence
        self._start = start
        self._parallelism = parallelism
        self._interval = interval
        self._debug = debug
        self._running: tuple[Program, Run, RunSnapshots] | None = None
        self._last = Progress(0, parallelism, {}, 0, None, 0)
        self._served: list[Request] = []

    @property
    def progress(self) -> Progress:
        """The progress of the execution."""
        running = self._running
        if running is None:
            return self._last
        program, run, snapshots = running
        counts = run.counts.copy()
        return Progress(
            tick=run.ticks,
            parallelism=run.parallelism,
            records=records_of(counts),
            polled=run.polled,
            snapshot=snapshots.snapshot,
            restarts=0,
            late=late_of(program, counts),
        )

    def run(self, program: Program) -> None:
        """Run a program to its end.

        Raises:
            MalflowError: the error that ended it; see `SingleThreadRuntime.execute`.
        """
        run = Run(program, parallelism=self._parallelism, tracked=self._persistence.is_enabled, debug=self._debug)
        snapshots = RunSnapshots(
            self._persistence,
            states_of(program),
            self._start,
            interval=self._interval,
            debug=self._debug,
            listeners=self._listeners,
        )
        self._running = program, run, snapshots
        try:
            with signals_stop(self.requests.stop, lambda: self.requests.stopping), snapshots, run:
                snapshots.restore(run)
                run.open()
                self._loop(run, snapshots)
        except BaseException as error:
            self._listeners.notify(finished(program, self.progress, error))
            raise
        self._listeners.notify(finished(program, self.progress, None))
        self.reader_is_gone = run.reader_is_gone

    def end(self, error: BaseException | None) -> None:
        """Record the last progress, and cancel or fail all requests."""
        self._last, self._running = self.progress, None
        self.requests.end(error)
        abandon(self._served, error)
        self._served.clear()

    def _loop(self, run: Run, snapshots: RunSnapshots) -> None:
        rest = _SHORTEST_REST
        while not self.requests.stopping and not run.is_finished:
            polled = self._tick(run)
            snapshots.check()
            if run.reader_is_gone:
                self.requests.stop()
            self._serve(run, snapshots)
            snapshots.keep(run)
            if polled or run.is_finished:
                rest = _SHORTEST_REST
                continue
            time.sleep(rest)
            rest = min(2 * rest, _LONGEST_REST)
        self._serve(run, snapshots, ending=True)
        snapshots.finish(run)
        if not self.requests.stopping:
            self._tick(run, final=True)

    def _tick(self, run: Run, *, final: bool = False) -> int:
        began = time.perf_counter()
        polled = 0
        if final:
            run.end()
        else:
            polled = run.tick()
        self._listeners.notify(TickFinished(run.ticks, run.parallelism, polled, time.perf_counter() - began))
        return polled

    def _serve(self, run: Run, snapshots: RunSnapshots, *, ending: bool = False) -> None:
        """Serve pending requests; rescales are cancelled once the run is ending."""
        while self.requests.pending and (ending or self.requests.pending[0].parallelism or not snapshots.is_busy):
            self._take_requests()
            try:
                self._do(run, snapshots, ending=ending)
            except Exception as error:
                fail(self._served, error)
                raise
            self._served.clear()

    def _take_requests(self) -> None:
        """Take the oldest request and, if it is for a snapshot, all directly following ones for a snapshot.

        Each is added to `_served` before it leaves the queue, so that none is lost if a signal raises in between.
        """
        requests, served = self.requests.pending, self._served
        while requests and not (served and (served[-1].parallelism or requests[0].parallelism)):
            served.append(requests[0])
            requests.popleft()

    def _do(self, run: Run, snapshots: RunSnapshots, *, ending: bool) -> None:
        first = self._served[0]
        if first.parallelism is None:
            snapshots.answer(run, self._served)
        elif ending:
            abandon(self._served)
        elif first.answer.set_running_or_notify_cancel():
            self._rescale(run, first.parallelism, first.answer)

    def _rescale(self, run: Run, parallelism: int, answer: Future[Any]) -> None:
        previous = run.parallelism
        try:
            run.rescale(parallelism)
        except SnapshotError as error:
            self._listeners.notify(RescaleRefused(run.ticks, parallelism, error))
            answer.set_exception(error)
        else:
            self._listeners.notify(Rescaled(run.ticks, previous, parallelism))
            answer.set_result(None)


class _SingleThreadHandle(RunHandle):
    """The handle of an execution in a thread of its own.

    Args:
        execution: the execution.
        work: runs the execution.
        held: reserves the runtime until the execution has ended.
        keeps: whether snapshots can be saved.
    """

    def __init__(
        self, execution: _Execution, work: Callable[[], None], held: AbstractContextManager[object], *, keeps: bool
    ) -> None:
        super().__init__(execution.requests, keeps=keeps)
        self._execution = execution
        self._work = work
        self._held = held
        self._begin()

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._execution.progress

    def _run(self) -> None:
        with self._held:
            self._work()


class SingleThreadRuntimeBuilder(RuntimeBuilder):
    """Configure a `SingleThreadRuntime` step by step."""

    def build(self, build_dataflow: Callable[[StreamProvider], object]) -> SingleThreadRuntime:
        """Return the configured runtime.

        Raises:
            GraphError: if an option is not valid.
        """
        return SingleThreadRuntime(build_dataflow, **self._options)

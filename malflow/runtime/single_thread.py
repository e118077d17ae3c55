"""A dataflow in this process, on this thread: the runtime that defines what every operator means."""

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
from malflow.snapshot.persistence import Persistence, Start, job_of
from malflow.streams.stream import StreamProvider

__all__ = ["SingleThreadRuntime", "SingleThreadRuntimeBuilder"]

_SHORTEST_REST = 0.001
_LONGEST_REST = 0.05


class SingleThreadRuntime:
    """Run a dataflow in this process, on the calling thread.

    Args:
        build_dataflow: gets a `StreamProvider` and builds the dataflow with it; called once an execution.
        persistence: where state is kept between runs, such as a `malflow.snapshot.FsspecBackend`.
        snapshots: how often to keep it; None keeps it when the run stops or the stream ends, and when asked for.
        parallelism: how many logical workers share the thread, in a fixed order.
        restore: what to begin with: ``"latest"``, the id of a snapshot, or None to begin with nothing.
        recovery: what to do if that snapshot is damaged: ``"strict"`` refuses to run; ``"previous"`` goes back to the
            newest one that is whole, so that what came after it is processed, and written, again.
        renamed: new names of stateful operators by their old ones.
        allow_dropped_state: stateful operators whose state may be dropped where the program has no place for it.
        debug: whether to check what costs too much to check always: values that change after they were emitted, key
            functions that do not answer the same twice, keys that are changed where they would lose their state if
            there were two workers, and keys that what is written of a state does not come to. For tests: it takes
            records one by one.
        listeners: who hears of ticks, snapshots and the end of the run: see `malflow.events`.

    Raises:
        GraphError: if an argument is not what it must be.
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
        self._start = Start(restore, recovery, dict(renamed or {}), allow_dropped_state)
        check_start(self._start)
        self._debug = debug
        self._listeners = check_listeners(listeners)
        self._executing = threading.Lock()
        self._stopping = False
        self._execution = self._new_execution()

    @classmethod
    def builder(cls) -> SingleThreadRuntimeBuilder:
        """Begin to configure a runtime step by step, as Malstrom does."""
        return SingleThreadRuntimeBuilder()

    def execute(self) -> None:
        """Build the dataflow and run it until its sources end, `stop` is called, or SIGINT or SIGTERM comes.

        A stop takes effect at the end of the tick: state is kept, and this returns. A second signal does not wait for
        that. Sinks are closed and sources let go of in every case. It may be called again when it has returned.

        Raises:
            GraphError: if the dataflow is malformed, or this runtime is executing already; nothing has run.
            OperatorError: if user code failed, or a state can't be written.
            SnapshotError: if state could not be read or kept, such as `FencedError` if another run claimed the job.
        """
        with self._held() as execution:
            execution.run(self._built())
            if execution.reader_is_gone:
                raise SystemExit(BROKEN_PIPE)

    def start(self) -> RunHandle:
        """Build the dataflow and start it in a thread of its own; it runs beside the caller, who handles signals.

        The thread ends with the process: wait for the run with `RunHandle.await_termination`.

        Raises:
            GraphError: if the dataflow is malformed, or this runtime is executing already; nothing has run.
        """
        with ExitStack() as stack:
            execution = stack.enter_context(self._held())
            work = partial(execution.run, self._built())
            return _SingleThreadHandle(execution, work, stack.pop_all(), keeps=self._persistence.keeps)

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
            raise GraphError("this runtime is executing already; make another one for another run")
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
        """End the run at the end of its tick; may be called from another thread, a signal handler or user code.

        Where nothing runs yet, the next execution ends before its first tick.
        """
        self._stopping = True  # before the look: an execution that begins meanwhile looks at it afterwards
        self._execution.requests.stop()

    def snapshot(self) -> Future[int]:
        """Have a snapshot taken at the end of the tick; may be called from anywhere `stop` may.

        While one is being written, requests wait; those that wait share the next one.

        Returns:
            A future of its id, or of the error if it fails; cancelled if the run ends before. Don't wait for it in user
            code of the dataflow or in a signal handler, which it would wait for.

        Raises:
            GraphError: if there is nowhere to keep it.
            SnapshotError: if the run has ended.
        """
        return self._execution.requests.ask_snapshot(keeps=self._persistence.keeps)

    def rescale(self, parallelism: int) -> Future[None]:
        """Go on with another number of workers from the end of the tick; may be called from anywhere `stop` may.

        Every key goes to the worker that its exchange's partitioner chooses now, and parts of sources likewise. What
        was asked before is done before.

        Returns:
            A future that is done when that has happened, and cancelled if the run ends before; it has the error if the
            run fails meanwhile, and a `SnapshotError` if the dataflow keeps state under ``key_local``, which then goes
            on as it is.

        Raises:
            GraphError: if `parallelism` is no whole number of one or more.
            SnapshotError: if the run has ended.
        """
        return self._execution.requests.ask_rescale(parallelism)

    @property
    def progress(self) -> Progress:
        """How far the run is, or how far the last one came; may be asked from anywhere `stop` may."""
        return self._execution.progress


class _Execution:
    """One execution of a dataflow, from its first tick to its last.

    Args:
        persistence: where state is kept.
        start: how it begins.
        parallelism: how many workers there are at first.
        listeners: who hears of it.
        interval: the seconds between snapshots, None for none.
        debug: whether to check what costs too much to check always.

    Attributes:
        requests: the requests of other threads.
        reader_is_gone: whether it has ended because nobody reads what a sink writes.
    """

    def __init__(
        self,
        persistence: Persistence,
        start: Start,
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
        """How far it is."""
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
            MalflowError: what ended it: see `SingleThreadRuntime.execute`.
        """
        run = Run(program, parallelism=self._parallelism, tracked=self._persistence.keeps, debug=self._debug)
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
        """Note that it is over, and leave nobody waiting."""
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
        """Do what was asked for since the last tick; nobody is to work with another number of workers at the end."""
        while self.requests.pending and (ending or self.requests.pending[0].parallelism or not snapshots.is_busy):
            self._take_requests()
            try:
                self._do(run, snapshots, ending=ending)
            except Exception as error:
                fail(self._served, error)
                raise
            self._served.clear()

    def _take_requests(self) -> None:
        """Take the oldest request, and if it is for a snapshot those that follow and are, too.

        Each is noted before it leaves the queue, so that none is lost where a signal raises in between.
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
    """An execution that goes on in a thread of its own.

    Args:
        execution: the execution.
        work: runs it.
        held: holds the runtime, until it is over.
        keeps: whether there is a place for snapshots.
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
        """How far the run is."""
        return self._execution.progress

    def _run(self) -> None:
        with self._held:
            self._work()


class SingleThreadRuntimeBuilder(RuntimeBuilder):
    """Configure a `SingleThreadRuntime` step by step."""

    def build(self, build_dataflow: Callable[[StreamProvider], object]) -> SingleThreadRuntime:
        """Make the runtime.

        Raises:
            GraphError: if an option is not what it must be.
        """
        return SingleThreadRuntime(build_dataflow, **self._options)

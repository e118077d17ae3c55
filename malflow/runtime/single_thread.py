"""The runtime in one thread of this process; it defines the semantics of every operator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Literal

from malflow.engine.plan import Program, compile_graph
from malflow.events import Listener
from malflow.graph import Graph
from malflow.runtime.builder import RuntimeBuilder
from malflow.runtime.control import RunHandle, reserved
from malflow.runtime.options import NOTHING, RunOptions, check_build, check_parallelism
from malflow.runtime.progress import Progress
from malflow.runtime.signals import BROKEN_PIPE
from malflow.runtime.single_thread_run import SingleThreadHandle, SingleThreadRun
from malflow.runtime.time_table import TimeTable
from malflow.snapshot.persistence import Persistence
from malflow.streams.stream import StreamProvider

__all__ = ["SingleThreadRuntime", "SingleThreadRuntimeBuilder"]


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
        sinks: what to do if a transactional sink has committed more than the restored snapshot knows of:
            ``"exactly_once"`` raises; ``"accept_duplicates"`` continues, and writes again what was written since.
        at_end: what the end of the input does. ``"finish"`` lets the epoch `MAX` flow: windows close, timers fire,
            patterns and joins answer. ``"keep"`` suspends the run, as a stop does: open windows, timers and waiting
            records stay in the state for the next run. With None, a run with a persistence keeps, and one without
            finishes.

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
        sinks: Literal["exactly_once", "accept_duplicates"] = "exactly_once",
        at_end: Literal["finish", "keep"] | None = None,
    ) -> None:
        check_build(build_dataflow, "SingleThreadRuntime")
        self._build = build_dataflow
        self._options = RunOptions(
            persistence=persistence,
            snapshots=snapshots,
            parallelism=check_parallelism(parallelism),
            restore=restore,
            recovery=recovery,
            renamed=renamed,
            allow_dropped_state=allow_dropped_state,
            debug=debug,
            listeners=listeners,
            sinks=sinks,
            at_end=at_end,
        )
        self._executing = threading.Lock()
        self._run = self._next = SingleThreadRun(self._options)

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
        with self._held() as run:
            with run.requests.own.working():
                run.run(self._built())
            if run.reader_is_gone:
                raise SystemExit(BROKEN_PIPE)

    def start(self) -> RunHandle:
        """Build the dataflow and start it in a thread of its own; it runs beside the caller, who handles signals.

        The thread ends with the process: wait for the run with `RunHandle.await_termination`.

        Raises:
            GraphError: if the dataflow is malformed, or this runtime is already running one; nothing has run.
        """
        with ExitStack() as stack:
            run = stack.enter_context(self._held())
            with run.requests.own.working():
                program = self._built()
            return SingleThreadHandle(run, program, stack)

    def _built(self) -> Program:
        graph = Graph()
        self._build(StreamProvider(graph))
        return compile_graph(graph)

    @contextmanager
    def _held(self) -> Iterator[SingleThreadRun]:
        """Reserve the runtime for its next run; afterwards, `stop` is for the one that follows.

        Raises:
            GraphError: if there is a run already.
        """
        error: BaseException | None = None
        with reserved(self._executing):
            self._run = run = self._next
            try:
                yield run
            except BaseException as raised:
                error = raised
                raise
            finally:
                self._next = SingleThreadRun(self._options)
                run.end(error)
                error = None  # its traceback holds this frame

    def stop(self) -> None:
        """Stop the run after the current tick; may be called from another thread, a signal handler or user code.

        If nothing is running, the next run ends before its first tick.
        """
        self._next.requests.stop()

    def snapshot(self) -> Future[int]:
        """Request a snapshot after the current tick; may be called from anywhere `stop` may.

        Requests made while a snapshot is being written share the next one.

        Returns:
            A future of the snapshot's id or its error; cancelled if the run ends first. User code of the dataflow, and
            signal handlers, can't wait for it, since the tick can't end meanwhile: that is a `GraphError`.

        Raises:
            GraphError: if the runtime has no persistence.
            SnapshotError: if the run has ended.
        """
        return self._run.requests.ask_snapshot(keeps=self._run.keeps)

    def rescale(self, parallelism: int) -> Future[None]:
        """Change the number of workers after the current tick; may be called from anywhere `stop` may.

        Each key moves to the worker that the partitioner of its exchange chooses, and parts of sources are assigned
        anew. Requests are served in order.

        Returns:
            A future that completes with the rescale and is cancelled if the run ends first. It holds the error if the
            run fails meanwhile, and a `SnapshotError` if the dataflow keeps state under ``key_local``; the run then
            continues as it is. User code of the dataflow can't wait for it.

        Raises:
            GraphError: if `parallelism` is not a positive integer.
            SnapshotError: if the run has ended.
        """
        return self._run.requests.ask_rescale(parallelism)

    def explain_time(self, timeout: float = 30.0) -> TimeTable:
        """Return which operators wait for an epoch (watermark), and for which source; it prints as text.

        During a run it is called from another thread, and waits for the end of the current tick. Afterwards, it returns
        what was so before the end of the stream.

        Args:
            timeout: how many seconds to wait.

        Raises:
            GraphError: if the run's own thread calls it, such as user code of the dataflow.
            TimeoutError: if the tick takes longer.
        """
        return self._run.explain_time(timeout)

    @property
    def progress(self) -> Progress:
        """The progress of the current or last run; may be read from anywhere `stop` may be called."""
        return self._run.progress


class SingleThreadRuntimeBuilder(RuntimeBuilder):
    """Configure a `SingleThreadRuntime` step by step."""

    def build(self, build_dataflow: Callable[[StreamProvider], object]) -> SingleThreadRuntime:
        """Return the configured runtime.

        Raises:
            GraphError: if an option is not valid.
        """
        return SingleThreadRuntime(build_dataflow, **self._options)

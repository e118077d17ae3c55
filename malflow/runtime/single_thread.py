"""A dataflow in this process, on this thread: the runtime that defines what every operator means."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any

from malflow.batch import Batch
from malflow.errors import GraphError, SnapshotError, release_all, require_methods
from malflow.graph import Graph
from malflow.operators.endpoints import list_parts
from malflow.operators.failure import shown
from malflow.partitioners import rendezvous_select
from malflow.plan import Program, compile_graph
from malflow.snapshot import NoPersistence, Persistence
from malflow.stream import StreamProvider
from malflow.worker import Worker

__all__ = ["SingleThreadRuntime", "SingleThreadRuntimeBuilder"]

_NOTHING = NoPersistence()
_SHORTEST_REST = 0.001
_LONGEST_REST = 0.05


class SingleThreadRuntime:
    """Run a dataflow in this process, on the calling thread.

    Args:
        build_dataflow: gets a `StreamProvider` and builds the dataflow with it; called once an execution.
        persistence: where state is kept between runs.
        snapshots: how often to keep it; None keeps it at the end of the stream only.
        parallelism: how many logical workers share the thread, in a fixed order.
        debug: whether to check what costs too much to check always: values that change after they were emitted, and
            key functions that do not answer the same twice.

    Raises:
        GraphError: if an argument is not what it must be.
    """

    def __init__(
        self,
        build_dataflow: Callable[[StreamProvider], object],
        persistence: Persistence = _NOTHING,
        snapshots: timedelta | None = None,
        parallelism: int = 1,
        *,
        debug: bool = False,
    ) -> None:
        if not callable(build_dataflow):
            raise GraphError(
                f"SingleThreadRuntime needs a function that builds the dataflow; got {shown(build_dataflow)}"
            )
        if snapshots is not None and (not isinstance(snapshots, timedelta) or snapshots <= timedelta(0)):
            raise GraphError(f"snapshots needs a timedelta above zero; got {shown(snapshots)}")
        if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
            raise GraphError(f"parallelism needs a whole number of one or more; got {shown(parallelism)}")
        self._build = build_dataflow
        require_methods(persistence, "persistence", ("load", "commit"))
        self._persistence = persistence
        self._snapshots = snapshots
        self._parallelism = parallelism
        self._debug = debug
        self._stopping = False

    @classmethod
    def builder(cls) -> SingleThreadRuntimeBuilder:
        """Begin to configure a runtime step by step, as Malstrom does."""
        return SingleThreadRuntimeBuilder()

    def execute(self) -> None:
        """Build the dataflow and run it until its sources end, `stop` is called, or SIGINT or SIGTERM comes.

        A stop takes effect at the end of the tick; a second SIGINT interrupts at once. Sinks are closed and sources
        let go of in every case.

        Raises:
            GraphError: if the dataflow is malformed; nothing has run.
            OperatorError: if user code failed.
            SnapshotError: if state could not be read or kept.
        """
        self._stopping = False
        graph = Graph()
        self._build(StreamProvider(graph))
        program = compile_graph(graph)
        run = _Run(program, self._persistence, parallelism=self._parallelism, debug=self._debug)
        with self._signals(), run:
            run.open()
            self._loop(run)

    def stop(self) -> None:
        """End the run at the end of its tick; may be called from another thread or from user code."""
        self._stopping = True

    def _loop(self, run: _Run) -> None:
        interval = None if self._snapshots is None else self._snapshots.total_seconds()
        due = time.monotonic() + (interval or 0)
        rest = _SHORTEST_REST
        while not self._stopping and not run.is_finished:
            polled = run.tick()
            if interval is not None and time.monotonic() >= due:
                run.commit()
                due = time.monotonic() + interval
            if polled or run.is_finished:
                rest = _SHORTEST_REST
                continue
            time.sleep(rest)
            rest = min(2 * rest, _LONGEST_REST)
        run.commit()
        if not self._stopping:
            run.end()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn SIGINT and SIGTERM into a stop, where signals can be had: on the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, _frame: FrameType | None) -> None:
            if self._stopping and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._stopping = True

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class SingleThreadRuntimeBuilder:
    """Configure a `SingleThreadRuntime` step by step."""

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}

    def persistence(self, persistence: Persistence) -> SingleThreadRuntimeBuilder:
        """Set where state is kept between runs."""
        self._options["persistence"] = persistence
        return self

    def snapshots(self, interval: timedelta) -> SingleThreadRuntimeBuilder:
        """Set how often state is kept."""
        self._options["snapshots"] = interval
        return self

    def parallelism(self, workers: int) -> SingleThreadRuntimeBuilder:
        """Set how many logical workers share the thread."""
        self._options["parallelism"] = workers
        return self

    def debug(self, debug: bool = True) -> SingleThreadRuntimeBuilder:
        """Turn on the checks that cost too much to run always."""
        self._options["debug"] = debug
        return self

    def build(self, build_dataflow: Callable[[StreamProvider], object]) -> SingleThreadRuntime:
        """Make the runtime.

        Raises:
            GraphError: if an option is not what it must be.
        """
        return SingleThreadRuntime(build_dataflow, **self._options)


class _Run:
    """One execution: the workers of every stage, stepped in a fixed order."""

    def __init__(self, program: Program, persistence: Persistence, *, parallelism: int, debug: bool) -> None:
        self._program = program
        self._persistence = persistence
        self._ticks = 0
        self._ended: set[str] = set()
        parts = {name: list_parts(name, node.source) for name, node in program.sources.items()}
        workers = range(parallelism)
        placed = [
            {
                name: [part for part in listed if rendezvous_select(part, workers) == worker]
                for name, listed in parts.items()
            }
            for worker in workers
        ]
        self._stages = [
            [
                Worker(
                    program,
                    stage,
                    worker,
                    parallelism=parallelism,
                    parts=placed[worker],
                    tracked=persistence.keeps,
                    debug=debug,
                )
                for worker in workers
            ]
            for stage in range(len(program.stages))
        ]
        self._workers = [worker for stage in self._stages for worker in stage]
        self._sources = [source for worker in self._workers for source in worker.sources]
        sinks = [sink for worker in self._workers for sink in worker.sinks]
        # Each sink once, although one object serves all workers of a stateless one.
        self._sinks = list({id(sink.resource): sink for sink in sinks}.values())

    @property
    def is_finished(self) -> bool:
        """Tell whether every source has given its last record."""
        return len(self._ended) == len(self._program.sources)

    def open(self) -> None:
        """Load the state, then build the readers of the parts."""
        loaded = self._persistence.load()
        if loaded:
            workers = 1 + max(worker_id for _, worker_id in loaded)
            if workers != len(self._stages[0]):
                raise SnapshotError(f"the snapshot is of {workers} workers; run it with parallelism={workers}")
            for (stage, worker_id), deltas in loaded.items():
                self._stages[stage][worker_id].apply(deltas)
        for worker in self._workers:
            worker.open()
        self._note_ended()

    def tick(self) -> int:
        """Poll every source once, carry all of it through every stage, and tell how many records came.

        A source that has ended while others go on gives its `MAX` here.
        """
        self._step()
        self._note_ended()
        return sum(source.polled for source in self._sources)

    def end(self) -> None:
        """Let `MAX` flow, after the last record has been processed everywhere."""
        self._step()

    def commit(self) -> None:
        """Keep what changed since the last time."""
        if self._persistence.keeps:
            deltas = {
                (stage, worker.worker_id): worker.delta()
                for stage, workers in enumerate(self._stages)
                for worker in workers
            }
            self._persistence.commit(self._ticks, deltas)

    def __enter__(self) -> None:
        """Leave it to `open` to begin, so that a failure there is cleaned up too."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Close the sinks and let go of the sources; what goes wrong here is told beside `error`."""
        release_all((*(sink.close for sink in self._sinks), *(source.suspend for source in self._sources)), error)

    def _step(self) -> None:
        self._ticks += 1
        sent: dict[tuple[int, int], list[list[list[Batch]]]] = {}
        for stage, workers in zip(self._program.stages, self._stages, strict=True):
            outputs = []
            for worker in workers:
                arrived = [
                    [by_target[worker.worker_id] for by_target in sent[channel.target, channel.edge]]
                    for channel in stage.inputs
                ]
                outputs.append(worker.run(arrived, self._ended))
            for at, channel in enumerate(stage.outputs):
                sent[channel.target, channel.edge] = [output[at] for output in outputs]
        largest = max((worker.largest for worker in self._workers), default=1)
        for source in self._sources:
            source.adapt(largest)
        for sink in self._sinks:
            sink.flush()

    def _note_ended(self) -> None:
        live = {source.context.operator_name for source in self._sources if not source.is_finished}
        self._ended = set(self._program.sources) - live

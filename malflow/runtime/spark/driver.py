"""The driver's side of a run: what happens between two ticks, and what becomes of a run that fails."""

from __future__ import annotations

import logging
import pickle
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from malflow.errors import GraphError, MalflowError, OperatorError, RunFailed, SnapshotError, release_all
from malflow.operators.contract import OperatorContext
from malflow.operators.endpoints import StatelessSinkWriter
from malflow.placement import states_of
from malflow.plan import Program
from malflow.runtime.run import Run
from malflow.runtime.spark.chains import Chains
from malflow.runtime.spark.host import ReleaseTask, dumps_error
from malflow.runtime.spark.increments import Increment
from malflow.runtime.spark.job import Control, Job, Report
from malflow.runtime.spark.query import Query
from malflow.runtime.spark.scratch import NEVER, Change, Scratch, ScratchPlace
from malflow.runtime.spark.ship import driver_sinks, shipping
from malflow.runtime.spark.wire import FAILURE, REPORT, SCHEMA, Row, sink_of, unpack
from malflow.sinks.contract import StatelessSink
from malflow.snapshot.claim import DataWriter
from malflow.snapshot.manifest import FileEntry
from malflow.snapshot.persistence import Persistence, Start
from malflow.sources.contract import StatefulSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from malflow.snapshot.session import SnapshotSession

__all__ = ["Driver", "Progress", "Request", "Settings"]

_log = logging.getLogger("malflow.runtime")

_SHORTEST_REST = 0.005
_LONGEST_REST = 0.05


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run runs.

    Attributes:
        name: the name of its query.
        persistence: where state is kept.
        start: how the run begins.
        interval: the seconds between snapshots, None for none.
        pause: the seconds between ticks at least.
        most: how many records a tick may poll, over all workers.
        poll_seconds: how long a worker may go on polling in a tick.
        debug: whether to check what costs too much to check always.
        attempts: how often Spark tries a task.
        scratch: where changes lie between ticks.
    """

    name: str
    persistence: Persistence
    start: Start
    interval: float | None
    pause: float
    most: int | None
    poll_seconds: float
    debug: bool
    attempts: int
    scratch: ScratchPlace


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of a run: a number of workers, or, where that is None, a snapshot."""

    parallelism: int | None
    answer: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        tick: the number of the last tick.
        parallelism: how many workers there are.
        records: how many records each operator took, and each source gave, since the run started here.
        polled: how many records came in the last tick.
        snapshot: the id of the last snapshot that was committed; None before the first.
        restarts: how often the run was started again after a failure.
    """

    tick: int
    parallelism: int
    records: dict[str, int]
    polled: int
    snapshot: int | None
    restarts: int


class Driver:
    """A run on Spark, from its start to its end; it lives on one thread, but for the gate, which the query calls.

    Args:
        session: the Spark session.
        program: the program.
        parallelism: how many workers there are at first.
        settings: how to run.
        restarts: how often the run was started again.
    """

    def __init__(
        self, session: SparkSession, program: Program, parallelism: int, settings: Settings, restarts: int = 0
    ) -> None:
        self._session = session
        self._program = program
        self._settings = settings
        self._specs = states_of(program)
        self._kept = _kept_versions(program)
        self._sinks = [
            StatelessSinkWriter(OperatorContext(node.name), node.sink)
            for node in driver_sinks(program)
            if isinstance(node.sink, StatelessSink)
        ]
        self._parallelism = parallelism
        self._generation = 0
        self._keeping: SnapshotSession | None = None
        self._chains = Chains(0, 0)
        self._kept_at = NEVER
        self._being_kept: Future[int] | None = None
        self._tick = 0
        self._ended: frozenset[str] = frozenset()
        self._due = 0.0
        self._rest = _SHORTEST_REST
        self._stopping = False
        self._requests: deque[Request] = deque()
        self._rescaling: Request | None = None
        self._counts: Counter[str] = Counter()
        self._polled = 0
        self._snapshot: int | None = None
        self._restarts = restarts
        self._waiting: list[Request] = []
        self.query: Query | None = None
        self.is_over = False

    # From other threads

    def stop(self) -> None:
        """End the run after the tick."""
        self._stopping = True

    def ask(self, request: Request) -> Future[Any]:
        """Have something done after the tick."""
        self._requests.append(request)
        if self.is_over:
            request.answer.cancel()
            raise SnapshotError("the run has ended; nothing can be asked of it any more")
        return request.answer

    @property
    def progress(self) -> Progress:
        """Tell how far the run is."""
        return Progress(
            self._tick, self._parallelism, dict(self._counts), self._polled, self._snapshot, self._restarts
        )

    # The run

    def run(self) -> None:
        """Run to the end.

        Raises:
            MalflowError: what ended the run.
        """
        try:
            run = self._begin(self._settings.start)
            while self._program.stages:  # a dataflow of nothing has none
                self._run_query(run)
                if self._rescaling is None:
                    break
                run = self._rescaled(self._rescaling)
        except BaseException as error:
            self._finish(error)
            raise
        self._finish(None)

    def _begin(self, start: Start) -> Run:
        """Claim the job, and put the state of the last snapshot where the workers find it."""
        run = self._new_run(self._parallelism)
        if not self._settings.persistence.keeps:
            return run
        session, restored = self._settings.persistence.open(self._specs, start)
        self._keeping = session  # type: ignore[assignment] # the one there is
        self._kept_at = NEVER
        if restored is not None:
            run.load(restored.tick, restored.parallelism, restored.states, restored.versions, restored.placements)
            self._snapshot = restored.snapshot
            changed = any(worker.delta() for stage in run.stages for worker in stage)
            self._kept_at = run.ticks - 1 if changed else run.ticks
        return run

    def _new_run(self, parallelism: int) -> Run:
        """Make the workers here, to put state into them; they never run."""
        return Run(self._program, parallelism=parallelism, tracked=True, debug=self._settings.debug)

    def _run_query(self, run: Run) -> None:
        self._generation += 1
        self._tick = run.ticks
        self._parallelism = run.parallelism
        self._chains = Chains(len(self._program.stages), run.parallelism)
        scratch = Scratch(self._settings.scratch, self._generation)
        for stage, workers in enumerate(run.stages):
            for worker in workers:
                self._put_base(scratch, stage, worker)
        job = Job(
            self._generation,
            run.parallelism,
            _payload(self._program, run.parts),
            self._settings.scratch,
            self._settings.attempts,
            None if self._settings.most is None else max(1, self._settings.most // run.parallelism),
            self._settings.poll_seconds,
            self._settings.debug,
        )
        self._ended = frozenset(self._program.sources) - {
            name for name, by_worker in run.parts.items() if any(by_worker)
        }
        del run
        self._due = time.monotonic() + (self._settings.interval or 0.0)
        self._rescaling = None
        self.query = Query(self._session, self._settings.name, job, len(self._program.stages), self._gate)
        self.query.start(self._next())
        self.query.wait()

    def _put_base(self, scratch: Scratch, stage: int, worker: Any) -> None:
        states = worker.states()
        deltas = worker.delta(whole=True)
        if not any(map(len, states.values())):
            return
        size = scratch.write(stage, worker.worker_id, Change(self._tick, NEVER, deltas))
        keys = {name: len(states[name]) for name in deltas}
        self._chains.add(stage, worker.worker_id, self._tick, size or 0, keys, whole=True)

    def _rescaled(self, request: Request) -> Run:
        """Take the state of all workers, and share it out among another number of them."""
        scratch = Scratch(self._settings.scratch, self._generation)
        run = self._new_run(self._parallelism)
        run.ticks = self._tick
        for stage, workers in enumerate(run.stages):
            for worker in workers:
                last = self._chains.last[stage][worker.worker_id]
                for change in scratch.since(stage, worker.worker_id, last, NEVER):
                    worker.apply(change.deltas)
        try:
            run.rescale(request.parallelism or 1)
        except OperatorError as error:
            request.answer.set_exception(error)
            raise
        except SnapshotError as error:
            _log.warning("the dataflow was not rescaled: %s", error)
            request.answer.set_exception(error)
        else:
            request.answer.set_result(None)
        return run

    def _finish(self, error: BaseException | None) -> None:
        """Let go of everything; what goes wrong here is told beside `error`."""
        self.is_over = True
        rescaling = () if self._rescaling is None else (self._rescaling,)
        for request in (*self._requests, *self._waiting, *rescaling):
            request.answer.cancel()
        keeping = self._keeping
        let_go = [self._release, *(sink.close for sink in self._sinks)]
        if keeping is not None:
            let_go.insert(0, lambda: keeping.close(wait=error is None))
        release_all((*let_go, *(partial(self._clear, number) for number in range(1, self._generation + 1))), error)

    def _release(self) -> None:
        """Have every process let go of what it holds of the run."""
        context = self._session.sparkContext
        if context._jsc is None:  # noqa: SLF001 - it has no public word for a context that was stopped
            return
        slots = context.defaultParallelism
        tasks = self._session.range(slots, numPartitions=slots)
        task = ReleaseTask(self._settings.scratch.run)
        errors = tasks.mapInArrow(task, SCHEMA, barrier=True).collect()  # all at once, so that each has another process
        if errors:
            first, *others = [loaded_error(bytes(row.blob)) for row in errors]
            for other in others:
                first.add_note(f"and while closing: {other}")
            raise first

    def _clear(self, generation: int) -> None:
        Scratch(self._settings.scratch, generation).clear()

    # The gate

    def _gate(self, rows: list[Row]) -> Control | None:
        """Take what came of a tick, and say what the next one is."""
        self._note(rows)
        self._deliver(rows)
        if self._keeping is not None:
            self._keeping.check()
        if self._final:
            return None
        return self._go_on()

    def _note(self, rows: list[Row]) -> None:
        failures = [loaded_error(row.blob) for row in rows if row.channel == FAILURE]
        if failures:
            raise failures[0]
        reports: list[Report] = [pickle.loads(row.blob) for row in rows if row.channel == REPORT]  # noqa: S301 - of this run
        expected = {(stage, worker) for stage in range(len(self._program.stages)) for worker in range(self._parallelism)}
        found = [(it.stage, it.worker) for it in reports if it.tick == self._control.tick]
        if len(found) != len(expected) or set(found) != expected:
            raise RunFailed(f"tick {self._control.tick} was reported by {sorted(found)} and not by each worker once")
        self._tick = self._control.tick
        self._final = self._control.final
        self._polled = sum(it.polled for it in reports)
        for it in reports:
            self._counts.update(it.counts)
        if self._final:
            return
        self._chains.note(reports)
        live = {name for it in reports for name in it.live}
        self._ended = frozenset(self._program.sources) - live

    def _deliver(self, rows: list[Row]) -> None:
        """Hand the records of the driver's sinks to them."""
        for row in rows:
            if row.channel < FAILURE:
                for batch in unpack(row.blob):
                    self._sinks[sink_of(row.channel)].process(batch)
        for sink in self._sinks:
            sink.flush()

    def _go_on(self) -> Control | None:
        self._collect()
        finished = len(self._ended) == len(self._program.sources)
        while self._requests:
            request = self._requests.popleft()
            if request.parallelism is None:
                self._waiting.append(request)
            elif self._stopping or finished or self._rescaling is not None:
                request.answer.cancel()
            elif request.answer.set_running_or_notify_cancel():
                self._rescaling = request
        if self._rescaling is not None:
            self._settle()
            return None
        ending = self._stopping or finished
        if not self._keep(ending=ending):
            return self._next(polls=not ending, whole=True)
        if self._stopping:
            return None
        if finished:
            return self._next(final=True)
        self._pace()
        return self._next(whole=self._chains.are_long)

    def _pace(self) -> None:
        """Wait, where nothing came or ticks are to last longer."""
        left = self._began + self._settings.pause - time.monotonic()
        if self._polled:
            self._rest = _SHORTEST_REST
        else:
            left = max(left, self._rest)
            self._rest = min(2 * self._rest, _LONGEST_REST)
        deadline = time.monotonic() + left
        while not (self._stopping or self._requests) and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _LONGEST_REST))

    def _keep(self, *, ending: bool) -> bool:
        """Take a snapshot if it is time; tell whether that is settled: a base may need a tick that writes all state."""
        keeping = self._keeping
        if keeping is None:
            for request in self._waiting:
                request.answer.cancel()
            self._waiting.clear()
            return True
        due = self._settings.interval is not None and time.monotonic() >= self._due
        if not (due or ending or self._waiting):
            return True
        if keeping.is_busy and not ending:
            return True
        self._settle()
        base = self._chains.covers(self._kept_at)
        if keeping.wants_base(self._parallelism) and not base:
            return False
        self._commit(base=base)
        if self._settings.interval is not None:
            self._due = time.monotonic() + self._settings.interval
        if ending:
            made = self._being_kept
            self._settle()
            if made is not None:
                made.result()
            keeping.check()
        return True

    def _commit(self, *, base: bool) -> None:
        keeping = self._keeping
        assert keeping is not None  # noqa: S101 - it is only called where there is one
        tick, spans = self._tick, self._chains.since(self._kept_at)
        versions, place, generation = self._kept, self._settings.scratch, self._generation
        codec, compression, context = keeping.codec, keeping.compression, self._session.sparkContext

        def write(writer: DataWriter) -> list[FileEntry]:
            increment = Increment(place, generation, spans, versions, writer, codec, compression, base)
            if not spans:
                return []
            workers = sorted(spans)
            made = context.parallelize(workers, len(workers)).map(_reported(increment)).collect()
            entries: list[FileEntry] = []
            for files, error in made:
                if error is not None:
                    raise loaded_error(error)
                entries += files
            return entries

        keys = {name: count for name, count in self._chains.total_keys.items() if name in versions}
        made = keeping.commit_written(tick, self._parallelism, self._specs, keys, write, base=base)
        self._being_kept = made
        waiting, self._waiting = self._waiting, []
        self._kept_next = tick
        for request in waiting:
            made.add_done_callback(lambda done, request=request: _tell(done, request.answer))  # type: ignore[misc]

    def _settle(self) -> None:
        """Wait for a snapshot that is being written."""
        if self._being_kept is not None:
            self._being_kept.exception()
            self._collect()

    def _collect(self) -> None:
        """Note a snapshot that was committed, and remove changes that nobody needs any more."""
        made = self._being_kept
        if made is not None and made.done():
            self._being_kept = None
            if made.exception() is None:
                self._snapshot = made.result()
                self._kept_at = self._kept_next
        needed_after = self._tick if self._keeping is None else self._kept_at
        if self._being_kept is None:
            scratch = Scratch(self._settings.scratch, self._generation)
            for stage, worker, tick in self._chains.forget(needed_after):
                scratch.delete(stage, worker, tick)

    def _next(self, **how: Any) -> Control:
        self._began = time.monotonic()
        self._control = Control(self._tick + 1, self._chains.last, sorted(self._ended), **how)
        return self._control

    _final = False


def _reported(increment: Increment) -> Callable[[int], tuple[list[FileEntry], bytes | None]]:
    def write(worker: int) -> tuple[list[FileEntry], bytes | None]:
        try:
            return increment(worker), None
        except MalflowError as error:
            return [], dumps_error(error)

    return write


def _tell(done: Future[int], answer: Future[Any]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    error = done.exception()
    if error is None:
        answer.set_result(done.result())
    else:
        answer.set_exception(error)


def loaded_error(data: bytes) -> Exception:
    error, cause, notes = pickle.loads(data)  # noqa: S301 - of this run
    error.__cause__ = cause
    for note in notes:
        error.add_note(note)
    return error  # type: ignore[no-any-return] # an exception


def _kept_versions(program: Program) -> dict[str, int]:
    """Tell what snapshots hold: all but the places of readers that begin again when a run does."""
    sources = program.sources
    return {
        spec.name: spec.version
        for spec in states_of(program)
        if spec.name not in sources or isinstance(sources[spec.name].source, StatefulSource)
    }


def _payload(program: Program, parts: Any) -> bytes:
    """Pickle the program as the workers need it, with the classes of the script, which have no module there."""
    import sys  # noqa: PLC0415

    from pyspark import cloudpickle  # noqa: PLC0415 - only the extra has it

    main = vars(sys.modules["__main__"])
    classes = {
        name: kind for name, kind in main.items() if isinstance(kind, type) and kind.__module__ == "__main__"
    }
    try:
        data: bytes = cloudpickle.dumps((shipping(program), parts, classes), 5)
    except Exception as error:
        raise _culprit(program, error) from error
    return data


def _culprit(program: Program, error: Exception) -> GraphError:
    """Name the operator that can't travel."""
    from pyspark import cloudpickle  # noqa: PLC0415 - only the extra has it

    for vertex in shipping(program).vertices:
        try:
            cloudpickle.dumps(vertex.node, 5)
        except Exception as why:  # noqa: BLE001 - classes of the user may raise any
            hint = "what it holds must be picklable, to reach the processes of Spark"
            if vertex.node.name in program.sources:
                hint += "; a generator or a connection can't be: write a StatefulSource, which is built where it is read"
            return GraphError(
                f"operator '{vertex.node.name}' can't run on Spark: {type(why).__name__}: {why}; {hint}",
                operator=vertex.node.name,
                location=vertex.location,
            )
    return GraphError(f"the dataflow can't be sent to Spark: {type(error).__name__}: {error}")

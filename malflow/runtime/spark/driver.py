"""A run on Spark from start to end: one query per generation of workers."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from malflow.engine.execution import Run
from malflow.engine.plan import Program
from malflow.engine.states import states_of
from malflow.engine.worker import Worker
from malflow.errors import FencedError, MalflowError, SnapshotError, StoreError, release_all
from malflow.events import Rescaled, RescaleRefused
from malflow.runtime.control import Request, RunRequests, abandon, fail
from malflow.runtime.progress import Progress, late_of, records_of
from malflow.runtime.spark.changelog import NEVER, ChangelogEntry, Scratch
from malflow.runtime.spark.changelog_index import ChangelogIndex
from malflow.runtime.spark.coordinator import DriverSinks, TickCoordinator
from malflow.runtime.spark.error_transport import loaded_error, said
from malflow.runtime.spark.leftovers import Sweep, remove_run
from malflow.runtime.spark.live_runs import CENSUS
from malflow.runtime.spark.pacing import Pace
from malflow.runtime.spark.program_pickle import payload
from malflow.runtime.spark.protocol import RunSpec, packed
from malflow.runtime.spark.query import Query
from malflow.runtime.spark.settings import PASSING, Settings
from malflow.runtime.spark.shuffle import SCHEMA, RowKind
from malflow.runtime.spark.snapshots import SparkRunSnapshots
from malflow.runtime.spark.spark_session import is_alive
from malflow.runtime.spark.worker_cache import ReleaseTask

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["Driver"]

_log = logging.getLogger("malflow.runtime")

_RELEASE_SECONDS = 30.0
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds that the release tasks of each round occupy a process, so that each runs in a process of its own."""

_FORGOTTEN_AFTER = 256
"""Ticks after which an inactive process counts as gone."""


class Driver:
    """Runs a program until it ends, is stopped or fails.

    It works on one thread, except for the coordinator, which Spark calls on another.

    Args:
        session: the Spark session.
        program: the program.
        parallelism: the initial number of workers.
        settings: the run's settings.
        requests: the requests to the run.
        restarts: how often the run was restarted.
        sweep: removes leftovers of earlier runs, if given.

    Attributes:
        query: the current query; None before the first.
        parallelism: the number of workers.
    """

    def __init__(
        self,
        session: SparkSession,
        program: Program,
        parallelism: int,
        settings: Settings,
        requests: RunRequests,
        restarts: int = 0,
        *,
        sweep: Sweep | None = None,
    ) -> None:
        self.query: Query | None = None
        self.parallelism = parallelism
        self._session = session
        self._program = program
        self._settings = settings
        self._restarts = restarts
        self._requests = requests
        self._sweep = sweep
        self._sinks = DriverSinks(program)
        self._snapshots: SparkRunSnapshots | None = None
        self._generation = 0
        self._listed: Mapping[str, Sequence[Any]] | None = None
        self._coordinator: TickCoordinator | None = None
        self._counts: Counter[str] = Counter()
        self._number = CENSUS.begin()
        self._processes: dict[str, int] = {}

    # From other threads

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        coordinator, snapshots, counts = self._coordinator, self._snapshots, self._all_counts
        return Progress(
            tick=0 if coordinator is None else coordinator.tick,
            parallelism=self.parallelism,
            records=records_of(counts),
            polled=0 if coordinator is None else coordinator.polled,
            snapshot=None if snapshots is None else snapshots.snapshot,
            restarts=self._restarts,
            late=late_of(self._program, counts),
        )

    @property
    def _all_counts(self) -> Counter[str]:
        return self._counts if self._coordinator is None else self._counts + self._coordinator.counts

    @property
    def reader_is_gone(self) -> bool:
        """Whether the reader of a sink's output has gone (a broken pipe)."""
        return self._sinks.reader_is_gone

    @property
    def has_begun(self) -> bool:
        """Whether the run has claimed its job, so that a restart restores the latest snapshot."""
        return self._snapshots is not None

    @property
    def has_kept(self) -> bool:
        """Whether the run has taken a snapshot after the one that it began with."""
        return self._snapshots is not None and self._snapshots.snapshot != self._snapshots.began_with

    # The run

    def run(self) -> None:
        """Run to the end.

        Raises:
            MalflowError: the error that ended the run.
        """
        try:
            run = self._begin()
            if self._sweep is not None:
                self._sweep.start(None if self._snapshots is None else self._snapshots.claimed)
            while self._program.stages:  # a dataflow of nothing has none
                coordinator = self._run_query(run)
                if coordinator.rescaling is None:
                    break
                try:
                    run = self._rescaled(coordinator, coordinator.rescaling)
                except BaseException as error:
                    fail([coordinator.rescaling], error)
                    raise
        except PASSING as error:
            fenced = self._fenced()
            self._finish(fenced or error)
            if fenced is not None:
                raise fenced from error
            raise
        except BaseException as error:
            self._finish(error)
            raise
        self._finish(None)

    def _fenced(self) -> FencedError | None:
        """Return the error to raise if another run has claimed the job, None otherwise.

        Without this check, a failing run would restart and claim the job back. It may have failed because the other
        run removed its scratch folder.
        """
        snapshots = self._snapshots
        if snapshots is None or snapshots.is_busy:
            return None
        try:
            snapshots.confirm()
        except FencedError as fenced:
            return fenced
        except MalflowError:
            pass  # unknown: the store fails as well
        return None

    def _begin(self) -> Run:
        """Claim the job and restore its last snapshot into workers, which only hold state and never run."""
        options = self._settings.options
        run = self._new_run(self.parallelism)
        if not options.persistence.is_enabled:
            return run
        session, restored = options.persistence.open(states_of(self._program), options.restore_options)
        snapshots = SparkRunSnapshots(
            session,
            self._program,
            self._session.sparkContext,
            self._settings.scratch,
            options.interval,
            self._sinks.positions,
            self._requests.listeners,
        )
        self._snapshots = snapshots
        if restored is not None:
            run.load(restored.tick, restored.parallelism, restored.states, restored.versions, restored.placements)
            snapshots.resume(restored.snapshot, run.kept_positions)
            moved = any(worker.delta() for stage in run.stages for worker in stage)
            snapshots.kept_at = run.ticks - 1 if moved else run.ticks
        else:
            snapshots.begin(self.parallelism, len(self._program.stages))
        return run

    def _new_run(self, parallelism: int) -> Run:
        debug = self._settings.options.debug
        run = Run(self._program, parallelism=parallelism, tracked=True, debug=debug, listed=self._listed)
        self._listed = run.listed
        return run

    def _run_query(self, run: Run) -> TickCoordinator:
        """Write the workers' states to the changelog, and run a query until it ends."""
        settings, options = self._settings, self._settings.options
        self._generation += 1
        self.parallelism = run.parallelism
        scratch = Scratch(settings.scratch, self._generation)
        index = ChangelogIndex(len(self._program.stages), run.parallelism)
        for stage, workers in enumerate(run.stages):
            for worker in workers:
                _put_base(scratch, index, stage, worker, run.ticks)
        if self._generation > 1:
            self._clear(self._generation - 1)
        elif self._snapshots is not None:
            self._snapshots.keep_sinks(run.ticks, run.parallelism, self._generation, index)
        most = options.max_records_per_tick
        program, place = packed(payload(self._program, run.parts), settings.scratch, scratch)
        spec = RunSpec(
            self._generation,
            run.parallelism,
            program,
            place,
            settings.attempts,
            None if most is None else max(1, most // run.parallelism),
            options.poll_seconds,
            options.debug,
            self._number,
        )
        coordinator = TickCoordinator(
            self._program,
            run.ticks,
            index,
            scratch,
            self._sinks,
            self._snapshots,
            self._requests,
            pace=Pace(options.pause, run.parallelism),
        )
        if self._coordinator is not None:
            self._counts += self._coordinator.counts
        self._coordinator = coordinator
        busy = frozenset(name for name, by_worker in run.parts.items() if any(by_worker))
        del run  # its states are in the scratch folder now
        self.query = Query(self._session, settings, spec, self._program, coordinator)
        self.query.start(coordinator.first(busy))
        try:
            self.query.wait()
        finally:
            coordinator.hurry()
            self.query.leave()
            self._processes.update(coordinator.processes)
            scratch.close()
        return coordinator

    def _rescaled(self, coordinator: TickCoordinator, request: Request) -> Run:
        """Load the state of all workers and redistribute it among the requested number of workers."""
        scratch = Scratch(self._settings.scratch, self._generation)
        run = self._new_run(self.parallelism)
        run.ticks = coordinator.tick
        for stage, (workers, last) in enumerate(zip(run.stages, coordinator.index.last, strict=True)):
            for worker in workers:
                for change in scratch.since(stage, worker.worker_id, last[worker.worker_id], NEVER):
                    worker.apply(change.deltas)
        parallelism = request.parallelism or 1
        try:
            run.rescale(parallelism)
        except SnapshotError as error:
            self._requests.listeners.notify(RescaleRefused(run.ticks, parallelism, error))
            request.answer.set_exception(error)
        else:
            self._requests.listeners.notify(Rescaled(run.ticks, self.parallelism, parallelism))
            request.answer.set_result(None)
        return run

    def _finish(self, error: BaseException | None) -> None:
        """Release everything; errors raised here are added to `error` as notes."""
        self._answer(error)
        snapshots = self._snapshots
        let_go = [self._release, *(writer.close for writer in self._sinks.writers)]
        if snapshots is not None:
            let_go.insert(0, lambda: snapshots.close(wait=error is None))
        if self._sweep is not None:
            let_go.append(self._sweep.close)
        release_all((*let_go, lambda: CENSUS.end(self._number), self._remove), error)

    def _remove(self) -> None:
        with suppress(StoreError):  # a later run sweeps it
            remove_run(self._settings.scratch, self._settings.scratch.run)

    def _answer(self, error: BaseException | None) -> None:
        """Answer all requests except those that a restart may still serve."""
        if self._snapshots is not None:
            self._requests.ask_again(self._snapshots.take_asked())
        if self._coordinator is not None and self._coordinator.rescaling is not None:
            abandon([self._coordinator.rescaling], error)
        if not isinstance(error, PASSING):
            self._requests.end(error)

    def _release(self) -> None:
        """Evict the run's workers and sinks from every process of Spark."""
        if self.query is None or not is_alive(self._session):
            return
        released: Future[list[Any]] = Future()
        threading.Thread(target=self._release_all, args=(released,), name="malflow-release", daemon=True).start()
        try:
            rows = released.result(_RELEASE_SECONDS)
        except Exception as error:  # noqa: BLE001 - an unreachable process releases its workers by ending
            _log.warning("not every process of Spark could release the run: %s", said(error))
            return
        failures = [loaded_error(bytes(row.blob)) for row in rows if row.kind == RowKind.FAILURE]
        if failures:
            first, *others = failures
            for other in others:
                first.add_note(f"and while closing: {other}")
            raise first

    def _release_all(self, released: Future[list[Any]]) -> None:
        try:
            rows: list[Any] = []
            last = max(self._processes.values(), default=0)
            waiting = {name for name, tick in self._processes.items() if tick > last - _FORGOTTEN_AFTER}
            for pause in _PAUSES:
                rows += self._released(pause)
                waiting -= {bytes(row.blob).decode() for row in rows if row.kind == RowKind.REPORT}
                if not waiting:  # otherwise some are busy or have ended
                    break
            released.set_result(rows)
        except Exception as error:  # noqa: BLE001 - the future carries it
            released.set_exception(error)

    def _released(self, pause: float) -> list[Any]:
        slots = _slots(self._session.sparkContext)
        task = ReleaseTask(self._settings.scratch.run, pause)
        rows: list[Any] = self._session.range(slots, numPartitions=slots).mapInArrow(task, SCHEMA).collect()
        return rows

    def _clear(self, generation: int) -> None:
        Scratch(self._settings.scratch, generation).clear()


def _slots(context: SparkContext) -> int:
    """Return how many tasks the current executors can run at once."""
    scala: Any = context._jsc.sc()  # noqa: SLF001 - PySpark does not expose it
    slots: int = scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())
    return max(1, slots)


def _put_base(scratch: Scratch, index: ChangelogIndex, stage: int, worker: Worker, tick: int) -> None:
    """Write all state of a worker as the first changelog entry of its generation."""
    states = worker.states()
    deltas = worker.delta(whole=True)
    if any(map(len, states.values())):
        size = scratch.write(stage, worker.worker_id, ChangelogEntry(tick, NEVER, deltas, whole=True))
        keys = {name: len(states[name]) for name in deltas}
        index.add(stage, worker.worker_id, tick, size or 0, keys, whole=True)

"""One attempt at a run on Spark: one query per generation of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from malflow.engine.clock import RunClock
from malflow.engine.discovery import Discovery, refuse_unfinished
from malflow.engine.execution import Run
from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.engine.states import states_of
from malflow.engine.worker import Worker
from malflow.errors import FencedError, MalflowError, OperatorError, SnapshotError, StoreError, release_all
from malflow.events import ConfirmationFailed, PartsDiscovered, Rescaled, RescaleRefused
from malflow.runtime.control import Request, RunRequests, abandon, fail
from malflow.runtime.progress import Progress, lag_of, lags_of, late_of, patterns_of, records_of
from malflow.runtime.sink_claims import begin_transactions
from malflow.runtime.spark.changelog import NEVER, Changelog, ChangelogEntry, pack_entry
from malflow.runtime.spark.changelog_index import ChangelogIndex
from malflow.runtime.spark.coordinator import TickCoordinator
from malflow.runtime.spark.driver_sinks import driver_sinks
from malflow.runtime.spark.leftovers import Sweep, remove_run
from malflow.runtime.spark.live_runs import REGISTRY
from malflow.runtime.spark.pacing import Pace
from malflow.runtime.spark.position_memory import LastSnapshot
from malflow.runtime.spark.process_release import release_processes
from malflow.runtime.spark.program_pickle import payload
from malflow.runtime.spark.protocol import RunSpec, pack_program
from malflow.runtime.spark.query import Query
from malflow.runtime.spark.settings import PASSING, Settings
from malflow.runtime.spark.snapshots import SparkRunSnapshots
from malflow.runtime.starting import RestartGuard, started
from malflow.runtime.time_watch import TimeWatch
from malflow.snapshot.persistence import RestoredState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RunAttempt"]


class RunAttempt:
    """An attempt at a run: claims the job, restores its state, and runs queries until it ends, is stopped or fails.

    A restart makes another attempt, with a claim, a scratch folder, sinks and counts of its own, so an attempt never
    begins again. It knows nothing of restarts, nor of the session's end: these are the business of the `SparkHandle`.

    It works on one thread, except for the coordinator, which Spark calls on another.

    Args:
        session: the Spark session.
        program: the program.
        parallelism: the initial number of workers.
        settings: the run's settings.
        requests: the requests to the run.
        guard: refuses a restart that would count records twice.
        restarts: how often the run was restarted before.
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
        guard: RestartGuard,
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
        self._guard = guard
        self._sweep = sweep
        self._sinks = RunSinks(driver_sinks(program))
        self._snapshots: SparkRunSnapshots | None = None
        self._generation = 0
        self._listed: Mapping[str, Sequence[Any]] | None = None
        self._coordinator: TickCoordinator | None = None
        self._clock = RunClock()
        self._watch = TimeWatch()
        self._counts: Counter[str] = Counter()
        self._number = REGISTRY.begin()
        self._processes: dict[str, int] = {}
        self._discovery: Discovery | None = None
        self._rescale: tuple[Request, int] | None = None
        self._new: dict[str, Sequence[Any]] = {}

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
            lateness={} if coordinator is None else dict(coordinator.lateness),
            unfinished=() if coordinator is None else coordinator.unfinished,
            patterns=patterns_of(self._program, counts, {} if coordinator is None else coordinator.gauges),
            lag={} if coordinator is None else lag_of(coordinator.lags),
            lag_by_part={} if coordinator is None else lags_of(coordinator.lags),
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
    def began_with(self) -> int | None:
        """The id of the snapshot with the state that the run began with; None for an empty state."""
        return None if self._snapshots is None else self._snapshots.began_with

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
                if coordinator.changes:
                    run = self._changed(coordinator)
                    continue
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
        restored = None
        if options.persistence.is_enabled:
            restored = self._restore(run)
        self._requests.listeners.notify(started(self._program, run.parallelism, restored, self._restarts))
        return run

    def _restore(self, run: Run) -> RestoredState | None:
        """Claim the job, and restore its last snapshot into a run; return what it has."""
        options = self._settings.options
        session, restored = options.persistence.open(states_of(self._program), options.restore_options)
        snapshots = SparkRunSnapshots(
            session,
            self._program,
            self._session.sparkContext,
            self._settings.scratch,
            options.interval,
            self._sinks,
            self._requests.listeners,
        )
        self._snapshots = snapshots
        self._guard.check(None if restored is None else restored.snapshot)
        if restored is not None:
            run.load(restored.tick, restored.parallelism, restored.states, restored.versions, restored.placements)
            self._clock.advance_to(restored.time)
            snapshots.resume(restored.snapshot, run.ticks)
            moved = any(worker.delta() for stage in run.stages for worker in stage)
            snapshots.kept_at = run.ticks - 1 if moved else run.ticks
        snapshot = None if restored is None else restored.snapshot
        begin_transactions(self._sinks, options.persistence, session, options.restore_options, snapshot)
        if restored is None:
            snapshots.begin(self.parallelism, len(self._program.stages))
        return restored

    def _new_run(self, parallelism: int) -> Run:
        run = Run(
            self._program,
            parallelism=parallelism,
            tracked=True,
            debug=self._settings.options.debug,
            listed=self._listed,
            sinks=self._sinks,
        )
        self._listed = run.listed
        return run

    def _run_query(self, run: Run) -> TickCoordinator:
        """Write the workers' states to the changelog, and run a query until it ends."""
        if self._discovery is None:
            self._discovery = Discovery(self._program, run.listed)
        settings, options = self._settings, self._settings.options
        self._generation += 1
        self.parallelism = run.parallelism
        changelog = Changelog(settings.scratch, self._generation)
        index = ChangelogIndex(len(self._program.stages), run.parallelism)
        for stage, workers in enumerate(run.stages):
            for worker in workers:
                _put_base(changelog, index, stage, worker, run.ticks)
        if self._generation > 1:
            self._clear(self._generation - 1)
        elif self._snapshots is not None:
            self._snapshots.keep_sinks(run.ticks, run.parallelism, self._generation, index)
        most = options.max_records_per_tick
        program, place = pack_program(payload(self._program, run.parts, run.discovered), settings.scratch, changelog)
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
            run.parts,
            run.ticks,
            index,
            changelog,
            self._sinks,
            self._snapshots,
            self._requests,
            pace=Pace(options.pause, run.parallelism),
            clock=self._clock,
            watch=self._watch,
            discovery=self._discovery,
            options=options,
        )
        coordinator.note_new(self._new)
        self._new = {}
        if self._coordinator is not None:
            self._counts += self._coordinator.counts
            coordinator.lateness = self._coordinator.lateness
        self._coordinator = coordinator
        self._answer_rescale()
        del run  # its states are in the scratch folder now
        self.query = Query(self._session, settings, spec, self._program, coordinator)
        self.query.start(coordinator.first())
        try:
            self.query.wait()
        finally:
            coordinator.hurry()
            self.query.leave()
            self._processes.update(coordinator.processes)
            changelog.close()
        return coordinator

    def _loaded(self, coordinator: TickCoordinator) -> Run:
        """Return a run with the state of all workers after the last tick of a query."""
        changelog = Changelog(self._settings.scratch, self._generation)
        run = self._new_run(self.parallelism)
        run.ticks = coordinator.tick
        for stage, (workers, last) in enumerate(zip(run.stages, coordinator.index.last, strict=True)):
            for worker in workers:
                for change in changelog.since(stage, worker.worker_id, last[worker.worker_id], NEVER):
                    worker.apply(change.deltas)
                    worker.finish(change.finished)
        return run

    def _changed(self, coordinator: TickCoordinator) -> Run:
        """Load the state of all workers, and add the parts that have appeared.

        Raises:
            OperatorError: naming a part that is gone and is not finished.
        """
        run = self._loaded(coordinator)
        for name, change in coordinator.changes.items():
            states: dict[int, Mapping[Any, Any]] = {}
            gone = set(change.gone)
            for worker in run.stages[0]:
                states[worker.worker_id] = worker.states().get(name) or {}
                gone.difference_update(worker.take_finished(whole=True).get(name, ()))
            refuse_unfinished(self._program, name, gone, states)
            if change.new:
                self._new[name] = change.new
        run.add_parts(self._new)
        self._listed = run.listed
        for name, parts in self._new.items():
            self._requests.listeners.notify(PartsDiscovered(run.ticks, name, tuple(parts)))
        return run

    def _rescaled(self, coordinator: TickCoordinator, request: Request) -> Run:
        """Load the state of all workers and redistribute it among the requested number of workers."""
        run = self._loaded(coordinator)
        parallelism = request.parallelism or 1
        try:
            run.rescale(parallelism)
        except SnapshotError as error:
            self._requests.listeners.notify(RescaleRefused(run.ticks, parallelism, error))
            request.answer.set_exception(error)
        else:
            self._rescale = request, self.parallelism
        return run

    def _answer_rescale(self) -> None:
        """Announce and answer a rescale, once the next tick is that of its workers."""
        if self._rescale is not None and self._coordinator is not None:
            (request, previous), self._rescale = self._rescale, None
            self._requests.listeners.notify(Rescaled(self._coordinator.tick, previous, self.parallelism))
            request.answer.set_result(None)

    def _finish(self, error: BaseException | None) -> None:
        """Release everything; errors raised here are added to `error` as notes."""
        self._answer(error)
        snapshots = self._snapshots
        releases = [lambda: self._release(ended=error is None), *(writer.close for writer in self._sinks.writers)]
        if snapshots is not None:
            releases.insert(0, lambda: snapshots.close(wait=error is None))
        if self._sweep is not None:
            releases.append(self._sweep.close)
        release_all((*releases, lambda: REGISTRY.end(self._number), self._remove), error)

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

    def _release(self, *, ended: bool) -> None:
        """Release the processes; where the run has not failed, their readers confirm the last snapshot first."""
        coordinator, snapshots = self._coordinator, self._snapshots
        if self.query is None or coordinator is None:
            return
        last = None
        if ended and snapshots is not None:
            last = LastSnapshot(self._generation, snapshots.durable, coordinator.index.last[0])
        run = self._settings.scratch.run
        for error in release_processes(self._session, run, self._processes, last):
            name = error.operator if isinstance(error, OperatorError) else ""
            self._requests.listeners.notify(ConfirmationFailed(coordinator.tick, name, error))

    def _clear(self, generation: int) -> None:
        Changelog(self._settings.scratch, generation).clear()


def _put_base(changelog: Changelog, index: ChangelogIndex, stage: int, worker: Worker, tick: int) -> None:
    """Write all state of a worker as the first changelog entry of its generation."""
    states = worker.states()
    deltas, finished = worker.delta(whole=True), worker.take_finished(whole=True)
    if finished or any(map(len, states.values())):
        entry = ChangelogEntry(tick, NEVER, deltas, whole=True, finished=finished)
        written = pack_entry(entry)
        changelog.write(stage, worker.worker_id, written)
        keys = {name: len(states[name]) for name in deltas}
        index.add(stage, worker.worker_id, tick, written.size, keys, whole=True)

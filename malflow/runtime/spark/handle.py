"""The handle of a run on Spark, which restarts it after failures, and each attempt at it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.errors import MalflowError, OperatorError, StoreError, release_all
from malflow.event_time.tick import Tick
from malflow.events import ConfirmationFailed
from malflow.runtime.coordination.coordinator import Coordinator
from malflow.runtime.handle import DrivenHandle
from malflow.runtime.host import Step
from malflow.runtime.progress.progress import Progress, finished
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.restarts import PASSING, RestartGuard, Restarts
from malflow.runtime.spark.changelog.leftovers import Claimed, Sweep, remove_run, run_name
from malflow.runtime.spark.host import SparkHost
from malflow.runtime.spark.process_release import release_processes
from malflow.runtime.spark.protocol import TickCommand
from malflow.runtime.spark.query import Query
from malflow.runtime.spark.session.java import mute_lost_java
from malflow.runtime.spark.session.session import java_loss_named, leave_session
from malflow.runtime.spark.session_users import is_alive
from malflow.runtime.spark.settings import Settings
from malflow.runtime.spark.sinks import SinkPieces
from malflow.runtime.spark.tasks.places import WorkerPlaces
from malflow.runtime.spark.tasks.records import Row
from malflow.runtime.spark.tasks.workers import REGISTRY
from malflow.runtime.spark.unix_sockets import folder_of_driver
from malflow.runtime.transport.sink_proxies import driver_sinks
from malflow.snapshot.persistence import Session
from malflow.snapshot.writer import SnapshotSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = [
    "RunAttempt",
    "SparkHandle",
]


class RunAttempt:
    """An attempt at a run: claims the job, restores its state, and runs queries until it ends, stops or fails.

    A restart makes another attempt, with its own claim, scratch folder, sinks and counts, so an attempt runs only once.
    The `SparkHandle` handles restarts and the end of the session.

    It works on one thread, except for the coordinator (Spark calls it on another).

    Args:
        session: the Spark session.
        program: the program.
        parallelism: the initial number of workers.
        settings: the run's settings.
        requests: the requests to the run.
        guard: rejects a restart that would count records twice.
        restarts: the number of earlier restarts.
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
        self._session = session
        self._program = program
        self._settings = settings
        self._requests = requests
        self._sweep = sweep
        self._pieces = SinkPieces(program, session.sparkContext, settings.scratch)
        self._sinks = RunSinks(driver_sinks(program), self._pieces, program.policy)
        self._number = REGISTRY.begin()
        self._parallelism = parallelism
        self._guard = guard
        self._restarts = restarts
        self._host: SparkHost | None = None
        self._coordinator: Coordinator | None = None
        self._step: Step | None = None

    # From other threads

    @property
    def parallelism(self) -> int:
        """The number of workers."""
        return self._parallelism if self._host is None else self._host.parallelism

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        if self._coordinator is None:
            return Progress(0, self._parallelism, {}, 0, None, self._restarts)
        return self._coordinator.progress

    @property
    def places(self) -> WorkerPlaces:
        """Where the workers of the current generation run."""
        return WorkerPlaces() if self._host is None else self._host.places

    @property
    def reader_is_gone(self) -> bool:
        """Whether the reader of a sink's output exited (a broken pipe)."""
        return self._sinks.reader_is_gone

    @property
    def _claimed(self) -> Session | None:
        return None if self._coordinator is None else self._coordinator.snapshots.session

    @property
    def has_begun(self) -> bool:
        """Whether the run has claimed its job; a restart then restores the latest snapshot."""
        return self._claimed is not None

    @property
    def began_with(self) -> int | None:
        """The id of the snapshot that the run began with; None for an empty state."""
        return None if self._coordinator is None else self._coordinator.snapshots.began_with

    @property
    def has_kept(self) -> bool:
        """Whether the run has taken a snapshot since it began."""
        return self._coordinator is not None and self._coordinator.snapshots.snapshot != self.began_with

    # The run

    def run(self) -> None:
        """Run to the end.

        Raises:
            MalflowError: the error that ended the run.
        """
        try:
            if self._program.stages:  # an empty dataflow has no tick
                self._run()
        except MalflowError as error:
            fenced = None if self._coordinator is None else self._coordinator.snapshots.fenced()
            self._finish(fenced or error)
            if fenced is not None:
                raise fenced from error
            raise
        except BaseException as error:
            self._finish(error)
            raise
        self._finish(None)

    def _run(self) -> None:
        options = self._settings.options
        self._host = host = SparkHost(
            self._program,
            self._parallelism,
            self._session.sparkContext,
            self._settings,
            self._sinks,
            self._requests,
            self._number,
            self._pieces,
        )
        self._coordinator = coordinator = Coordinator(
            self._program,
            host,
            self._sinks,
            options,
            self._requests,
            guard=self._guard,
            restarts=self._restarts,
        )
        coordinator.restore()
        if self._sweep is not None:
            session = coordinator.snapshots.session
            self._sweep.start(Claimed(*session.claimed) if isinstance(session, SnapshotSession) else None)
        step = coordinator.begin()
        while step is not None:
            step = self._run_query(host, coordinator, step) if isinstance(step, Tick) else coordinator.apply(step)

    def _run_query(self, host: SparkHost, coordinator: Coordinator, first: Tick) -> Step | None:
        """Run a query for the current generation of workers, from its first tick; return the step that ended it."""
        self._step, coordinator.hurries = None, False

        def after_tick(rows: list[Row], seconds: float = 0.0) -> TickCommand | None:
            with self._requests.own.working():
                reports, seconds = host.take(rows, seconds)
                self._step = step = coordinator.next(reports, seconds)
                return host.command(step) if isinstance(step, Tick) else None

        self.query = Query(self._session, self._settings, host.spec(), self._program, after_tick)
        self.query.start(host.command(first))
        try:
            self.query.wait()
        finally:
            coordinator.hurries = True
            self.query.leave()
        return self._step

    def _finish(self, error: BaseException | None) -> None:
        """Release everything; errors raised here are added to `error` as notes."""
        coordinator, host = self._coordinator, self._host
        if coordinator is not None:
            self._requests.ask_again(coordinator.give_back())
        if not isinstance(error, PASSING):
            self._requests.end(error)
        releases = [lambda: self._release(ended=error is None), *(writer.close for writer in self._sinks.writers)]
        if coordinator is not None:
            releases.insert(0, partial(coordinator.close, error))
        if host is not None:
            releases.append(partial(host.close, error))
        if self._sweep is not None:
            releases.append(self._sweep.close)
        release_all((*releases, lambda: REGISTRY.end(self._number), self._remove), error)

    def _remove(self) -> None:
        with suppress(StoreError):  # a later run sweeps it
            remove_run(self._settings.scratch, self._settings.scratch.run)

    def _release(self, *, ended: bool) -> None:
        """Release the processes; unless the run failed, their readers first confirm the last snapshot."""
        coordinator, host = self._coordinator, self._host
        if self.query is None or coordinator is None or host is None:
            return
        last = host.last_snapshot if ended and self.has_begun else None
        run = self._settings.scratch.run
        for error in release_processes(self._session, run, host.processes, last):
            name = error.operator if isinstance(error, OperatorError) else ""
            self._requests.listeners.notify(ConfirmationFailed(coordinator.ticks.number, name, error))


class SparkHandle(DrivenHandle):
    """The handle of a run on Spark: makes attempts until one ends the run, then releases shared resources.

    Args:
        session: the Spark session.
        program: the program.
        parallelism: the initial number of workers.
        settings: the run's settings.
        requests: the requests to the run, and its listeners.
        ours: whether to stop the session at the end.
    """

    def __init__(
        self,
        session: SparkSession,
        program: Program,
        parallelism: int,
        settings: Settings,
        requests: RunRequests,
        *,
        ours: bool,
    ) -> None:
        super().__init__(requests, keeps=settings.options.persistence.is_enabled)
        self._session = session
        self._program = program
        self._settings = settings
        self._ours = ours
        options = settings.options
        self._restarts = Restarts(program, options.restart, requests, keeps=options.persistence.is_enabled)
        self._attempt = self._new_attempt(parallelism)
        mute_lost_java(session)

    @property
    def reader_is_gone(self) -> bool:
        """Whether the run has ended because the reader of standard output exited (a broken pipe)."""
        return self._attempt.reader_is_gone

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._requests.stamped(self._attempt.progress)

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's handle of the current query; a rescale or restart creates a new one."""
        query = self._attempt.query
        return None if query is None else query.query

    @property
    def copies(self) -> float:
        """How many Python processes hold the state of a stage of a worker, on average; 0 before the first tick.

        It is about 1 where each executor has one core; on an executor with more, Spark chooses among its processes.
        """
        return self._attempt.places.copies

    @property
    def moves(self) -> int:
        """How many times a stage of a worker ran on another executor than in the tick before.

        Counted since the start, or since the last rescale or restart.
        """
        return self._attempt.places.moved

    @property
    def read_bytes(self) -> int:
        """How many bytes of the scratch folder were read by processes that needed the state of a worker.

        At the start that is all state; then only that of workers which move. Counted as `moves`.
        """
        return self._attempt.places.read

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._run_until_done()
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._requests.end(error)
            self._requests.listeners.notify(finished(self._program, self.progress, error))
            error = None  # its traceback holds this frame
            if self._settings.options.scratch is None:
                shutil.rmtree(self._settings.scratch.url, ignore_errors=True)
            if self._ours:
                leave_session()

    def _run_until_done(self) -> None:
        """Run to the end, with restarts from the last snapshot after failures outside the dataflow."""
        while True:
            attempt, settings = self._attempt, self._settings
            try:
                with java_loss_named(self._session, ours=self._ours):
                    attempt.run()
            except PASSING as error:
                if not self._restarts.allows(attempt, error) or not is_alive(self._session):
                    raise
                self._restarts.pause(error)
            else:
                return
            scratch, options = replace(settings.scratch, run=run_name()), settings.options
            options = replace(options, restore="latest") if attempt.has_begun else options
            self._settings = replace(settings, options=options, scratch=scratch)
            self._attempt = self._new_attempt(attempt.parallelism)

    def _new_attempt(self, parallelism: int) -> RunAttempt:
        settings = self._settings
        is_temporary, sockets = settings.options.scratch is None, folder_of_driver(self._session)
        sweep = Sweep(settings.scratch, is_temporary=is_temporary, sockets=sockets)
        return RunAttempt(
            self._session,
            self._program,
            parallelism,
            settings,
            self._requests,
            self._restarts.guard,
            self._restarts.count,
            sweep=sweep,
        )

"""The attempts at a run on Spark, and the handle of the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.errors import OperatorError, StoreError
from malflow.event_time.tick import Tick
from malflow.events import ConfirmationFailed
from malflow.runtime.attempts import Attempt, DrivenHandle, Restarts, RunLoop
from malflow.runtime.coordination.coordinator import Coordinator
from malflow.runtime.host import Step
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.restarts import PASSING
from malflow.runtime.spark.changelog.leftovers import Claimed, Sweep, remove_run, run_name
from malflow.runtime.spark.host import SparkHost
from malflow.runtime.spark.process_release import release_processes
from malflow.runtime.spark.protocol import TickCommand
from malflow.runtime.spark.session.java import mute_lost_java
from malflow.runtime.spark.session.session import java_loss_named, leave_session
from malflow.runtime.spark.session.session_users import is_alive
from malflow.runtime.spark.session.unix_sockets import folder_of_driver
from malflow.runtime.spark.settings import Settings, SparkOptions
from malflow.runtime.spark.sinks import SinkPieces
from malflow.runtime.spark.streaming_query import Query
from malflow.runtime.spark.tasks.live_workers import REGISTRY
from malflow.runtime.spark.tasks.records import Row
from malflow.runtime.spark.tasks.worker_places import WorkerPlaces
from malflow.runtime.transport.sink_proxies import driver_sinks
from malflow.snapshot.writer import SnapshotSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = [
    "RunAttempt",
    "SparkHandle",
]


class RunAttempt(Attempt):
    """An attempt at a run on Spark: runs queries until the run ends, stops or fails.

    It has its own scratch folder. The `SparkHandle` handles the end of the session.

    It works on one thread, except for the coordinator (Spark calls it on another).

    Args:
        session: the Spark session.
        program: the program.
        parallelism: the initial number of workers.
        settings: the run's settings.
        requests: the requests to the run.
        restarts: decides about another attempt.
        sweep: removes leftovers of earlier runs, if given.
        ours: whether malflow created the session.

    Attributes:
        query: the current query; None before the first.
    """

    def __init__(
        self,
        session: SparkSession,
        program: Program,
        parallelism: int,
        settings: Settings,
        requests: RunRequests,
        restarts: Restarts,
        *,
        sweep: Sweep | None = None,
        ours: bool = False,
    ) -> None:
        self._pieces = SinkPieces(program, session.sparkContext, settings.scratch)
        sinks = RunSinks(driver_sinks(program), self._pieces, program.policy)
        options = replace(settings.options, parallelism=parallelism)
        super().__init__(program, sinks, options, requests, restarts)
        self.query: Query | None = None
        self._session = session
        self._parallelism = parallelism
        self._settings = settings
        self._sweep = sweep
        self._ours = ours
        self._number = REGISTRY.begin()
        self._host: SparkHost | None = None
        self._step: Step | None = None

    @property
    def may_follow(self) -> bool:
        """Whether the session is alive; PySpark has one Java per process."""
        return is_alive(self._session)

    @property
    def places(self) -> WorkerPlaces:
        """Where the workers of the current generation run."""
        return WorkerPlaces() if self._host is None else self._host.places

    def run(self) -> None:
        """Run to the end, and release everything but the session.

        Raises:
            MalflowError: the error that ended the attempt.
        """
        with java_loss_named(self._session, ours=self._ours):
            super().run()

    def _drive(self) -> None:
        if not self._program.stages:  # an empty dataflow has no tick
            return
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
        coordinator = self._coordinate(host)
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

    def _releases(self, error: BaseException | None) -> Sequence[Callable[[], object]]:
        releases: list[Callable[[], object]] = []
        if not isinstance(error, PASSING):  # nobody waits for what follows: it takes long
            releases.append(partial(self._requests.end, error))
        if self._coordinator is not None:
            releases.append(partial(self._coordinator.close, error))
        releases += [partial(self._release, ended=error is None), *(writer.close for writer in self._sinks.writers)]
        if self._host is not None:
            releases.append(partial(self._host.close, error))
        if self._sweep is not None:
            releases.append(self._sweep.close)
        return (*releases, partial(REGISTRY.end, self._number), self._remove)

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


class SparkHandle(DrivenHandle[RunAttempt]):
    """The handle of a run on Spark, which releases shared resources after the last attempt.

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
        options = replace(settings.options, parallelism=parallelism)
        keeps = options.persistence.is_enabled
        self._restarts = Restarts(program, options.restart, requests, keeps=keeps)
        loop = RunLoop(program, options, requests, self._restarts, self._new_attempt)
        super().__init__(loop, requests, keeps=keeps)
        self._session = session
        self._program = program
        self._settings = settings
        self._ours = ours
        mute_lost_java(session)

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's handle of the current query; a rescale or restart creates a new one."""
        attempt = self._loop.attempt
        return None if attempt is None or attempt.query is None else attempt.query.query

    @property
    def copies(self) -> float:
        """How many Python processes hold the state of a stage of a worker, on average; 0 before the first tick.

        It is about 1 where each executor has one core; on an executor with more, Spark chooses among its processes.
        """
        return self._places.copies

    @property
    def moves(self) -> int:
        """How many times a stage of a worker ran on another executor than in the tick before.

        Counted since the start, or since the last rescale or restart.
        """
        return self._places.moved

    @property
    def read_bytes(self) -> int:
        """How many bytes of the scratch folder were read by processes that needed the state of a worker.

        At the start that is all state; then only that of workers which move. Counted as `moves`.
        """
        return self._places.read

    @property
    def _places(self) -> WorkerPlaces:
        attempt = self._loop.attempt
        return WorkerPlaces() if attempt is None else attempt.places

    def _run(self) -> None:
        try:
            self._loop.run(nullcontext())
        finally:
            if self._settings.options.scratch is None:
                shutil.rmtree(self._settings.scratch.url, ignore_errors=True)
            if self._ours:
                leave_session()

    def _new_attempt(self, options: SparkOptions) -> RunAttempt:
        settings = replace(self._settings, options=options)
        if self._restarts.count:
            settings = replace(settings, scratch=replace(settings.scratch, run=run_name()))
        is_temporary, sockets = options.scratch is None, folder_of_driver(self._session)
        return RunAttempt(
            self._session,
            self._program,
            options.parallelism or 1,  # the loop knows it
            settings,
            self._requests,
            self._restarts,
            sweep=Sweep(settings.scratch, is_temporary=is_temporary, sockets=sockets),
            ours=self._ours,
        )

"""The runtime on Spark and the handle of its runs."""

from __future__ import annotations

import logging
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from malflow.diagnostics import shown
from malflow.engine.plan import Program, compile_graph
from malflow.errors import GraphError, SnapshotError
from malflow.events import Listener, Restarted
from malflow.graph import Graph
from malflow.runtime.builder import RuntimeBuilder
from malflow.runtime.control import RunHandle, RunRequests
from malflow.runtime.listeners import Listeners, check_listeners
from malflow.runtime.options import NOTHING, check_build, check_interval, check_parallelism, check_start
from malflow.runtime.progress import Progress, finished
from malflow.runtime.signals import BROKEN_PIPE, signals_stop
from malflow.runtime.spark.changelog import ScratchPlace
from malflow.runtime.spark.driver import Driver
from malflow.runtime.spark.driver_sinks import check_sinks
from malflow.runtime.spark.leftovers import Sweep
from malflow.runtime.spark.main_module import pickled_classes
from malflow.runtime.spark.owners import OF_SCRATCH, run_name, temporary_folder
from malflow.runtime.spark.query import check_name
from malflow.runtime.spark.settings import PASSING, RestartPolicy, Settings
from malflow.runtime.spark.spark_session import (
    check_session,
    gone_told,
    is_alive,
    is_local,
    lend_interpreter,
    make_session,
    require_spark,
    stop_session,
    tries_of_a_task,
)
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.persistence import Persistence, RestoreOptions, job_of
from malflow.streams.stream import StreamProvider

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["RestartPolicy", "SparkHandle", "SparkRuntime", "SparkRuntimeBuilder"]

_SILENT = logging.NullHandler()

_POLL_SECONDS = 0.5
_BUSY = "this runtime is already running a dataflow; create another one for another run"


class SparkRuntime:
    """Run a dataflow in Spark: one Structured Streaming query, the workers in its Python processes.

    Args:
        build_dataflow: builds the dataflow with the `StreamProvider` that it is passed; called once per execution, in
            this process.
        persistence: where snapshots are saved, such as a `malflow.snapshot.FsspecBackend` that all processes can reach.
        snapshots: the interval between snapshots. With None, one is taken only at the end of the run and on request.
        parallelism: the number of logical workers, each a Spark partition; None for one per core.
        spark: the session. None uses the active one, or creates one for this machine and stops it afterwards.
        trigger: the shortest time from one tick to the next, except for the first few ticks, which find out how many
            records fit. Half of a longer trigger is used for polling: higher throughput, at a higher latency. Spark's
            processes stay alive during any pause.
        max_records_per_tick: the most records that a tick may poll. With None, a tick polls for half a second, or half
            of the trigger if that is longer, while there are records; and fewer if slow functions or sinks make the
            whole tick longer than about twice that.
        scratch: a folder for the changelog that all processes can reach; on one machine, by default, a temporary one.
            A run removes its own files at the end, and the leftovers of killed runs: at once if their process is known
            to have ended, which requires Linux and the same machine, otherwise once a run of the same job has seen no
            change in them for an hour.
        scratch_options: fsspec's options to open that folder, such as credentials.
        restart: how often to restart the run when Spark fails.
        name: the name of the query; by default the job's, with a suffix if a query already has it.
        restore, recovery, renamed, allow_dropped_state: as in `malflow.SingleThreadRuntime`.
        debug: as in `malflow.SingleThreadRuntime`; the changelog is checked in each tick, since processes rebuild
            workers from it. A value that changes after it was sent to another process is not an error: the other
            process does not see the change.
        listeners: as in `malflow.SingleThreadRuntime`; they are called in this process.

    Raises:
        GraphError: if an argument is not valid.
    """

    def __init__(
        self,
        build_dataflow: Callable[[StreamProvider], object],
        persistence: Persistence = NOTHING,
        snapshots: timedelta | None = None,
        parallelism: int | None = None,
        *,
        spark: SparkSession | None = None,
        trigger: timedelta = timedelta(0),
        max_records_per_tick: int | None = None,
        scratch: str | None = None,
        scratch_options: Mapping[str, Any] | None = None,
        restart: RestartPolicy | None = None,
        name: str | None = None,
        restore: Literal["latest"] | int | None = "latest",
        recovery: Literal["strict", "previous"] = "strict",
        renamed: Mapping[str, str] | None = None,
        allow_dropped_state: Collection[str] = (),
        debug: bool = False,
        listeners: Sequence[Listener] = (),
    ) -> None:
        check_build(build_dataflow, "SparkRuntime")
        if not isinstance(trigger, timedelta) or trigger < timedelta(0):
            raise GraphError(f"trigger must be a timedelta of zero or more; got {shown(trigger)}")
        if max_records_per_tick is not None:
            check_parallelism(max_records_per_tick, "max_records_per_tick")
        self._build = build_dataflow
        self._interval = check_interval(snapshots, persistence)
        self._persistence = persistence
        self._parallelism = None if parallelism is None else check_parallelism(parallelism)
        self._spark = spark
        self._trigger = trigger.total_seconds()
        self._most = max_records_per_tick
        self._scratch = scratch
        self._scratch_options = dict(scratch_options or {})
        self._restart = restart or RestartPolicy()
        self._is_named = name is not None
        self._name = name or job_of(persistence, "malflow")
        self._start = RestoreOptions(restore, recovery, dict(renamed or {}), allow_dropped_state)
        check_start(self._start)
        self._debug = debug
        self._listeners = check_listeners(listeners)
        self._starting = threading.Lock()
        self._stopping = False
        self._handle: SparkHandle | None = None

    @classmethod
    def builder(cls) -> SparkRuntimeBuilder:
        """Return a builder, as in Malstrom."""
        return SparkRuntimeBuilder()

    def execute(self) -> None:
        """Build the dataflow and run it until its sources end, `stop` is called, or SIGINT or SIGTERM comes.

        Raises:
            MissingDependency: if pyspark or Java is missing.
            GraphError: if the dataflow is malformed or can't run on Spark; nothing has run.
            OperatorError: if user code failed, or a state can't be written.
            SnapshotError: if a snapshot can't be read or written.
            RunFailed: if Spark failed more often than `restart` allows, or its Java is gone.
        """
        with self._held():
            program, session, ours = self._prepared()  # before the signal handlers: PySpark sets its own for SIGINT
            with signals_stop(self.stop, self._is_stopping):
                handle = self._started(program, session, ours=ours)
                handle.await_termination()
            if handle.reader_is_gone:
                raise SystemExit(BROKEN_PIPE)

    def start(self) -> SparkHandle:
        """Build the dataflow and start it; it runs beside the caller.

        Raises:
            MalflowError: any error that `execute` raises before anything has run.
        """
        with self._held():
            program, session, ours = self._prepared()
            return self._started(program, session, ours=ours)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Reserve the runtime for starting a run; afterwards, clear a stop that was requested before.

        Raises:
            GraphError: if a run is starting or running.
        """
        if not self._starting.acquire(blocking=False):
            raise GraphError(_BUSY)
        try:
            if self._handle is not None and not self._handle.has_ended:
                raise GraphError(_BUSY)
            self._handle = None
            try:
                yield
            finally:
                self._stopping = False
        finally:
            self._starting.release()

    def _prepared(self) -> tuple[Program, SparkSession, bool]:
        """Build the dataflow; return it with a session and whether to stop that at the end."""
        require_spark()
        graph = Graph()
        self._build(StreamProvider(graph))
        program = compile_graph(graph)
        check_sinks(program)
        self._check_places()
        return program, *((self._spark, False) if self._spark is not None else make_session())

    def _started(self, program: Program, session: SparkSession, *, ours: bool) -> SparkHandle:
        try:
            with gone_told(session, ours=ours):
                check_session(session)
                if self._is_named:
                    check_name(session, self._name)
                lend_interpreter(session)
                parallelism = self._parallelism or session.sparkContext.defaultParallelism
                settings = self._settings(session)
        except BaseException:
            if ours:
                stop_session(session)
            raise
        listeners = Listeners(self._listeners, job=job_of(self._persistence))
        self._handle = SparkHandle(session, program, parallelism, settings, listeners, ours=ours)
        if self._stopping:
            self._handle.stop()
        return self._handle

    def stop(self) -> None:
        """Stop the run after the current tick; may be called from another thread or a signal handler.

        If nothing is running, the next run ends as soon as it has begun.
        """
        self._stopping = True  # before the look: a run that starts meanwhile looks at it afterwards
        handle = self._handle
        if handle is not None and not handle.has_ended:
            handle.stop()
            self._stopping = False

    def _is_stopping(self) -> bool:
        return self._stopping or (self._handle is not None and self._handle.is_stopping)

    def snapshot(self) -> Future[int]:
        """Request a snapshot after the current tick: see `malflow.SingleThreadRuntime.snapshot`."""
        return self._running().snapshot()

    def rescale(self, parallelism: int) -> Future[None]:
        """Change the number of workers: see `malflow.SingleThreadRuntime.rescale`."""
        return self._running().rescale(parallelism)

    def _running(self) -> SparkHandle:
        if self._handle is None:
            raise SnapshotError("the run has not started yet")
        return self._handle

    def _check_places(self) -> None:
        if isinstance(self._persistence, FsspecBackend) and self._persistence.is_in_memory:
            raise GraphError(f"{self._persistence!r} is in the memory of one process; Spark has several: use a folder")
        if str(self._scratch).startswith("memory:"):
            raise GraphError(
                f"scratch={self._scratch!r} is in the memory of one process; Spark has several: use a folder"
            )

    def _settings(self, session: SparkSession) -> Settings:
        if self._scratch is None and not is_local(session):
            raise GraphError(
                f"on a cluster ({session.sparkContext.master}) scratch= must be a folder that all machines can reach, "
                "such as s3://bucket/scratch"
            )
        run, key = run_name(), secrets.token_bytes(32)
        classes = pickled_classes()
        scratch = self._scratch or temporary_folder(OF_SCRATCH)
        place = ScratchPlace(scratch, self._scratch_options, run, key, classes)
        return Settings(
            name=self._name,
            is_named=self._is_named,
            persistence=self._persistence,
            start=self._start,
            interval=self._interval,
            pause=self._trigger,
            most=self._most,
            poll_seconds=max(_POLL_SECONDS, self._trigger / 2),
            debug=self._debug,
            attempts=tries_of_a_task(session),
            scratch=place,
            restart=self._restart,
            is_temporary=self._scratch is None,
        )


class SparkHandle(RunHandle):
    """The handle of a run on Spark.

    Args:
        session: the Spark session.
        program: the program.
        parallelism: the initial number of workers.
        settings: the run's settings.
        listeners: the listeners of the run.
        ours: whether to stop the session at the end.
    """

    def __init__(
        self,
        session: SparkSession,
        program: Program,
        parallelism: int,
        settings: Settings,
        listeners: Listeners,
        *,
        ours: bool,
    ) -> None:
        super().__init__(RunRequests(listeners), keeps=settings.persistence.is_enabled)
        self._session = session
        self._program = program
        self._settings = settings
        self._ours = ours
        self._driver = self._new_driver(parallelism)
        logging.getLogger("py4j").addHandler(_SILENT)  # errors that concern the user are raised
        self._begin()

    @property
    def reader_is_gone(self) -> bool:
        """Whether the run has ended because the reader of standard output has gone (a broken pipe)."""
        return self._driver.reader_is_gone

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._driver.progress

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's own handle; a rescale or restart creates a new one."""
        query = self._driver.query
        return None if query is None else query.query

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
            if self._settings.is_temporary:
                shutil.rmtree(self._settings.scratch.url, ignore_errors=True)
            if self._ours:
                stop_session(self._session)

    def _run_until_done(self) -> None:
        """Run to the end, with restarts from the last snapshot after failures outside the dataflow."""
        restarts = failures = 0
        while True:
            driver, settings, requests = self._driver, self._settings, self._requests
            try:
                with gone_told(self._session, ours=self._ours):
                    driver.run()
            except PASSING as error:
                failures = 1 if driver.has_kept else failures + 1
                if requests.stopping or not settings.persistence.is_enabled or failures > settings.restart.attempts:
                    raise
                if not is_alive(self._session):
                    raise
                pause = settings.restart.backoff.total_seconds() * 2 ** (failures - 1)
                requests.listeners.notify(Restarted(restarts + 1, error, pause))
                _wait(pause, requests)
            else:
                return
            restarts += 1
            scratch = replace(settings.scratch, run=run_name())
            start = replace(settings.start, restore="latest") if driver.has_begun else settings.start
            self._settings = replace(settings, start=start, scratch=scratch)
            self._driver = self._new_driver(driver.parallelism, restarts)

    def _new_driver(self, parallelism: int, restarts: int = 0) -> Driver:
        settings = self._settings
        sweep = Sweep(settings.scratch, is_temporary=settings.is_temporary)
        return Driver(self._session, self._program, parallelism, settings, self._requests, restarts, sweep=sweep)


def _wait(seconds: float, requests: RunRequests) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not requests.stopping:
        time.sleep(0.05)


class SparkRuntimeBuilder(RuntimeBuilder):
    """Configure a `SparkRuntime` step by step."""

    def spark(self, session: SparkSession) -> SparkRuntimeBuilder:
        """Set the Spark session."""
        return self._with("spark", session)

    def trigger(self, interval: timedelta) -> SparkRuntimeBuilder:
        """Set the shortest time from one tick to the next."""
        return self._with("trigger", interval)

    def max_records_per_tick(self, records: int) -> SparkRuntimeBuilder:
        """Set how many records a tick may poll."""
        return self._with("max_records_per_tick", records)

    def scratch(self, url: str) -> SparkRuntimeBuilder:
        """Set the folder for the changelog."""
        return self._with("scratch", url)

    def scratch_options(self, options: Mapping[str, Any]) -> SparkRuntimeBuilder:
        """Set fsspec's options to open that folder."""
        return self._with("scratch_options", options)

    def restart(self, policy: RestartPolicy) -> SparkRuntimeBuilder:
        """Set how often to restart the run when Spark fails."""
        return self._with("restart", policy)

    def name(self, name: str) -> SparkRuntimeBuilder:
        """Set the name of the query."""
        return self._with("name", name)

    def build(self, build_dataflow: Callable[[StreamProvider], object]) -> SparkRuntime:
        """Return the configured runtime.

        Raises:
            GraphError: if an option is not valid.
        """
        return SparkRuntime(build_dataflow, **self._options)

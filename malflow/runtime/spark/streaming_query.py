"""One streaming query: its micro-batches trigger the ticks of a run, a Spark job each; a heartbeat keeps Python up."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from malflow.engine.plan import Program
from malflow.errors import GraphError, MalflowError, RunFailed
from malflow.runtime.spark.anchors import Anchors, executors
from malflow.runtime.spark.changelog.leftovers import OF_QUERY, remove_shuffles, temporary_folder
from malflow.runtime.spark.protocol import COMMAND, RunSpec, TickCommand
from malflow.runtime.spark.session.java import spark_message
from malflow.runtime.spark.settings import Settings
from malflow.runtime.spark.tasks.records import Row, read_frames
from malflow.runtime.spark.tasks.stage import StageTask

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = [
    "Heartbeat",
    "Query",
    "check_name",
]

_log = logging.getLogger("malflow.runtime")

_SECONDS = 20.0
"""The longest time without a finished task. Spark checks every ten seconds for processes idle for a minute."""

_PATIENCE = 5.0
"""Seconds that closing waits for the last beat. Less: it may outlive the run; more: a stuck beat delays the end."""


_SLOWEST, _FASTEST = 1_000, 3_000
"""Tasks that Spark's scheduler starts in a second."""


class TickJobs:
    """Runs the ticks of one generation of workers, a Spark job each.

    Args:
        context: the Spark context.
        spec: the facts about the generation.
        program: the program.
        name: the name of the run, for Spark's pages.
    """

    def __init__(self, context: SparkContext, spec: RunSpec, program: Program, name: str) -> None:
        self._context: Any = context
        self._name = name
        last = len(program.stages) - 1
        self._stages = [StageTask(spec, stage, is_last=stage == last) for stage in range(last + 1)]
        self._anchors = Anchors(context, spec.parallelism)
        tasks = spec.parallelism * len(self._stages)
        if tasks > _SLOWEST:
            _log.warning(
                "run '%s' starts %s tasks in each tick (%s workers, %s stages); Spark starts %s to %s in a second, "
                "so a tick takes at least %.1f to %.1f seconds; with fewer workers it is shorter",
                *(name, f"{tasks:,}", f"{spec.parallelism:,}", len(self._stages), f"{_SLOWEST:,}", f"{_FASTEST:,}"),
                *(tasks / _FASTEST, tasks / _SLOWEST),
            )

    def run(self, command: TickCommand) -> list[Row]:
        """Run a tick, in the thread that calls; return the rows for the driver.

        Raises:
            Exception: Spark's or py4j's, if the job failed.
        """
        self._context.setLocalProperty(COMMAND, command.dumps())
        self._context.setJobDescription(f"malflow {self._name}, tick {command.tick}")
        self._anchors.refresh()
        shuffles: list[int] = []
        frames: RDD[bytes] = self._anchors.input
        try:
            *earlier, last = self._stages
            for stage in earlier:
                frames, shuffle = self._anchors.exchange(frames.mapPartitionsWithIndex(stage))
                shuffles.append(shuffle)
            sent: Any = frames.mapPartitionsWithIndex(last)
            sent._bypass_serializer = True  # noqa: SLF001 - as PySpark's own partitionBy does
            return [*read_frames(sent.collect())]
        finally:
            remove_shuffles(self._context, shuffles)

    def close(self) -> None:
        """Release what the jobs hold in Spark."""
        self._anchors.close()


class Heartbeat:
    """Runs an empty task on each executor when no tick has ended for a while.

    If none of an executor's Python processes finishes a task for a minute, Spark ends the idle ones, and no setting
    changes that. Their live workers are lost: the next tick reads all state again from the scratch folder and rebuilds
    readers, and sinks are never closed. One task resets the timeout for all processes of an executor.

    Args:
        session: the session.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._over = threading.Event()
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="malflow-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the heartbeat thread."""
        self._thread.start()

    def note(self) -> None:
        """Record that the tasks of a tick have ended."""
        self._last = time.monotonic()

    def close(self) -> None:
        """Stop the heartbeat thread."""
        self._over.set()
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        while not self._over.wait(self._left):
            if not self._left:
                self._beat()
                self.note()

    @property
    def _left(self) -> float:
        return max(0.0, self._last + _SECONDS - time.monotonic())

    def _beat(self) -> None:
        try:
            context = self._session.sparkContext
            tasks = executors(context)  # Spark spreads them, one on each
            context.parallelize([], tasks).mapPartitions(list).collect()
        except Exception as error:  # noqa: BLE001 - not needed by the next tick, which reports its own failures
            _log.debug("the idle processes of Spark could not be kept: %s: %s", type(error).__name__, error)


_STOP_SECONDS = 60.0
"""How long a tick may take to end. Less: slow ticks are cut off; more: a stuck one delays the end."""

_NAMING = threading.Lock()
"""Held from choosing a query's name until the query has it: Spark refuses a name that is in use."""

_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_QUICK = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

OnTick = Callable[[list[Row], float], TickCommand | None]
"""Takes a tick's output rows and the seconds its tasks took; returns the next command, or None to end the query."""


class Query:
    """A Spark query that runs ticks until `on_tick` returns None.

    Each micro-batch calls back once, and the callback runs a tick as a job, in the query's own thread and job group.
    The micro-batch itself has a row that nobody reads: stages in its plan would be planned again for each tick,
    and their tasks would run on any executor.

    Args:
        session: the session.
        settings: the run's settings.
        spec: the facts about the run that tasks need.
        program: the program.
        on_tick: called between ticks.
    """

    def __init__(
        self,
        session: SparkSession,
        settings: Settings,
        spec: RunSpec,
        program: Program,
        on_tick: OnTick,
    ) -> None:
        self._session = session
        self._on_tick = on_tick
        self._over = threading.Event()
        self._passing = threading.Lock()
        self._error: BaseException | None = None
        self._folder = ""
        with _failures_named("plan the query"):
            self._frame: Any = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
            self._jobs = TickJobs(session.sparkContext, spec, program, settings.options.query_name)
        self._command: TickCommand | None = None
        self._settings = settings
        self._heartbeat = Heartbeat(session)
        self.query: StreamingQuery | None = None

    def start(self, first: TickCommand) -> None:
        """Start the query.

        Args:
            first: the command of the first tick.

        Raises:
            GraphError: if its name is in use.
            RunFailed: if Spark failed.
        """
        self._folder = temporary_folder(OF_QUERY)
        self._command = first
        try:
            with _failures_named("start the query"), _quick_checkpoints(self._session), _NAMING:
                self.query = (
                    self._frame.writeStream.queryName(self._free_name())
                    .option("checkpointLocation", Path(self._folder).as_uri())
                    .foreachBatch(self._on_batch)
                    .start()
                )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._heartbeat.start()

    def _free_name(self) -> str:
        options = self._settings.options
        name = options.query_name
        if options.name is not None:
            check_name(self._session, name)
            return name
        return f"{name}-{self._settings.scratch.run[:8]}" if name in _names(self._session) else name

    def wait(self) -> None:
        """Wait for the last tick, and end the query.

        Raises:
            BaseException: the error that `on_tick` raised.
            RunFailed: if Spark failed.
        """
        query = self.query
        if query is None:
            raise RunFailed("the query was not started")
        try:
            with _failures_named("end the query"):
                self._wait(query)
        finally:
            self._heartbeat.close()
            self._jobs.close()
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._error is not None:
            raise self._error

    def leave(self) -> None:
        """Wait until no callback is running; none starts afterwards. Java may have abandoned one that is running."""
        self._over.set()
        if self._passing.acquire(timeout=_STOP_SECONDS):
            self._passing.release()

    def _wait(self, query: StreamingQuery) -> None:
        while not self._over.wait(0.2):
            if not query.isActive:
                break
        if query.isActive:
            query.stop()
        if self._error is None and not self._over.is_set():
            ended = query.exception()
            raise RunFailed(f"Spark ended the query: {'' if ended is None else spark_message(ended)}") from ended

    def _on_batch(self, _frame: DataFrame, _batch: int) -> None:
        with self._passing:
            if self._over.is_set() or self._command is None:
                raise RunFailed("the run is over")
            self._run_tick(self._command)

    def _run_tick(self, command: TickCommand) -> None:
        self._command = None
        try:
            began = time.monotonic()
            with _failures_named("finish a tick"):
                rows = self._jobs.run(command)
            self._heartbeat.note()
            self._command = self._on_tick(rows, time.monotonic() - began)
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._error = error
        if self._command is None:
            self._over.set()
            self._wait_until_stopped()

    def _wait_until_stopped(self) -> None:
        """Stay in the callback until the query is being stopped. Spark then starts no further tick."""
        query, pause = self.query, threading.Event()
        for _ in range(int(_STOP_SECONDS / 0.01)):
            with suppress(Exception):  # Java may be gone: `wait` reports it
                if query is not None and query.isActive:
                    pause.wait(0.01)
                    continue
            return


def check_name(session: SparkSession, name: str) -> None:
    """Check that no active query of the session has this name."""
    if name in _names(session):
        raise GraphError(
            f"a query named {name!r} is already running in this session; pass another name=, or omit it to have one "
            "generated"
        )


def _names(session: SparkSession) -> list[str | None]:
    return [query.name for query in session.streams.active]


@contextmanager
def _quick_checkpoints(session: SparkSession) -> Iterator[None]:
    """Use the fast checkpoint file manager for queries started in this context, since checkpoints are never read.

    Without Hadoop's native library, Spark's default starts a process for each file: 80 ms per tick.
    """
    try:
        session.sparkContext._jvm.java.lang.Class.forName(_QUICK)  # noqa: SLF001 - there is no public way
    except Exception:  # noqa: BLE001 - another version of Spark may have it elsewhere: use the default
        yield
        return
    before = session.conf.get(_CHECKPOINTS, None)
    session.conf.set(_CHECKPOINTS, _QUICK)
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(_CHECKPOINTS)
        else:
            session.conf.set(_CHECKPOINTS, before)


@contextmanager
def _failures_named(deed: str) -> Iterator[None]:
    """Convert failures of Spark, and of py4j when Java is gone, to errors that name the failed step.

    Raises:
        RunFailed: naming the step.
    """
    try:
        yield
    except MalflowError:
        raise
    except Exception as error:
        raise RunFailed(f"Spark could not {deed}: {spark_message(error)}") from error

"""One streaming query: a program's stages as a Spark plan, and the callback between its ticks."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from malflow.engine.plan import Program
from malflow.errors import GraphError, MalflowError, RunFailed
from malflow.runtime.spark.folder_owner import OF_QUERY, temporary_folder
from malflow.runtime.spark.heartbeat import Heartbeat
from malflow.runtime.spark.protocol import COMMAND, RunSpec, TickCommand, names_of_counts
from malflow.runtime.spark.settings import Settings
from malflow.runtime.spark.shuffle import SCHEMA, Row
from malflow.runtime.spark.spark_errors import spark_message
from malflow.runtime.spark.stage_task import StageTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["Query", "check_name"]

_STOP_SECONDS = 60.0
_NAMING = threading.Lock()
"""Held from choosing a query's name until the query has it: Spark refuses a name that is in use."""

_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_QUICK = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

OnTick = Callable[[list[Row], float], TickCommand | None]
"""Takes a tick's output rows and the seconds its tasks took; returns the next command, or None to end the query."""


class Query:
    """A Spark query that runs ticks until `on_tick` returns None.

    Spark starts a tick once the `foreachBatch` callback of the previous one has returned, so the callback decides about
    the next tick. It passes the next command to the tasks in a local property of the thread that submits jobs.

    Args:
        session: the session.
        settings: the run's settings.
        spec: the facts about the run that tasks need.
        program: the program.
        on_tick: called between ticks.
    """

    def __init__(
        self, session: SparkSession, settings: Settings, spec: RunSpec, program: Program, on_tick: OnTick
    ) -> None:
        self._session = session
        self._on_tick = on_tick
        self._over = threading.Event()
        self._passing = threading.Lock()
        self._error: BaseException | None = None
        self._folder = ""
        with _failures_named("plan the query"):
            self._frame = _plan(session, spec, program)
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
        try:
            with _failures_named("start the query"), self._first(first), _quick_checkpoints(self._session), _NAMING:
                self.query = (
                    self._frame.writeStream.queryName(self._free_name())
                    .option("checkpointLocation", Path(self._folder).as_uri())
                    .foreachBatch(self._after_tick)
                    .start()
                )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._heartbeat.start()

    @contextmanager
    def _first(self, command: TickCommand) -> Iterator[None]:
        """Set the command of the first tick for a query started inside this context."""
        context = self._session.sparkContext
        context.setLocalProperty(COMMAND, command.dumps())
        try:
            yield
        finally:
            context.setLocalProperty(COMMAND, None)

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

    def _after_tick(self, frame: DataFrame, _batch: int) -> None:
        with self._passing:
            if self._over.is_set():
                raise RunFailed("the run is over")
            self._pass(frame)

    def _pass(self, frame: DataFrame) -> None:
        command: TickCommand | None = None
        try:
            began = time.monotonic()
            rows = _collected(frame)
            self._heartbeat.note()
            command = self._on_tick(rows, time.monotonic() - began)
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._error = error
        if command is not None:
            self._session.sparkContext.setLocalProperty(COMMAND, command.dumps())
            return
        self._over.set()
        self._wait_until_stopped()

    def _wait_until_stopped(self) -> None:
        """Stay in the callback until the query is being stopped, so that Spark starts no further tick."""
        query, pause = self.query, threading.Event()
        for _ in range(int(_STOP_SECONDS / 0.01)):
            with suppress(Exception):  # Java may be gone: `wait` reports it
                if query is not None and query.isActive:
                    pause.wait(0.01)
                    continue
            return


def check_name(session: SparkSession, name: str) -> None:
    """Check that no active query of the session has this name.

    Raises:
        GraphError: if one has.
    """
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


def _plan(session: SparkSession, spec: RunSpec, program: Program) -> DataFrame:
    """Return the stages as a Spark plan; record counts appear in the query's progress as observed metrics."""
    from pyspark.sql import functions  # noqa: PLC0415 - only the extra has it

    workers = spec.parallelism
    ticks: Any = session.readStream.format("rate-micro-batch")
    frame = ticks.option("rowsPerBatch", workers).option("numPartitions", workers).load()
    frame = frame.mapInArrow(StageTask(spec, 0), SCHEMA)
    for stage in range(1, len(program.stages)):
        frame = frame.repartitionById(workers, "worker").mapInArrow(StageTask(spec, stage), SCHEMA)
    counts = functions.col("counts")
    observed = (functions.sum(counts[at]).alias(name) for at, name in enumerate(names_of_counts(program)))
    return frame.observe("malflow", *observed)


def _collected(frame: DataFrame) -> list[Row]:
    """Run the tick and collect its rows.

    Raises:
        RunFailed: if Spark failed.
    """
    with _failures_named("finish a tick"):
        return [
            Row(row.worker, row.kind, row.number, row.sender, bytes(row.blob), row.counts) for row in frame.collect()
        ]


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

"""One streaming query: the stages of a program as a plan of Spark, and the on_tick between its ticks."""

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
from malflow.runtime.spark.error_transport import said
from malflow.runtime.spark.heartbeat import Heartbeat
from malflow.runtime.spark.owners import OF_QUERY, temporary_folder
from malflow.runtime.spark.protocol import COMMAND, RunSpec, TickCommand, counted
from malflow.runtime.spark.settings import Settings
from malflow.runtime.spark.shuffle import SCHEMA, Row
from malflow.runtime.spark.stage_task import StageTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["Query", "check_name"]

_STOP_SECONDS = 60.0
_NAMING = threading.Lock()
"""Held while a name is chosen and taken, as Spark refuses one that is taken meanwhile."""

_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_QUICK = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

OnTick = Callable[[list[Row], float], TickCommand | None]
"""Takes what came of a tick, and the seconds that its tasks took; says what the next one is, None if there is none."""


class Query:
    """A query of Spark that takes tick after tick until its on_tick says that there is no next one.

    Spark starts a tick when the callback of the one before has returned: so the callback is the on_tick. What the tasks
    of the next tick must know it leaves in a local property of the thread that submits their jobs.

    Args:
        session: the session.
        settings: how the run runs.
        spec: what the tasks need to know.
        program: the program.
        on_tick: the on_tick.
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
        with _failures_told("plan the query"):
            self._frame = _plan(session, spec, program)
        self._settings = settings
        self._heartbeat = Heartbeat(session)
        self.query: StreamingQuery | None = None

    def start(self, first: TickCommand) -> None:
        """Start with a first tick.

        Raises:
            GraphError: if its name is taken.
            RunFailed: if Spark failed.
        """
        self._folder = temporary_folder(OF_QUERY)
        try:
            with _failures_told("start the query"), self._first(first), _quick_checkpoints(self._session), _NAMING:
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
        """Have a query that is started meanwhile begin with a tick."""
        context = self._session.sparkContext
        context.setLocalProperty(COMMAND, command.dumps())
        try:
            yield
        finally:
            context.setLocalProperty(COMMAND, None)

    def _free_name(self) -> str:
        name = self._settings.name
        if self._settings.is_named:
            check_name(self._session, name)
            return name
        return f"{name}-{self._settings.scratch.run[:8]}" if name in _names(self._session) else name

    def wait(self) -> None:
        """Wait until there is no next tick, and end the query.

        Raises:
            BaseException: what the on_tick raised.
            RunFailed: if Spark failed.
        """
        query = self.query
        if query is None:
            raise RunFailed("the query was not started")
        try:
            with _failures_told("end the query"):
                self._wait(query)
        finally:
            self._heartbeat.close()
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._error is not None:
            raise self._error

    def leave(self) -> None:
        """Wait until nobody is in the on_tick, which Java may have left alone there; no tick passes it afterwards."""
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
            raise RunFailed(f"Spark ended the query: {'' if ended is None else said(ended)}") from ended

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
        except BaseException as error:  # noqa: BLE001 - it is raised where the run is waited for
            self._error = error
        if command is not None:
            self._session.sparkContext.setLocalProperty(COMMAND, command.dumps())
            return
        self._over.set()
        self._wait_until_stopped()

    def _wait_until_stopped(self) -> None:
        """Stay in the on_tick until the query is being stopped, so that no tick is begun that nobody wants."""
        query, pause = self.query, threading.Event()
        for _ in range(int(_STOP_SECONDS / 0.01)):
            with suppress(Exception):  # Java may be gone: whoever waits for the query is told
                if query is not None and query.isActive:
                    pause.wait(0.01)
                    continue
            return


def check_name(session: SparkSession, name: str) -> None:
    """Check that no query of the session has a name.

    Raises:
        GraphError: if one has.
    """
    if name in _names(session):
        raise GraphError(
            f"a query named {name!r} runs in this session already; give another name=, or none: one is made then"
        )


def _names(session: SparkSession) -> list[str | None]:
    return [query.name for query in session.streams.active]


@contextmanager
def _quick_checkpoints(session: SparkSession) -> Iterator[None]:
    """Have a query that is started meanwhile write its checkpoint, which nobody will read, in the quickest way.

    Spark's own choice starts a program for each file, where Hadoop has no native library: 80 ms of each tick.
    """
    try:
        session.sparkContext._jvm.java.lang.Class.forName(_QUICK)  # noqa: SLF001 - nothing else tells
    except Exception:  # noqa: BLE001 - another version of Spark may have it elsewhere; it does without
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
    """Make a plan of the stages; what each operator took in a tick is in the query's progress, as observed metrics."""
    from pyspark.sql import functions  # noqa: PLC0415 - only the extra has it

    workers = spec.parallelism
    ticks: Any = session.readStream.format("rate-micro-batch")
    frame = ticks.option("rowsPerBatch", workers).option("numPartitions", workers).load()
    frame = frame.mapInArrow(StageTask(spec, 0), SCHEMA)
    for stage in range(1, len(program.stages)):
        frame = frame.repartitionById(workers, "worker").mapInArrow(StageTask(spec, stage), SCHEMA)
    counts = functions.col("counts")
    observed = (functions.sum(counts[at]).alias(name) for at, name in enumerate(counted(program)))
    return frame.observe("malflow", *observed)


def _collected(frame: DataFrame) -> list[Row]:
    """Have the tick done.

    Raises:
        RunFailed: if Spark could not.
    """
    with _failures_told("finish a tick"):
        return [Row(row.worker, row.channel, row.sender, bytes(row.blob), row.counts) for row in frame.collect()]


@contextmanager
def _failures_told(deed: str) -> Iterator[None]:
    """Have failures of Spark, and what py4j makes of a Java that is gone, say what could not be done.

    Raises:
        RunFailed: saying so.
    """
    try:
        yield
    except MalflowError:
        raise
    except Exception as error:
        raise RunFailed(f"Spark could not {deed}: {said(error)}") from error

"""Eviction of a run from the Python processes of Spark."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from malflow.runtime.spark.session.java import spark_message
from malflow.runtime.spark.session.session_users import is_alive
from malflow.runtime.spark.tasks.live_workers import UNCONFIRMED, ReleaseTask
from malflow.runtime.spark.tasks.polling import LastSnapshot
from malflow.runtime.spark.tasks.records import Row, RowKind
from malflow.runtime.transport.error_pickles import loaded_error

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["release_processes"]

_log = logging.getLogger("malflow.runtime")

_SECONDS = 30.0
"""How long all processes may take. Less: busy processes are given up; more: an unreachable one delays the end."""

_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds that the release tasks of each round occupy a process, so that each runs in a different process."""

_FORGOTTEN_AFTER = 256
"""Ticks after which an inactive process counts as gone."""


def release_processes(
    session: SparkSession, run: str, processes: Mapping[str, int], snapshot: LastSnapshot | None = None
) -> list[Exception]:
    """Evict a run's workers and sinks from every process of Spark, unless Java is gone.

    Args:
        session: the session.
        run: the id of the run.
        processes: the last tick of each process, by its name.
        snapshot: the snapshot with positions to confirm first, or None.

    Returns:
        The errors of readers that could not confirm a position.

    Raises:
        Exception: the error of a sink or worker that could not be closed.
    """
    if not is_alive(session):
        return []
    released: Future[list[Row]] = Future()
    how = session, (run, snapshot), processes, released
    threading.Thread(target=_release_all, args=how, name="malflow-release", daemon=True).start()
    try:
        rows = released.result(_SECONDS)
    except Exception as error:  # noqa: BLE001 - an unreachable process releases its workers by ending
        _log.warning("not every process of Spark could release the run: %s", spark_message(error))
        return []
    failures = [loaded_error(row.blob) for row in rows if row.kind == RowKind.FAILURE]
    if failures:
        first, *others = failures
        for other in others:
            first.add_note(f"and while closing: {other}")
        raise first
    return [loaded_error(row.blob) for row in rows if _is_unconfirmed(row)]


def _is_unconfirmed(row: Row) -> bool:
    return bool(row.kind == RowKind.REPORT and row.number == UNCONFIRMED)


def _release_all(
    session: SparkSession,
    task: tuple[str, LastSnapshot | None],
    processes: Mapping[str, int],
    released: Future[list[Row]],
) -> None:
    try:
        rows: list[Row] = []
        last = max(processes.values(), default=0)
        waiting = {name for name, tick in processes.items() if tick > last - _FORGOTTEN_AFTER}
        for pause in _PAUSES:
            rows += _released(session, task, pause)
            reports = (row for row in rows if row.kind == RowKind.REPORT and not _is_unconfirmed(row))
            waiting -= {row.blob.decode() for row in reports}
            if not waiting:  # otherwise some are busy or have ended
                break
        released.set_result(rows)
    except Exception as error:  # noqa: BLE001 - the future carries it
        released.set_exception(error)


def _released(session: SparkSession, task: tuple[str, LastSnapshot | None], pause: float) -> list[Row]:
    context, (run, snapshot) = session.sparkContext, task
    slots = _slots(context)
    rows: list[Row] = context.parallelize([], slots).mapPartitions(ReleaseTask(run, pause, snapshot)).collect()
    return rows


def _slots(context: SparkContext) -> int:
    """Return how many tasks the current executors can run at once."""
    scala: Any = context._jsc.sc()  # noqa: SLF001 - PySpark does not expose it
    slots: int = scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())
    return max(1, slots)

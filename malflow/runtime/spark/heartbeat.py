"""A heartbeat that keeps Spark's Python processes alive during long ticks and pauses."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from malflow.runtime.spark.anchors import executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Heartbeat"]

_log = logging.getLogger("malflow.runtime")

_SECONDS = 20.0
"""The longest time without a finished task. Spark checks every ten seconds for processes idle for a minute."""

_PATIENCE = 5.0
"""Seconds that closing waits for the last beat. Less: it may outlive the run; more: a stuck beat delays the end."""


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

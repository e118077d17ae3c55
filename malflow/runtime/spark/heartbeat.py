"""What keeps the Python processes of Spark between ticks that are long, or far from each other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["Heartbeat"]

_log = logging.getLogger("malflow.runtime")

_SECONDS = 20.0
"""How long nothing may be done. Spark looks every ten seconds, and ends idle processes after a minute."""

_PATIENCE = 5.0


class Heartbeat:
    """Has an empty task done by each executor where no tick has ended for a while.

    Spark ends the idle Python processes of an executor in which none has finished a task for a minute; no setting
    changes that. With them go the workers that they hold: all state is read again from the scratch folder by the next
    tick, readers are built again, and sinks are not closed. One task resets the clock for all processes of an executor.

    Args:
        session: the session.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._over = threading.Event()
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="malflow-heartbeat", daemon=True)

    def start(self) -> None:
        """Start to look at the clock."""
        self._thread.start()

    def note(self) -> None:
        """Note that the tasks of a tick have ended."""
        self._last = time.monotonic()

    def close(self) -> None:
        """Stop."""
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
            tasks = _executors(self._session)
            self._session.range(tasks, numPartitions=tasks).mapInArrow(_nothing, "id long").collect()
        except Exception as error:  # noqa: BLE001 - the next tick does without, or fails by itself
            _log.debug("the idle processes of Spark could not be kept: %s: %s", type(error).__name__, error)


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())


def _executors(session: SparkSession) -> int:
    """Return how many executors there are: tasks that are as many go to one each."""
    context: Any = session.sparkContext
    holders: int = context._jsc.sc().getExecutorMemoryStatus().size()  # noqa: SLF001 - the Python side does not tell
    return max(1, holders - 1)  # the driver is one of them

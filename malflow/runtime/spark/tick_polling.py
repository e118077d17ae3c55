"""How often a worker polls its sources in one tick."""

from __future__ import annotations

import time
from collections.abc import Callable

from malflow.engine.ticks import PollPacing
from malflow.engine.worker import Worker
from malflow.records.batch import BATCH_SIZE
from malflow.runtime.spark.protocol import RunSpec, TickCommand
from malflow.runtime.spark.tick_pacing import MOST_BYTES

__all__ = ["TickPolling"]


class TickPolling:
    """Polls while there is input, up to the limits of records, bytes and time.

    Args:
        pacing: the limit of each poll. All ticks of the worker adjust it.

    Attributes:
        records: the number of records polled in the tick.
        emitting: the names of the sources that emitted any.
    """

    def __init__(self, pacing: PollPacing) -> None:
        self._pacing = pacing
        self.records = 0
        self.emitting: set[str] = set()

    def poll(
        self,
        worker: Worker,
        spec: RunSpec,
        command: TickCommand,
        *,
        run: Callable[[int], None],
        size: Callable[[], float],
    ) -> None:
        """Poll the sources of a worker.

        Args:
            worker: the worker.
            spec: has the limits of all ticks.
            command: has the limit of this tick.
            run: polls each source once, up to a limit, and carries the records through the stage.
            size: returns about how many bytes the tick sends by now.
        """
        deadline = time.monotonic() + spec.poll_seconds
        limits = [most for most in (spec.most, command.most) if most is not None]
        left = min(limits, default=None)
        while True:
            for source in worker.sources:
                source.most = BATCH_SIZE if left is None else max(1, left // len(worker.sources))
            began = time.monotonic()
            run(self._pacing.limit)
            largest_poll = max((source.polled for source in worker.sources), default=0)
            self._pacing.note(largest_poll, worker.largest, time.monotonic() - began)
            polled = self._note(worker)
            if command.final or not polled or time.monotonic() >= deadline:
                return
            if left is not None and (left := left - polled) <= 0:
                return
            if size() >= MOST_BYTES:
                return

    def _note(self, worker: Worker) -> int:
        """Count the records of a poll; return their number."""
        polled = 0
        for source in worker.sources:
            polled += source.polled
            if source.polled_by_part:
                self.emitting.add(source.context.operator_name)
        self.records += polled
        return polled

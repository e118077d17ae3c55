"""How often a worker polls its sources in one tick, and the positions that are confirmed.

The driver sends two ticks with each command: that of the newest durable snapshot, and that of the one being written. A
worker remembers the positions of its sources at the end of these ticks, even if it catches up past them, so it need not
be in the process that captured the snapshot.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from malflow.engine.ticks import PollPacing
from malflow.engine.worker import Worker
from malflow.operators.hosting.source import Source
from malflow.records.batch import BATCH_SIZE
from malflow.runtime.spark.changelog.entry import NEVER
from malflow.runtime.spark.pacing import MOST_BYTES
from malflow.runtime.spark.protocol import RunSpec, TickCommand

__all__ = [
    "LastSnapshot",
    "PositionMemory",
    "TickPolling",
]


class TickPolling:
    """Polls while there is input, up to the limits of records, bytes and time.

    Args:
        pacing: the limit of each poll. All ticks of the worker adjust it.

    Attributes:
        records: the number of records polled in the tick.
        read: the number of records of each part that emitted any, by source.
    """

    def __init__(self, pacing: PollPacing) -> None:
        self._pacing = pacing
        self.records = 0
        self.read: dict[str, Counter[Any]] = {}

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
                source.limits.most = BATCH_SIZE if left is None else max(1, left // len(worker.sources))
            began = time.monotonic()
            run(self._pacing.limit)
            largest_poll = max((source.polled for source in worker.sources), default=0)
            self._pacing.note(largest_poll, worker.reports.largest, time.monotonic() - began)
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
                self.read.setdefault(source.context.operator_name, Counter()).update(source.polled_by_part)
        self.records += polled
        return polled


@dataclass(frozen=True, slots=True)
class LastSnapshot:
    """The newest durable snapshot of an ended run.

    Attributes:
        generation: the last generation of workers.
        tick: the tick of the snapshot.
        last: the tick of the last changelog entry of each worker's first stage (it has the sources).
    """

    generation: int
    tick: int
    last: Sequence[int]


class PositionMemory:
    """Remembers the positions of one worker's sources at the ticks of snapshots."""

    def __init__(self) -> None:
        self._at: dict[int, dict[str, Mapping[Any, Any]]] = {}
        self._confirmed = NEVER

    def note(self, sources: Iterable[Source], since: int, until: int, ticks: Iterable[int]) -> None:
        """Record the current positions of sources for some of the ticks.

        Args:
            sources: the sources of the worker.
            since: the tick of the last changelog entry in their state.
            until: the tick of the next one, or of the next tick.
            ticks: the ticks of snapshots; those outside ``since <= tick < until`` are ignored.
        """
        for tick in set(ticks):
            if tick > NEVER and since <= tick < until and tick > self._confirmed and tick not in self._at:
                self._at[tick] = {source.context.operator_name: dict(source.state) for source in sources}

    def confirm(self, sources: Sequence[Source], durable: int) -> list[Exception]:
        """Confirm the positions at the tick of a durable snapshot, if they are known; return the errors of readers.

        The positions at this tick and at earlier ones are forgotten.
        """
        positions = self._at.get(durable, {})
        if durable > self._confirmed and durable in self._at:
            self._confirmed = durable
        self._at = {tick: them for tick, them in self._at.items() if tick > durable}
        return [
            error for source in sources for error in source.confirm(positions.get(source.context.operator_name, {}))
        ]

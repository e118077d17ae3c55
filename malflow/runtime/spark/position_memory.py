"""The positions of a worker's sources in the snapshots of a run on Spark, confirmed once these are durable.

The driver sends two ticks with each command: that of the newest durable snapshot, and that of the one being written. A
worker remembers the positions of its sources at the end of these ticks, even if it catches up past them, so it need not
be in the process that captured the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from malflow.operators.hosting.source import Source
from malflow.runtime.spark.changelog_entry import NEVER

__all__ = ["LastSnapshot", "PositionMemory"]


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

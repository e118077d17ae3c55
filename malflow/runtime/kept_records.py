"""The records of transactional sinks that a durable snapshot contains, and those that wait for one."""

from __future__ import annotations

from collections.abc import Mapping

from malflow.engine.sinks import RunSinks
from malflow.engine.ticks import Ticks
from malflow.runtime.progress import SinkProgress

__all__ = ["KeptRecords"]


class KeptRecords:
    """Counts the records of the sinks that commit with snapshots.

    Args:
        sinks: the run's sinks.
        ticks: its ticks; they count the records of each operator.
    """

    def __init__(self, sinks: RunSinks, ticks: Ticks) -> None:
        self._sinks = sinks
        self._ticks = ticks
        self._kept: Mapping[str, int] = {}

    @property
    def taken(self) -> Mapping[str, int]:
        """The number of records that each of the sinks has received, for a snapshot that is taken now."""
        return {name: self._ticks.counts.get(name, 0) for name in self._sinks.uncommitted}

    def keep(self, taken: Mapping[str, int]) -> None:
        """Note that a snapshot is durable, with the records that the sinks had received."""
        self._kept = taken

    @property
    def progress(self) -> dict[str, SinkProgress]:
        """The progress of each of the sinks; readable from any thread."""
        kept, taken = self._kept, self.taken
        return {
            name: SinkProgress(kept.get(name, 0), taken[name] - kept.get(name, 0), uncommitted, limit)
            for name, (uncommitted, limit) in self._sinks.uncommitted.items()
        }

"""A snapshot that is being written, and how long that takes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, NamedTuple

__all__ = ["PendingSnapshot", "Stopwatch"]


class Stopwatch:
    """Measures a snapshot: how long ticks wait for its capture, and how long it is then written."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._captured = 0.0
        self._end: tuple[float, datetime] | None = None

    def follow(self, made: Future[int]) -> None:
        """Measure until a snapshot is written. It is captured now."""
        self._captured = time.monotonic() - self._began
        made.add_done_callback(lambda _: self._note_end())

    def read(self) -> tuple[datetime, float, float]:
        """Return when the snapshot was written, in UTC, and the seconds of its capture and of its writing."""
        end, at = self._end or self._note_end()  # callbacks of a future run after its waiters
        return at, self._captured, end - self._began - self._captured

    def _note_end(self) -> tuple[float, datetime]:
        self._end = end = time.monotonic(), datetime.now(UTC)
        return end


class PendingSnapshot(NamedTuple):
    """A snapshot being written: its tick, the sinks' positions in it, a future of its id, times, and sinks' records."""

    tick: int
    positions: Mapping[str, Any]
    made: Future[int]
    watch: Stopwatch
    taken: Mapping[str, int]

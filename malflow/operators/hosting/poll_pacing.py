"""The number of records that a source polls, chosen so that a tick takes about a tenth of a second."""

from __future__ import annotations

import time

from malflow.records.batch import BATCH_SIZE

__all__ = ["PollPacing"]

_SMALLEST_POLL = 64
"""The least limit of a part, unless the limit of the whole tick is lower."""

_SHORT_TICK_SECONDS = 0.05
_TARGET_SECONDS = 0.1
_TRY_MORE_AFTER = 16
_FASTEST_GROWTH = 64


class PollPacing:
    """The poll limit of one source, adjusted from tick to tick.

    Args:
        limit: the poll limit of the first tick.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._largest_limit = BATCH_SIZE
        self._polled_at = 0.0
        self._last_tick = (0, 0.0)
        self._same_ticks = 0

    def part_limit(self, parts: int) -> int:
        """Return the limit for each of `parts` parts."""
        return max(min(self._limit, _SMALLEST_POLL), self._limit // parts)

    def limit_batch(self, growth: float) -> None:
        """Lower the limit if operators emit many records for each input record, so that batches stay small.

        Args:
            growth: the size of the largest batch of the last tick, divided by that of the largest poll.
        """
        self._largest_limit = max(1, min(BATCH_SIZE, int(BATCH_SIZE / growth)))

    def reset(self) -> None:
        """Restart the timing: the time since the last tick was not spent on records."""
        self._polled_at = time.monotonic()

    def start_tick(self, polled: int) -> None:
        """Adjust the limit so that a tick's per-record time approaches `_TARGET_SECONDS`; fixed overhead is ignored.

        A tick takes a fixed time plus a time per record, which follows from two ticks with different numbers of
        records. If the number stays the same, a double one is tried now and then.

        Args:
            polled: the number of records polled in the last tick.
        """
        now = time.monotonic()
        elapsed, self._polled_at = now - self._polled_at, now
        if not polled:
            return
        records, before = self._last_tick
        self._last_tick = (polled, elapsed)
        if elapsed < _SHORT_TICK_SECONDS:
            growth = min(_FASTEST_GROWTH, _SHORT_TICK_SECONDS / max(elapsed, 1e-6))
            self._limit = min(int(growth * self._limit), self._largest_limit)
            return
        if polled == records:
            self._same_ticks += 1
            if self._same_ticks % _TRY_MORE_AFTER == 1:
                self._limit = min(2 * self._limit, self._largest_limit)
            return
        per_record = (elapsed - before) / (polled - records)
        wanted = _TARGET_SECONDS / per_record if per_record > 0 else self._largest_limit
        self._limit = int(max(1, self._limit // 2, min(wanted, 2 * self._limit, self._largest_limit)))

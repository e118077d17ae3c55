"""The number of records that sources poll, chosen so that a tick takes about a tenth of a second."""

from __future__ import annotations

from malflow.records.batch import BATCH_SIZE

__all__ = ["PollPacing", "first_limit"]

_SHORT_TICK_SECONDS = 0.05
"""Below half the target the limit grows at once. More: larger steps past the target; less: a slower start."""

_TARGET_SECONDS = 0.1
"""The duration of a tick. Half: more fixed time per record; double: results and snapshots wait longer."""

_CALLING_SECONDS = 0.4
"""The target with operators that call out: at the end of each tick, fewer and fewer calls are under way."""

_TRY_MORE_AFTER = 16
"""Ticks of one size until twice the size is tried. Fewer: more ticks that are too long; more: a slower adjustment."""

_FASTEST_GROWTH = 64
"""The largest growth in a tick. Less: a slower start; more: one misleadingly short tick makes the next too long."""


def first_limit(*, debug: bool) -> int:
    """Return the poll limit of the first tick: one record (its cost is unknown), but with `debug` a whole batch."""
    return BATCH_SIZE if debug else 1


class PollPacing:
    """The poll limit of all sources on all workers that share a tick, adjusted from tick to tick.

    The limit is one for all: each waits for the slowest in every tick. With limits of their own, a worker that polled
    less in the beginning would keep polling less, since it could not tell its time from that of the others.

    Args:
        limit: the poll limit of the first tick.
        least: the least limit, for operators that process many records in the time of one.

    Attributes:
        limit: the maximum number of records that a source polls on a worker in a tick.
    """

    def __init__(self, limit: int = 1, least: int = 1) -> None:
        self.limit = max(limit, least)
        self._least = least
        self._target = _TARGET_SECONDS if least == 1 else _CALLING_SECONDS
        self._last_tick = (0, 0.0)
        self._same_ticks = 0

    def note(self, polled: int, largest: int, seconds: float) -> None:
        """Adjust the limit to bring a tick's per-record time near the target; fixed overhead is ignored.

        A tick takes a fixed time plus a time per record. This follows from two ticks with different numbers of records.
        If the number stays the same, a double one is tried now and then. If operators emit many records for each input
        record, the limit is lower, to keep batches small.

        Args:
            polled: the maximum number of records that a source polled on a worker in the tick.
            largest: the size of the tick's largest batch.
            seconds: the duration of the tick.
        """
        if polled:
            self.limit = max(self._least, self._adjusted(polled, largest, seconds))

    def _adjusted(self, polled: int, largest: int, seconds: float) -> int:
        most = max(1, min(BATCH_SIZE, BATCH_SIZE * polled // max(largest, 1)))
        records, before = self._last_tick
        self._last_tick = (polled, seconds)
        if seconds < _SHORT_TICK_SECONDS:
            growth = min(_FASTEST_GROWTH, _SHORT_TICK_SECONDS / max(seconds, 1e-6))
            return min(int(growth * self.limit), most)
        if polled == records:
            self._same_ticks += 1
            are_calls_slow = self._least > 1 and seconds > 2 * self._target
            tries = self._same_ticks % _TRY_MORE_AFTER == 1 and not are_calls_slow
            return min(2 * self.limit, most) if tries else self.limit
        per_record = (seconds - before) / (polled - records)
        wanted = self._target / per_record if per_record > 0 else most
        return int(max(1, self.limit // 2, min(wanted, 2 * self.limit, most)))

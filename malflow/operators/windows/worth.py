"""Whether it is worth while to aggregate records before they are sent."""

from __future__ import annotations

__all__ = ["Worth"]

_SEEN = 8_192
"""The number of records after which it is decided."""

_FIRST = 4
"""So many of the first records must become one accumulator, on average: with fewer there are too many keys."""

_ALL = 12
"""So many records of a tick must become one accumulator: with fewer, sending the records takes less time."""

_TICKS = 16
"""Ticks until it is looked at again. Fewer: more trials that waste time; more: a slower reaction to other data."""

_MOST_TICKS = 256
"""The longest time between two looks. Less: more trials in vain; more: an advantage is noticed later."""


class Worth:
    """Compares the number of records with the number of accumulators that they become.

    It is looked at again every 16 ticks. Where it was not worth while the time before either, after twice as many.

    Attributes:
        is_given: whether it is worth while, or has to be tried.
    """

    def __init__(self) -> None:
        self.is_given = True
        self._records = self._accumulators = self._ticks = 0
        self._pause = _TICKS
        self._is_proven = False

    def note(self, records: int, accumulators: int) -> None:
        """Count records, and the accumulators that they have become."""
        self._records += records
        self._accumulators += accumulators
        if self._records >= _SEEN and _FIRST * self._accumulators > self._records:
            self._give_up()

    def end_tick(self) -> None:
        """Decide, if there were enough records; begin to look again where it is time."""
        self._ticks += 1
        if self.is_given and self._records >= _SEEN:
            self._is_proven = _ALL * self._accumulators <= self._records
            if not self._is_proven:
                self._give_up()
        if self._ticks < self._pause or (self.is_given and not self._is_proven):
            return
        self._pause = _TICKS if self.is_given else min(2 * self._pause, _MOST_TICKS)
        self.is_given, self._is_proven = True, False
        self._records = self._accumulators = self._ticks = 0

    def _give_up(self) -> None:
        self.is_given, self._ticks = False, 0

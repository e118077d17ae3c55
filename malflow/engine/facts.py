"""Facts: what workers measure of their operators, which would differ if a tick were repeated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Final, NamedTuple

__all__ = ["CLOCK", "LEAST_BUSY", "FactPacing", "Facts", "merge_facts"]

CLOCK: Final[Callable[[], int]] = perf_counter_ns
"""The clock of busy times, in nanoseconds."""

LEAST_BUSY: Final = 1_000_000
"""Nanoseconds after which the busy time of an operator is reported even if it took no records."""

_EVERY: Final = 16
_NANOSECONDS: Final = 50_000_000


class Facts(NamedTuple):
    """The measurements of an operator on one worker, since those that were reported before.

    Attributes:
        busy: the nanoseconds in which it processed records, or waited for systems outside.
        batches: the number of batches with records that it took or, for a source, gave.
        largest: the records of the largest of them.
        calls: the greatest number of its calls to a system outside at a time.
        polls: how often a source was asked for records.
        saturated: how often it then gave all that it was asked for, so that more are likely to wait.
    """

    busy: int = 0
    batches: int = 0
    largest: int = 0
    calls: int = 0
    polls: int = 0
    saturated: int = 0

    def plus(self, other: Facts) -> Facts:
        """Return the facts of both."""
        return Facts(
            self.busy + other.busy,
            self.batches + other.batches,
            max(self.largest, other.largest),
            max(self.calls, other.calls),
            self.polls + other.polls,
            self.saturated + other.saturated,
        )


def merge_facts(facts: dict[str, Facts], more: Mapping[str, Facts]) -> None:
    """Add the facts of operators, by name, to others."""
    for name, it in more.items():
        held = facts.get(name)
        facts[name] = it if held is None else held.plus(it)


class FactPacing:
    """Chooses the ticks whose reports have facts, so that those of short ticks cost nothing that shows.

    These are the first, then one of sixteen, and each that ends 50 ms or more after the last one that had any. A report
    has the facts of all ticks since then.
    """

    def __init__(self) -> None:
        self._left = 0
        self._reported = 0

    def is_due(self, now: int) -> bool:
        """Whether the report of this tick has facts.

        Args:
            now: the time at its end, by the clock.
        """
        self._left -= 1
        if self._left > 0 and now - self._reported < _NANOSECONDS:
            return False
        self._left, self._reported = _EVERY, now
        return True

"""Facts: measurements that workers take of their operators. They would differ if a tick were repeated."""

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
"""Ticks between two reports of facts. Fewer: short ticks spend more time on reports; more: counts are older."""

_NANOSECONDS: Final = 50_000_000
"""The age at which facts are reported even before 16 ticks. Less: more reports; more: older counts in slow runs."""


class Facts(NamedTuple):
    """The measurements of an operator on one worker since its last report.

    Attributes:
        busy: the nanoseconds it spent processing records or waiting for external systems.
        batches: the number of non-empty batches that it received or, for a source, emitted.
        largest: the number of records in the largest of them.
        calls: the greatest number of simultaneous calls to an external system.
        polls: how often a source was asked for records.
        saturated: how often a poll returned as many as it asked for, so that more are probably waiting.
    """

    busy: int = 0
    batches: int = 0
    largest: int = 0
    calls: int = 0
    polls: int = 0
    saturated: int = 0

    def plus(self, other: Facts) -> Facts:
        """Return the combined facts of both."""
        return Facts(
            self.busy + other.busy,
            self.batches + other.batches,
            max(self.largest, other.largest),
            max(self.calls, other.calls),
            self.polls + other.polls,
            self.saturated + other.saturated,
        )


def merge_facts(facts: dict[str, Facts], more: Mapping[str, Facts]) -> None:
    """Merge more facts, by operator name, into the first mapping."""
    for name, it in more.items():
        held = facts.get(name)
        facts[name] = it if held is None else held.plus(it)


class FactPacing:
    """Chooses the ticks whose reports include facts. Short ticks thus have no noticeable overhead.

    It chooses the first tick, then every sixteenth, and any tick that ends at least 50 ms after the last chosen one.
    Its report covers all ticks since the last chosen one.
    """

    def __init__(self) -> None:
        self._left = 0
        self._reported = 0

    def is_due(self, now: int) -> bool:
        """Whether the report of this tick includes facts.

        Args:
            now: the time at the end of the tick, by `CLOCK`.
        """
        self._left -= 1
        if self._left > 0 and now - self._reported < _NANOSECONDS:
            return False
        self._left, self._reported = _EVERY, now
        return True

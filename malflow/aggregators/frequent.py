"""The most frequent values."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from typing import Any, TypeVar

from malflow.aggregators.contract import call
from malflow.aggregators.fields import Field
from malflow.aggregators.sketches import merged_counts
from malflow.aggregators.slots import Slot, Slotted

__all__ = ["MostFrequent", "Top"]

V = TypeVar("V")

Counts = dict[Any, int]
Ranking = tuple[tuple[Any, int], ...]


@dataclass(frozen=True, repr=False)
class Top(Slotted[V, Counts, Ranking]):
    """See `malflow.agg.top`."""

    n: int
    field: Field = None

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the count of each value."""
        first, step = "{{{x}: 1}}", "{a}[{x}] = {a}.get({x}, 0) + 1"
        return (Slot(dict, _add, merged_counts, self.field, "x", needs_equality=True, first=first, step=step),)

    def combine(self, *states: Any) -> Ranking:
        """Return the most frequent values with their counts."""
        (counts,) = states
        return tuple(nlargest(self.n, counts.items(), itemgetter(1)))

    def __repr__(self) -> str:
        return call("agg.top", self.n, self.field)


@dataclass(frozen=True, repr=False)
class MostFrequent(Slotted[V, Counts, Ranking]):
    """See `malflow.agg.top`, with a capacity: the Space-Saving sketch."""

    n: int
    field: Field
    capacity: int

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the counts of at most `capacity` values."""
        return (Slot(dict, self.count, self.merge_counts, self.field, "x", needs_equality=True),)

    def combine(self, *states: Any) -> Ranking:
        """Return the most frequent values with estimates of their counts."""
        (counts,) = states
        return tuple(nlargest(self.n, counts.items(), itemgetter(1)))

    def count(self, counts: Counts, x: Any) -> Counts:
        """Count a value; without free capacity, it replaces the rarest value and inherits its count."""
        if x in counts:
            counts[x] += 1
        elif len(counts) < self.capacity:
            counts[x] = 1
        else:
            rarest = min(counts, key=counts.__getitem__)
            counts[x] = counts.pop(rarest) + 1
        return counts

    def merge_counts(self, one: Counts, other: Counts) -> Counts:
        """Merge counts after Agarwal et al.: a value missing on one side may have had the count of its rarest there."""
        missing = self._bound(one), self._bound(other)
        both = {x: one.get(x, missing[0]) + other.get(x, missing[1]) for x in (*one, *other)}
        kept = dict(nlargest(self.capacity, both.items(), itemgetter(1)))
        return {x: count for x, count in both.items() if x in kept}

    def _bound(self, counts: Counts) -> int:
        """Return the maximum number of occurrences of a value without a counter."""
        return min(counts.values()) if len(counts) >= self.capacity else 0

    def __repr__(self) -> str:
        return call("agg.top", self.n, self.field, capacity=self.capacity)


def _add(counts: Counts, x: Any) -> Counts:
    counts[x] = counts.get(x, 0) + 1
    return counts

"""Collections of all values, counts of distinct ones, and the most frequent ones."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from heapq import merge, nlargest
from operator import add, itemgetter, or_
from typing import Any, TypeVar

from malflow.aggregators.contract import call
from malflow.aggregators.exactness import Exact, Holds
from malflow.aggregators.fields import Field
from malflow.aggregators.sketches import merged_counts
from malflow.aggregators.slots import Slot, Slotted
from malflow.partitioners import stable_hash

__all__ = ["Collect", "CollectSet", "CountDistinct", "EstimateDistinct", "MostFrequent", "Top"]

V = TypeVar("V")
N = TypeVar("N")


@dataclass(frozen=True, repr=False)
class Collect(Slotted[V, list[Any], tuple[N, ...]]):
    """See `malflow.agg.collect`."""

    field: Field = None
    outcome = "tuple({0})"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the list of values."""
        return (Slot(list, _append, add, self.field, first="[{x}]", step="{a}.append({x})", join="{a} + {b}"),)

    def combine(self, *states: Any) -> tuple[N, ...]:
        """Return a tuple of the values."""
        return tuple(*states)

    def __repr__(self) -> str:
        return call("agg.collect", self.field)


@dataclass(frozen=True, repr=False)
class CollectSet(Slotted[V, set[Any], frozenset[N]]):
    """See `malflow.agg.collect_set`."""

    field: Field = None
    outcome = "frozenset({0})"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the set of values, the same as that of a distinct count."""
        first, step, join = "{{{x}}}", "{a}.add({x})", "{a} | {b}"
        return (Slot(set, add_to_set, or_, self.field, needs_equality=True, first=first, step=step, join=join),)

    def combine(self, *states: Any) -> frozenset[N]:
        """Return a frozen copy of the set."""
        return frozenset(*states)

    def __repr__(self) -> str:
        return call("agg.collect_set", self.field)


def _append(held: list[Any], x: Any, _timestamp: Any) -> list[Any]:
    held.append(x)
    return held


_KEPT = 1024
"""The number of kept hashes: the standard error is about 1 / sqrt(1024), or 3 %, in at most 1,024 numbers per state.
Half of them raise the error to 4.4 %, double lower it to 2.2 %."""

_HASHES = 1 << 64
"""The number of possible hashes: `stable_hash` has 64 bits."""


@dataclass(frozen=True, repr=False)
class CountDistinct(Slotted[V, set[Any], int]):
    """See `malflow.agg.count_distinct`."""

    field: Field = None
    outcome = "len({0})"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the set of values."""
        first, step, join = "{{{x}}}", "{a}.add({x})", "{a} | {b}"
        slot = Slot(set, add_to_set, or_, self.field, needs_equality=True, first=first, step=step, join=join)
        return (replace(slot, exact=Exact(Holds.HASHABLE)),)

    def combine(self, *states: Any) -> int:
        """Return the size of the set."""
        (distinct,) = states
        return len(distinct)

    def __repr__(self) -> str:
        return call("agg.count_distinct", self.field)


@dataclass(frozen=True, repr=False)
class EstimateDistinct(Slotted[V, list[int], int]):
    """See `malflow.agg.count_distinct`."""

    field: Field = None

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the least hashes, in ascending order."""
        return (Slot(list, _add_hash, _least_of_both, self.field, "x", exact=Exact(Holds.HASHABLE)),)

    def combine(self, *states: Any) -> int:
        """Return the estimated number of hashes, assuming that the kept ones are spread evenly."""
        (hashes,) = states
        return len(hashes) if len(hashes) < _KEPT else round((_KEPT - 1) * _HASHES / hashes[-1])

    def __repr__(self) -> str:
        return call("agg.count_distinct", self.field, approximate=True)


def add_to_set(held: set[Any], x: Any, _timestamp: Any) -> set[Any]:
    """Add an element in place."""
    held.add(x)
    return held


def _add_hash(hashes: list[int], x: Any) -> list[int]:
    hashed = stable_hash(x)
    full = len(hashes) == _KEPT
    if full and hashed >= hashes[-1]:
        return hashes
    at = bisect_left(hashes, hashed)
    if at == len(hashes) or hashes[at] != hashed:
        hashes.insert(at, hashed)
        if full:
            hashes.pop()
    return hashes


def _least_of_both(one: list[int], other: list[int]) -> list[int]:
    return list(dict.fromkeys(merge(one, other)))[:_KEPT]


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

"""The least and the greatest values, several of each."""

from __future__ import annotations

from bisect import insort_left, insort_right
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from malflow.aggregators.exactness import Exact, Holds
from malflow.aggregators.fields import Field
from malflow.aggregators.labels import call
from malflow.aggregators.slots import Slot, Slotted

__all__ = ["Largest", "Smallest"]

V = TypeVar("V")

_EXACT = Exact(Holds.COMPARABLE, ordered=True)


@dataclass(frozen=True, repr=False)
class Largest(Slotted[V, list[Any], tuple[Any, ...]]):
    """See `malflow.agg.largest`."""

    n: int
    field: Field = None

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the greatest in ascending order; of equal ones the first to arrive is the last."""
        slot = Slot(list, self.keep, self.merge_kept, self.field, "x", needs_value=True, needs_equality=True)
        return (replace(slot, exact=_EXACT),)

    def combine(self, *states: Any) -> tuple[Any, ...]:
        """Return the greatest, in descending order."""
        (kept,) = states
        return tuple(reversed(kept))

    def keep(self, kept: list[Any], x: Any) -> list[Any]:
        """Insert a value if it is among the greatest."""
        if len(kept) < self.n or x > kept[0]:
            insort_left(kept, x)
            if len(kept) > self.n:
                del kept[0]
        return kept

    def merge_kept(self, one: list[Any], other: list[Any]) -> list[Any]:
        """Return the greatest of both."""
        return sorted([*reversed(one), *reversed(other)], reverse=True)[: self.n][::-1]

    def __repr__(self) -> str:
        return call("agg.largest", self.n, self.field)


@dataclass(frozen=True, repr=False)
class Smallest(Slotted[V, list[Any], tuple[Any, ...]]):
    """See `malflow.agg.smallest`."""

    n: int
    field: Field = None

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the least in ascending order; of equal ones the first to arrive is the first."""
        slot = Slot(list, self.keep, self.merge_kept, self.field, "x", needs_value=True, needs_equality=True)
        return (replace(slot, exact=_EXACT),)

    def combine(self, *states: Any) -> tuple[Any, ...]:
        """Return the least, in ascending order."""
        return tuple(*states)

    def keep(self, kept: list[Any], x: Any) -> list[Any]:
        """Insert a value if it is among the least."""
        if len(kept) < self.n or x < kept[-1]:
            insort_right(kept, x)
            del kept[self.n :]
        return kept

    def merge_kept(self, one: list[Any], other: list[Any]) -> list[Any]:
        """Return the least of both."""
        return sorted([*one, *other])[: self.n]

    def __repr__(self) -> str:
        return call("agg.smallest", self.n, self.field)

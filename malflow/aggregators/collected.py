"""Collections of all values."""

from __future__ import annotations

from dataclasses import dataclass
from operator import add, or_
from typing import Any, TypeVar

from malflow.aggregators.contract import call
from malflow.aggregators.distinct import add_to_set
from malflow.aggregators.fields import Field
from malflow.aggregators.slots import Slot, Slotted

__all__ = ["Collect", "CollectSet"]

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

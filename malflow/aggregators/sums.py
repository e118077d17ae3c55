"""Counts, sums and means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import add
from typing import Any, TypeVar

from malflow.aggregators.exactness import Exact, Holds
from malflow.aggregators.fields import Field
from malflow.aggregators.labels import call
from malflow.aggregators.numbers import added, divided, number
from malflow.aggregators.slots import Slot, Slotted

__all__ = ["Count", "Mean", "Sum"]

V = TypeVar("V")
N = TypeVar("N")


@dataclass(frozen=True, repr=False)
class Count(Slotted[V, int, int]):
    """See `malflow.agg.count`."""

    predicate: Field = None
    outcome = "{0}"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the count."""
        return (COUNTED,) if self.predicate is None else (_counted_if(self.predicate),)

    def combine(self, *states: Any) -> int:
        """Return the count."""
        (count,) = states
        return int(count)

    def __repr__(self) -> str:
        return call("agg.count", self.predicate)


@dataclass(frozen=True, repr=False)
class Sum(Slotted[V, Any, N]):
    """See `malflow.agg.sum`."""

    field: Field = None
    of: type[int] | None = None
    outcome = "{0}"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the sum."""
        return (summed(self.field, of=self.of),)

    def combine(self, *states: Any) -> Any:
        """Return the sum."""
        (total,) = states
        return total

    def __repr__(self) -> str:
        return call("agg.sum", self.field, of=self.of)


@dataclass(frozen=True, repr=False)
class Mean(Slotted[V, Any, Any]):
    """See `malflow.agg.mean`."""

    field: Field = None
    of: type[int] | None = None
    outcome = "({1} / {0} if {1}.__class__ in plain else divided({1}, {0}))"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the count and the sum."""
        return (COUNTED, summed(self.field, of=self.of))

    def combine(self, *states: Any) -> Any:
        """Return the mean."""
        count, total = states
        return divided(total, count) if count else None

    def __repr__(self) -> str:
        return call("agg.mean", self.field, of=self.of)


def _increment(count: int, _x: Any, _timestamp: Any) -> int:
    return count + 1


def _increment_if(count: int, x: Any, _timestamp: Any) -> int:
    return count + 1 if x else count


def nothing() -> None:
    """Return the empty state of sums and extremes. It has no type yet."""


def _plus(total: Any, x: Any, _timestamp: Any) -> Any:
    return as_number(number(x)) if total is None else added(total, x)


def either(merge: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    """Merge two states, where None stands for an empty one."""
    if one is None or other is None:
        return other if one is None else one
    return merge(one, other)


def _plus_integer(total: Any, x: Any, timestamp: Any) -> Any:
    return _plus(total, x, timestamp)


def _merged_sums(one: Any, other: Any) -> Any:
    return either(added, one, other)


def as_number(x: Any) -> Any:
    """Return the first term of a sum: a truth value counts as 0 or 1."""
    return int(x) if isinstance(x, bool) else x


COUNTED = Slot(int, _increment, add, first="1", step="{to} = {a} + 1", join="{a} + {b}", exact=Exact())


def _counted_if(predicate: Field) -> Slot:
    first, step = "1 if {x} else 0", "if {x}: {to} = {a} + 1"
    return Slot(int, _increment_if, add, predicate, first=first, step=step, join="{a} + {b}", exact=Exact())


def summed(field: Field, *, of: type[int] | None = None) -> Slot:
    """Return the slot of a sum. The sum is exact if all terms are integers.

    ``{a} += {x}`` would change a list that is summed. The sum of other numbers than Python's own is computed again: the
    check of the sum is cheaper than one of both terms. With ``of=int``, both are known to be integers.
    """
    first = "{x} if {x} is not True and {x} is not False else int({x})"
    step = "{to} = {a} + {x}" if of else "s_ = {a} + {x}; {to} = s_ if s_.__class__ in plain else added({a}, {x})"
    slot = Slot(nothing, _plus, _merged_sums, field, needs_value=True, needs_number=True, first=first, step=step)
    slot = replace(slot, join="({a} + {b} if {a}.__class__ in plain and {b}.__class__ in plain else added({a}, {b}))")
    return slot if of is None else replace(slot, add=_plus_integer, needs_integer=True, exact=Exact(Holds.INTEGERS))

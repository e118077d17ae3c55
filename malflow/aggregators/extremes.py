"""The least and greatest values, one or several of each, and the first and last record in event time."""

from __future__ import annotations

from bisect import insort_left, insort_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from malflow.aggregators.contract import call
from malflow.aggregators.exactness import Exact, Holds
from malflow.aggregators.fields import Field
from malflow.aggregators.slots import Slot, Slotted
from malflow.aggregators.sums import either, nothing

__all__ = [
    "First",
    "Largest",
    "Last",
    "Max",
    "MaxBy",
    "Min",
    "MinBy",
    "Smallest",
]

V = TypeVar("V")
N = TypeVar("N")

_EXACT = Exact(Holds.COMPARABLE, ordered=True)


@dataclass(frozen=True, repr=False)
class Min(Slotted[V, Any, N]):
    """See `malflow.agg.min`."""

    field: Field = None
    outcome = "{0}"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the least."""
        step, join = "if {x} < {a}: {to} = {x}", "{b} if {b} < {a} else {a}"
        slot = Slot(nothing, _add_less, _less, self.field, needs_value=True, first="{x}", step=step, join=join)
        return (replace(slot, exact=_EXACT, kernel="min"),)

    def combine(self, *states: Any) -> Any:
        """Return the least."""
        (least,) = states
        return least

    def __repr__(self) -> str:
        return call("agg.min", self.field)


@dataclass(frozen=True, repr=False)
class Max(Slotted[V, Any, N]):
    """See `malflow.agg.max`."""

    field: Field = None
    outcome = "{0}"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the greatest."""
        step, join = "if {x} > {a}: {to} = {x}", "{b} if {b} > {a} else {a}"
        slot = Slot(nothing, _add_greater, _greater, self.field, needs_value=True, first="{x}", step=step, join=join)
        return (replace(slot, exact=_EXACT, kernel="max"),)

    def combine(self, *states: Any) -> Any:
        """Return the greatest."""
        (greatest,) = states
        return greatest

    def __repr__(self) -> str:
        return call("agg.max", self.field)


def _add_less(least: Any, x: Any, _timestamp: Any) -> Any:
    return x if least is None or x < least else least


def _add_greater(greatest: Any, x: Any, _timestamp: Any) -> Any:
    return x if greatest is None or x > greatest else greatest


def _less(one: Any, other: Any) -> Any:
    return either(lambda a, b: b if b < a else a, one, other)


def _greater(one: Any, other: Any) -> Any:
    return either(lambda a, b: b if b > a else a, one, other)


@dataclass(frozen=True, repr=False)
class MinBy(Slotted[V, Any, V]):
    """See `malflow.agg.min_by`."""

    field: Field
    outcome = "{0}[2]"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the least, its timestamp and its value."""
        return (_value_of_extreme("<", _add_value_of_least, _value_of_least, self.field),)

    def combine(self, *states: Any) -> Any:
        """Return the value."""
        (held,) = states
        return None if held is None else held[2]

    def __repr__(self) -> str:
        return call("agg.min_by", self.field)


@dataclass(frozen=True, repr=False)
class MaxBy(Slotted[V, Any, V]):
    """See `malflow.agg.max_by`."""

    field: Field
    outcome = "{0}[2]"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the greatest, its timestamp and its value."""
        return (_value_of_extreme(">", _add_value_of_greatest, _value_of_greatest, self.field),)

    def combine(self, *states: Any) -> Any:
        """Return the value."""
        (held,) = states
        return None if held is None else held[2]

    def __repr__(self) -> str:
        return call("agg.max_by", self.field)


def _value_of_extreme(sign: str, adder: Callable[..., Any], merger: Callable[[Any, Any], Any], field: Field) -> Slot:
    """Return the slot of a value with an extreme field; of equal ones the earliest is kept."""
    step = f"if {{x}} {sign} {{a}}[0] or ({{x}} == {{a}}[0] and {{t}} < {{a}}[1]): {{to}} = ({{x}}, {{t}}, v)"
    slot = Slot(nothing, adder, merger, field, "xtv", needs_value=True, first="({x}, {t}, v)", step=step)
    return replace(slot, exact=_EXACT._replace(timed=True))


def _add_value_of_least(held: Any, x: Any, timestamp: Any, value: Any) -> Any:
    return _value_of_least(held, (x, timestamp, value))


def _add_value_of_greatest(held: Any, x: Any, timestamp: Any, value: Any) -> Any:
    return _value_of_greatest(held, (x, timestamp, value))


def _value_of_least(one: Any, other: Any) -> Any:
    return either(lambda a, b: b if b[0] < a[0] or (b[0] == a[0] and b[1] < a[1]) else a, one, other)


def _value_of_greatest(one: Any, other: Any) -> Any:
    return either(lambda a, b: b if b[0] > a[0] or (b[0] == a[0] and b[1] < a[1]) else a, one, other)


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


_EXACT_IN_TIME = Exact(ordered=True, timed=True)


@dataclass(frozen=True, repr=False)
class First(Slotted[V, Any, N]):
    """See `malflow.agg.first`."""

    field: Field = None
    outcome = "{0}[1]"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the earliest timestamp, with the field."""
        step = "if {t} < {a}[0]: {to} = ({t}, {x})"
        slot = Slot(nothing, _add_earlier, _earlier, self.field, first="({t}, {x})", step=step, exact=_EXACT_IN_TIME)
        return (replace(slot, kernel="first"),)

    def combine(self, *states: Any) -> Any:
        """Return the field."""
        (held,) = states
        return None if held is None else held[1]

    def __repr__(self) -> str:
        return call("agg.first", self.field)


@dataclass(frozen=True, repr=False)
class Last(Slotted[V, Any, N]):
    """See `malflow.agg.last`."""

    field: Field = None
    outcome = "{0}[1]"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the latest timestamp, with the field."""
        step = "if {t} >= {a}[0]: {to} = ({t}, {x})"
        slot = Slot(nothing, _add_later, _later, self.field, first="({t}, {x})", step=step, exact=_EXACT_IN_TIME)
        return (replace(slot, kernel="last"),)

    def combine(self, *states: Any) -> Any:
        """Return the field."""
        (held,) = states
        return None if held is None else held[1]

    def __repr__(self) -> str:
        return call("agg.last", self.field)


def _add_earlier(held: Any, x: Any, timestamp: Any) -> Any:
    return _earlier(held, (timestamp, x))


def _add_later(held: Any, x: Any, timestamp: Any) -> Any:
    return _later(held, (timestamp, x))


def _earlier(one: Any, other: Any) -> Any:
    return either(lambda a, b: b if b[0] < a[0] else a, one, other)


def _later(one: Any, other: Any) -> Any:
    return either(lambda a, b: b if b[0] >= a[0] else a, one, other)

"""The least and the greatest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from malflow.aggregators.fields import Field
from malflow.aggregators.labels import call
from malflow.aggregators.slots import Slot, Slotted
from malflow.aggregators.sums import either, nothing

__all__ = ["Max", "Min"]

V = TypeVar("V")
N = TypeVar("N")


@dataclass(frozen=True, repr=False)
class Min(Slotted[V, Any, N]):
    """See `malflow.agg.min`."""

    field: Field = None
    outcome = "{0}"

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The least."""
        step, join = "if {x} < {a}: {to} = {x}", "{b} if {b} < {a} else {a}"
        return (Slot(nothing, _add_less, _less, self.field, needs_value=True, first="{x}", step=step, join=join),)

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

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The greatest."""
        step, join = "if {x} > {a}: {to} = {x}", "{b} if {b} > {a} else {a}"
        return (Slot(nothing, _add_greater, _greater, self.field, needs_value=True, first="{x}", step=step, join=join),)

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

"""The first and the last record in event time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from malflow.aggregators.exactness import Exact
from malflow.aggregators.fields import Field
from malflow.aggregators.labels import call
from malflow.aggregators.slots import Slot, Slotted
from malflow.aggregators.sums import either, nothing

__all__ = ["First", "Last"]

V = TypeVar("V")
N = TypeVar("N")

_EXACT = Exact(ordered=True, timed=True)


@dataclass(frozen=True, repr=False)
class First(Slotted[V, Any, N]):
    """See `malflow.agg.first`."""

    field: Field = None
    outcome = "{0}[1]"

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the earliest timestamp, with the field."""
        step = "if {t} < {a}[0]: {to} = ({t}, {x})"
        return (Slot(nothing, _add_earlier, _earlier, self.field, first="({t}, {x})", step=step, exact=_EXACT),)

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
        return (Slot(nothing, _add_later, _later, self.field, first="({t}, {x})", step=step, exact=_EXACT),)

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

"""Sums of floats without rounding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import add
from typing import Any, TypeVar

from malflow.aggregators.exactness import Exact, Holds
from malflow.aggregators.fields import Field
from malflow.aggregators.labels import call
from malflow.aggregators.slots import Slot, Slotted

__all__ = ["ExactSum"]

V = TypeVar("V")

_PLACES = 1074
"""Binary places of the least float above zero. All floats are multiples of it."""


@dataclass(frozen=True, repr=False)
class ExactSum(Slotted[V, int, float]):
    """See `malflow.agg.fsum`."""

    field: Field = None

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the sum in units of ``2 ** -1074``, an integer: after Kulisch's exact accumulator."""
        slot = Slot(int, _add, add, self.field, "x", needs_value=True, needs_number=True, join="{a} + {b}")
        return (replace(slot, exact=Exact(Holds.NUMBERS)),)

    def combine(self, *states: Any) -> float:
        """Return the nearest float."""
        (total,) = states
        try:
            nearest: float = total / (1 << _PLACES)
        except OverflowError:
            raise OverflowError("the sum is beyond the greatest float; agg.sum adds integers exactly") from None
        return nearest

    def __repr__(self) -> str:
        return call("agg.fsum", self.field)


def _add(total: int, x: Any) -> int:
    if not isinstance(x, (float, int)):
        x = _as_float(x)
    numerator, denominator = x.as_integer_ratio()
    return total + int(numerator << (_PLACES + 1 - denominator.bit_length()))


def _as_float(x: Any) -> float:
    """Return a number with the same precision as the given one.

    Raises:
        TypeError: if there is none.
    """
    nearest = float(x)
    if nearest != x:
        raise TypeError(f"agg.fsum adds floats and integers; got {type(x).__name__}; agg.sum adds those exactly")
    return nearest

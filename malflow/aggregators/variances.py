"""Variances and standard deviations."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeVar

from malflow.aggregators.fields import Field, exact
from malflow.aggregators.labels import call
from malflow.aggregators.slots import Slot, Slotted

__all__ = ["Deviation", "Variance"]

V = TypeVar("V")

_EXACT = 1 << 53
"""Floats represent all integers up to this one. If the first number is greater, the moments are fractions."""

Moments = list[Any]
"""Count, mean, and the sum of the squares of the deviations from the mean."""


@dataclass(frozen=True, repr=False)
class Variance(Slotted[V, Moments, Any]):
    """See `malflow.agg.variance`."""

    field: Field = None
    ddof: int = 1

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the moments."""
        step = (
            "n_ = {a}[0] = {a}[0] + 1; d_ = {x} - {a}[1]; m_ = {a}[1] = {a}[1] + d_ / n_; "
            "{a}[2] = {a}[2] + d_ * ({x} - m_)"
        )
        first = f"[1, {{x}} if {{x}}.__class__ is float or -{_EXACT} <= {{x}} <= {_EXACT} else exact({{x}}), 0]"
        return (Slot(_none_yet, _add, _merge, self.field, needs_value=True, needs_number=True, first=first, step=step),)

    def combine(self, *states: Any) -> Any:
        """Return the variance; None for fewer than ``ddof + 1`` records."""
        ((count, _, squares),) = states
        return squares / (count - self.ddof) if count > self.ddof else None

    def __repr__(self) -> str:
        return call("agg.variance", self.field, ddof=self.ddof)


@dataclass(frozen=True, repr=False)
class Deviation(Variance[V]):
    """See `malflow.agg.stddev`."""

    def combine(self, *states: Any) -> float | None:
        """Return the standard deviation; None for fewer than ``ddof + 1`` records."""
        variance = super().combine(*states)
        return None if variance is None else sqrt(variance)

    def __repr__(self) -> str:
        return call("agg.stddev", self.field, ddof=self.ddof)


def _none_yet() -> Moments:
    return [0, 0, 0]


def _add(moments: Moments, x: Any, _timestamp: Any) -> Moments:
    """Add a number by Welford's method. It does not subtract large squares."""
    count, mean, squares = moments
    if count == 0:
        return [1, x if -_EXACT <= x <= _EXACT else exact(x), 0]
    deviation = x - mean
    mean = mean + deviation / (count + 1)
    return [count + 1, mean, squares + deviation * (x - mean)]


def _merge(one: Moments, other: Moments) -> Moments:
    """Merge moments by the method of Chan, Golub and LeVeque."""
    if not one[0] or not other[0]:
        return list(one if one[0] else other)
    count = one[0] + other[0]
    apart = other[1] - one[1]
    mean = one[1] + apart * other[0] / count
    return [count, mean, one[2] + other[2] + apart * apart * one[0] * other[0] / count]

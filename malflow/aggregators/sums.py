"""Counts, sums, means and variances, and sums of floats without rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from operator import add
from typing import Any, TypeVar

from malflow.aggregators.contract import call
from malflow.aggregators.exactness import Exact, Holds
from malflow.aggregators.fields import Field, exact
from malflow.aggregators.numbers import added, divided, number
from malflow.aggregators.slots import Slot, Slotted

__all__ = [
    "Count",
    "Deviation",
    "ExactSum",
    "Mean",
    "Sum",
    "Variance",
]

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


COUNTED = Slot(int, _increment, add, first="1", step="{to} = {a} + 1", join="{a} + {b}", exact=Exact(), kernel="count")


def _counted_if(predicate: Field) -> Slot:
    first, step = "1 if {x} else 0", "if {x}: {to} = {a} + 1"
    slot = Slot(int, _increment_if, add, predicate, first=first, step=step, join="{a} + {b}", exact=Exact())
    return replace(slot, kernel="count of")


def summed(field: Field, *, of: type[int] | None = None) -> Slot:
    """Return the slot of a sum. The sum is exact if all terms are integers.

    ``{a} += {x}`` would change a list that is summed. The sum of other numbers than Python's own is computed again: the
    check of the sum is cheaper than one of both terms. With ``of=int``, both are known to be integers.
    """
    first = "{x} if {x} is not True and {x} is not False else int({x})"
    checked = "s_ if s_.__class__ is int or s_.__class__ in plain else added({a}, {x})"  # most sums are of integers
    step = "{to} = {a} + {x}" if of else f"s_ = {{a}} + {{x}}; {{to}} = {checked}"
    slot = Slot(nothing, _plus, _merged_sums, field, needs_value=True, needs_number=True, first=first, step=step)
    slot = replace(slot, join="({a} + {b} if {a}.__class__ in plain and {b}.__class__ in plain else added({a}, {b}))")
    slot = replace(slot, kernel="sum")
    return slot if of is None else replace(slot, add=_plus_integer, needs_integer=True, exact=Exact(Holds.INTEGERS))


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
        return (
            Slot(
                _none_yet,
                _add_moments,
                _merge_moments,
                self.field,
                needs_value=True,
                needs_number=True,
                first=first,
                step=step,
                kernel="moments",
            ),
        )

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


def _add_moments(moments: Moments, x: Any, _timestamp: Any) -> Moments:
    """Add a number by Welford's method. It does not subtract large squares."""
    count, mean, squares = moments
    if count == 0:
        return [1, x if -_EXACT <= x <= _EXACT else exact(x), 0]
    deviation = x - mean
    mean = mean + deviation / (count + 1)
    return [count + 1, mean, squares + deviation * (x - mean)]


def _merge_moments(one: Moments, other: Moments) -> Moments:
    """Merge moments by the method of Chan, Golub and LeVeque."""
    if not one[0] or not other[0]:
        return list(one if one[0] else other)
    count = one[0] + other[0]
    apart = other[1] - one[1]
    mean = one[1] + apart * other[0] / count
    return [count, mean, one[2] + other[2] + apart * apart * one[0] * other[0] / count]


_PLACES = 1074
"""Binary places of the least float above zero. All floats are multiples of it."""


@dataclass(frozen=True, repr=False)
class ExactSum(Slotted[V, int, float]):
    """See `malflow.agg.fsum`."""

    field: Field = None

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the sum in units of ``2 ** -1074``, an integer: after Kulisch's exact accumulator."""
        slot = Slot(int, _add_exactly, add, self.field, "x", needs_value=True, needs_number=True, join="{a} + {b}")
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


def _add_exactly(total: int, x: Any) -> int:
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

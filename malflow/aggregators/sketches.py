"""Quantiles: exact ones, and estimates with a bounded relative error."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import ceil, inf, log
from sys import float_info
from typing import Any, TypeVar

from malflow.aggregators.contract import call, label
from malflow.aggregators.exactness import Exact, Holds
from malflow.aggregators.fields import Field
from malflow.aggregators.slots import Slot, Slotted
from malflow.words import short_repr

__all__ = ["ExactQuantiles", "Quantile", "Quantiles", "merged_counts"]

V = TypeVar("V")
R = TypeVar("R")

Buckets = dict[Any, Any]
"""The count of each bucket, and the least and greatest number. Buckets are in ascending order; bucket 0 is for zero."""

_LEAST, _GREATEST = "least", "greatest"

_ERROR = 0.01
"""The greatest relative error of an estimate. Half of it doubles the buckets of a state, double halves them; states
with another error can't be merged with older ones."""

_GAMMA = (1 + _ERROR) / (1 - _ERROR)
_LOG_GAMMA = log(_GAMMA)
_OF_ONE = 1 << 20
"""The bucket of 1, so that the buckets of all positive floats are above that of zero."""


class _Sketch(Slotted[V, Buckets, R]):
    field: Field

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the buckets."""
        exact = Exact(Holds.NUMBERS)
        return (Slot(dict, _add, _merge, self.field, "x", needs_value=True, needs_number=True, exact=exact),)


@dataclass(frozen=True, repr=False)
class Quantiles(_Sketch[V, tuple[float, ...]]):
    """See `malflow.agg.quantiles`."""

    field: Field
    fractions: tuple[float, ...]

    def combine(self, *states: Any) -> tuple[float, ...]:
        """Return the quantile of each fraction."""
        (buckets,) = states
        return _quantiles(buckets, self.fractions)

    def __repr__(self) -> str:
        return f"agg.quantiles({', '.join(map(label, (self.field, *self.fractions)))})"


@dataclass(frozen=True, repr=False)
class Quantile(_Sketch[V, float]):
    """See `malflow.agg.quantile` and `malflow.agg.median`."""

    field: Field
    fraction: float
    name: str = "agg.quantile"

    def combine(self, *states: Any) -> float:
        """Return the quantile."""
        (buckets,) = states
        quantile: float = _quantiles(buckets, (self.fraction,))[0]
        return quantile

    def __repr__(self) -> str:
        return (
            call("agg.median", self.field) if self.name == "agg.median" else call(self.name, self.field, self.fraction)
        )


@dataclass(frozen=True, repr=False)
class ExactQuantiles(Slotted[V, dict[Any, int], tuple[Any, ...]]):
    """See `malflow.agg.exact_quantiles`."""

    field: Field
    fractions: tuple[float, ...]

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the count of each number."""
        exact = Exact(Holds.NUMBERS, ordered=True)  # of equal numbers, such as 1 and 1.0, the first is kept
        return (Slot(dict, _count, merged_counts, self.field, "x", needs_value=True, needs_number=True, exact=exact),)

    def combine(self, *states: Any) -> tuple[Any, ...]:
        """Return the number at the rank of each fraction."""
        (counts,) = states
        return _at_ranks(counts, self.fractions)

    def __repr__(self) -> str:
        return f"agg.exact_quantiles({', '.join(map(label, (self.field, *self.fractions)))})"


def _count(counts: dict[Any, int], x: Any) -> dict[Any, int]:
    if x != x:  # noqa: PLR0124 - NaN
        raise ValueError("NaN has no place among quantiles; call .filter() first to drop such records")
    counts[x] = counts.get(x, 0) + 1
    return counts


def _add(buckets: Buckets, x: Any) -> Buckets:
    """Count a number in its bucket, and keep the least and the greatest."""
    if x > 0:
        bucket = _OF_ONE + ceil(log(x) / _LOG_GAMMA)
    elif x < 0:
        bucket = -_OF_ONE - ceil(log(-x) / _LOG_GAMMA)
    elif x == 0:
        bucket = 0
    else:
        raise ValueError("NaN has no place among quantiles; call .filter() first to drop such records")
    least = buckets.get(_LEAST)
    if least is None:
        if not buckets:  # otherwise the state is of a version that did not keep the ends
            buckets[_LEAST] = buckets[_GREATEST] = _as_float(x)
    elif x < least:
        buckets[_LEAST] = _as_float(x)
    elif x > buckets[_GREATEST]:
        buckets[_GREATEST] = _as_float(x)
    buckets[bucket] = buckets.get(bucket, 0) + 1
    return buckets


def _as_float(x: Any) -> float:
    try:
        return float(x)
    except OverflowError:
        raise OverflowError(
            f"agg.quantiles estimates in floats, and {short_repr(x)} is out of their range; agg.exact_quantiles "
            "accepts it"
        ) from None


def _merge(one: Buckets, other: Buckets) -> Buckets:
    """Return the sums of the counts, with the ends of both, if known."""
    if not one or not other:
        return dict(one or other)
    counts = merged_counts(one, other)
    if _LEAST in one and _LEAST in other:
        counts[_LEAST] = min(one[_LEAST], other[_LEAST])
        counts[_GREATEST] = max(one[_GREATEST], other[_GREATEST])
    else:
        counts.pop(_LEAST, None)
        counts.pop(_GREATEST, None)
    return counts


def merged_counts(one: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    """Return the sums of the counts of both."""
    counts = dict(one)
    for thing, count in other.items():
        counts[thing] = counts.get(thing, 0) + count
    return counts


def _quantiles(buckets: Buckets, fractions: tuple[float, ...]) -> tuple[Any, ...]:
    """Return the middle of the bucket of each quantile, within the ends; None if there are no numbers."""
    counts = {bucket: count for bucket, count in buckets.items() if bucket not in (_LEAST, _GREATEST)}
    least, greatest = buckets.get(_LEAST, -inf), buckets.get(_GREATEST, inf)
    found = _at_ranks(counts, fractions)
    return tuple([None if bucket is None else min(max(_middle(bucket), least), greatest) for bucket in found])


def _at_ranks(counts: dict[Any, int], fractions: tuple[float, ...]) -> tuple[Any, ...]:
    """Return the value at each rank ``ceil(fraction * n)``, counted from 1; None if there are no values."""
    if not counts:
        return (None,) * len(fractions)
    ascending = sorted(counts)
    reached = list(accumulate([counts[it] for it in ascending]))
    ranks = [ceil(Fraction(str(fraction)) * reached[-1]) for fraction in fractions]  # 0.07 means 7/100
    return tuple([ascending[bisect_left(reached, max(rank, 1))] for rank in ranks])


def _middle(bucket: int) -> float:
    """Return the number within the relative error of every number in the bucket."""
    if bucket == 0:
        return 0.0
    middle = _middle_above_zero(abs(bucket) - _OF_ONE)
    return middle if bucket > 0 else -middle


def _middle_above_zero(upper: int) -> float:
    """Return the middle of the bucket with numbers up to ``_GAMMA ** upper``."""
    try:
        middle: float = _GAMMA ** (upper - 1) * (2 * _GAMMA / (1 + _GAMMA))
    except OverflowError:
        return float_info.max
    return min(middle, float_info.max)

"""Quantiles with a bounded relative error."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, floor, inf, log
from typing import Any, TypeVar

from malflow.aggregators.fields import Field
from malflow.aggregators.labels import call, label
from malflow.aggregators.slots import Slot, Slotted

__all__ = ["Median", "Quantiles"]

V = TypeVar("V")
R = TypeVar("R")

Buckets = dict[int, int]
"""How many numbers are in each bucket. Buckets ascend with their numbers; 0 is that of zero."""

_ERROR = 0.01
_GAMMA = (1 + _ERROR) / (1 - _ERROR)
_LOG_GAMMA = log(_GAMMA)
_OF_ONE = 1 << 20
"""The bucket of 1: the buckets of all positive floats are above that of zero."""


class _Sketch(Slotted[V, Buckets, R]):
    field: Field

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the buckets."""
        return (Slot(dict, _add, merged_counts, self.field, "x", needs_value=True),)


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
class Median(_Sketch[V, float]):
    """See `malflow.agg.median`."""

    field: Field = None

    def combine(self, *states: Any) -> float:
        """Return the median."""
        (buckets,) = states
        median: float = _quantiles(buckets, (0.5,))[0]
        return median

    def __repr__(self) -> str:
        return call("agg.median", self.field)


def _add(buckets: Buckets, x: Any) -> Buckets:
    if x > 0:
        bucket = _OF_ONE + ceil(log(x) / _LOG_GAMMA)
    elif x < 0:
        bucket = -_OF_ONE - ceil(log(-x) / _LOG_GAMMA)
    elif x == 0:
        bucket = 0
    else:
        raise ValueError("NaN has no place among quantiles; call .filter() first to drop such records")
    buckets[bucket] = buckets.get(bucket, 0) + 1
    return buckets


def merged_counts(one: dict[Any, int], other: dict[Any, int]) -> dict[Any, int]:
    """Return the sums of the counts of both."""
    counts = dict(one)
    for thing, count in other.items():
        counts[thing] = counts.get(thing, 0) + count
    return counts


def _quantiles(buckets: Buckets, fractions: tuple[float, ...]) -> tuple[Any, ...]:
    """Return the middle of the bucket of each quantile; None where there are no numbers."""
    if not buckets:
        return (None,) * len(fractions)
    ascending = sorted(buckets)
    reached = list(accumulate([buckets[bucket] for bucket in ascending]))
    ranks = [floor(fraction * (reached[-1] - 1)) for fraction in fractions]
    return tuple([_middle(ascending[bisect_right(reached, rank)]) for rank in ranks])


def _middle(bucket: int) -> float:
    """Return the number from which no number of the bucket differs by more than the relative error."""
    if bucket == 0:
        return 0.0
    middle = _middle_above_zero(abs(bucket) - _OF_ONE)
    return middle if bucket > 0 else -middle


def _middle_above_zero(upper: int) -> float:
    """Return the middle of the bucket whose numbers go up to ``_GAMMA ** upper``."""
    try:
        middle: float = _GAMMA ** (upper - 1) * (2 * _GAMMA / (1 + _GAMMA))
    except OverflowError:
        return inf
    return middle

"""Whether merging the accumulators of records equals adding the records, in value and type, to the last bit.

Sums of floats are not associative. Extremes are, unless there is a NaN, or a class with rules of comparison of its own.
So each slot says which values its column must hold, and columns are checked before they are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from math import isfinite
from typing import Any, NamedTuple

__all__ = ["Exact", "Holds", "fits", "has_fixed_zones"]


class Holds(Enum):
    """The values of a column for which merging is exact."""

    ANYTHING = "anything"
    INTEGERS = "integers"
    NUMBERS = "numbers"
    COMPARABLE = "comparable"
    HASHABLE = "hashable"


class Exact(NamedTuple):
    """When merging equals adding, for one slot: always, or for some types of values.

    Attributes:
        column: the values for which it does.
        ordered: whether the order of records matters where they are equal, so that accumulators must be of records that
            followed each other.
        timed: whether timestamps are compared.
    """

    column: Holds = Holds.ANYTHING
    ordered: bool = False
    timed: bool = False


_INTEGERS = frozenset({int, bool})
_NUMBERS = frozenset({int, float, bool})
_ORDERED = frozenset({str, bytes, date, timedelta, datetime})
"""Types of which each has a total order."""

_HASHED = frozenset({int, bool, str, bytes, date, timedelta, type(None)})


def fits(column: Sequence[Any], holds: Holds) -> bool:
    """Whether a column has only values for which merging is exact.

    >>> fits([1, True], Holds.INTEGERS), fits([1, 0.5], Holds.INTEGERS), fits([1, float("nan")], Holds.NUMBERS)
    (True, False, False)
    """
    if holds is Holds.ANYTHING:
        return True
    kinds = set(map(type, column))
    if holds is Holds.INTEGERS:
        return kinds <= _INTEGERS
    if kinds <= _NUMBERS:
        return float not in kinds or _is_finite(column)
    if holds is Holds.HASHABLE:
        return kinds <= _HASHED
    if holds is Holds.NUMBERS or len(kinds) != 1 or not kinds <= _ORDERED:
        return False
    return datetime not in kinds or has_fixed_zones(column)


def has_fixed_zones(times: Sequence[datetime]) -> bool:
    """Whether datetimes have no zone, or all of them a fixed one: the hour that a clock repeats has no total order."""
    zones = {type(time.tzinfo) for time in times}
    return zones in ({type(None)}, {timezone})


def _is_finite(column: Sequence[Any]) -> bool:
    """Whether no number is infinite or NaN; false as well if their sum is too large."""
    try:
        return isfinite(sum(column))
    except OverflowError:
        return False

"""Whether merging the accumulators of records equals adding the records, in value and type, to the last bit.

Sums of floats are not associative. Extremes are, unless there is a NaN, or a class with rules of comparison of its own.
So each slot says which values its column must hold, and columns are checked before they are added up. In a batch, an
`Accumulated` then stands for records.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from itertools import groupby
from math import isfinite
from operator import itemgetter
from typing import Any, NamedTuple

from malflow.records.batch import Batch
from malflow.records.columnar import is_accumulated, is_columnar

__all__ = ["Accumulated", "Exact", "Holds", "fits", "has_accumulated", "has_fixed_zones", "merge_into", "runs_of"]


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


class Accumulated(tuple[Any]):
    """In a column of values: an accumulator of several records of one key and pane, the only item."""

    __slots__ = ()


def has_accumulated(values: Sequence[Any]) -> bool:
    """Whether a column of values has accumulators among its records."""
    return is_accumulated(values) or (not is_columnar(values) and Accumulated in set(map(type, values)))


def runs_of(batch: Batch) -> list[tuple[bool, Batch]]:
    """Split a batch, without its epochs, into runs of accumulators and runs of records."""
    kinds = [type(value) is Accumulated for value in batch.values]
    runs = [[at for at, _ in run] for _, run in groupby(enumerate(kinds), itemgetter(1))]
    return [(kinds[run[0]], batch.part(run[0], run[-1] + 1)) for run in runs]


def merge_into(
    states: MutableMapping[Any, Any],
    run: Batch,
    merge: Callable[[Any, Any], Any],
    admit: Callable[[Any], object] | None,
) -> None:
    """Merge accumulators into the accumulators of their keys, in order.

    Args:
        states: the accumulators by key.
        run: accumulators only.
        merge: returns the accumulator of the records of both.
        admit: called with each new key before it is inserted.
    """
    for key, value in zip(run.key_column(), run.values, strict=True):
        if key in states:
            states[key] = merge(states[key], value[0])
        else:
            if admit is not None:
                admit(key)
            states[key] = value[0]

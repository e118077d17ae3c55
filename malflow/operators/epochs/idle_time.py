"""The silence of epoch (watermark) generators, and the lateness of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, TypeAlias

from malflow.event_time.tick import Tick

__all__ = [
    "Units",
    "greatest_lateness",
    "merge_lateness",
    "moved_on",
    "silence_after",
]

Units: TypeAlias = float | Decimal | Fraction
"""How many units of a numeric timestamp make a second."""

_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS = 10**6
"""Microseconds in a second: the resolution of `timedelta`."""


def silence_after(before: timedelta | None, places: Iterable[tuple[str, int]], tick: Tick) -> timedelta | None:
    """Return how long sources have been silent, up to the previous tick; None if they are not.

    The time counts from the first tick in which they emitted nothing up to the last one.

    Args:
        before: how long they had been silent one tick earlier; None if they were not.
        places: the sources and workers that emit the records.
        tick: the current tick.
    """
    if not tick.quiet.issuperset(places):
        return None
    return timedelta(0) if before is None else before + tick.quiet_time


def moved_on(epoch: Any, before: timedelta, after: timedelta, second: Any) -> Any:
    """Return an epoch advanced by the growth of a silence; None if its type does not advance by the clock.

    Integers and dates advance in whole steps; the steps of several calls add up to the steps of the total time.

    Args:
        epoch: the epoch, which has already advanced by `before`.
        before: the earlier silence.
        after: the current silence.
        second: how many units of a number make a second; None if numbers do not advance by the clock.

    >>> second = timedelta(seconds=1)
    >>> moved_on(100, 2 * second, 5 * second, 1000), moved_on(100, 2 * second, 5 * second, None)
    (3100, None)
    >>> moved_on(datetime(2024, 5, 1), 0 * second, 90 * second, None)
    datetime.datetime(2024, 5, 1, 0, 1, 30)
    """
    try:
        if isinstance(epoch, (datetime, timedelta)):
            return epoch + (after - before)
        if isinstance(epoch, date):
            return epoch + (after // _DAY - before // _DAY) * _DAY
        if second is None or isinstance(epoch, bool) or not isinstance(epoch, (int, float, Decimal, Fraction)):
            return None
        return _units(epoch, before, after, second)
    except OverflowError:
        return None


def _units(epoch: Any, before: timedelta, after: timedelta, second: Any) -> Any:
    units = Fraction(second) / _MICROSECONDS
    if isinstance(epoch, int):
        return epoch + (after // _MICROSECOND * units // 1 - before // _MICROSECOND * units // 1)
    moved = (after - before) // _MICROSECOND * units
    if isinstance(epoch, Decimal):
        return epoch + Decimal(moved.numerator) / Decimal(moved.denominator)
    return epoch + (float(moved) if isinstance(epoch, float) else moved)


_DIFFERENCES = (Real, Decimal, timedelta)


def greatest_lateness(late: Mapping[int, Any], timestamps: Sequence[Any], so_far: Any = None) -> Any:
    """Return the greatest difference between the epoch and the timestamp of late records.

    Args:
        late: the epochs by which records are late, by index of the record.
        timestamps: the timestamps of all records.
        so_far: the greatest lateness of earlier records, or None.

    Returns:
        A number or a timedelta; None if timestamps of this type can't be subtracted.

    >>> greatest_lateness({0: 10, 2: 12}, [7, 13, 11]), greatest_lateness({0: "b"}, ["a"])
    (3, None)
    """
    for index, epoch in late.items():
        try:
            behind = epoch - timestamps[index]
            if (so_far is None or behind > so_far) and isinstance(behind, _DIFFERENCES) and behind == behind:  # noqa: PLR0124 - NaN
                so_far = behind
        except (TypeError, ArithmeticError):
            continue
    return so_far


def merge_lateness(greatest: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Update the greatest lateness of each generator with that in `more`, if greater."""
    for name, behind in more.items():
        try:
            if name not in greatest or behind > greatest[name]:
                greatest[name] = behind
        except TypeError:  # timestamps of another type
            continue

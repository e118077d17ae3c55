"""Epochs rounded down to multiples of a step, so that there are fewer of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

from malflow.errors import shown
from malflow.message import MAX, MIN

__all__ = ["Step", "rounded_down"]

Step: TypeAlias = float | timedelta | Decimal | Fraction
"""What epochs can be multiples of: a number, or a timedelta for datetimes and dates."""

_DAY = date(1970, 1, 1)
_NAIVE = datetime(1970, 1, 1)  # noqa: DTZ001 - for times without a zone
_AWARE = datetime(1970, 1, 1, tzinfo=UTC)


def rounded_down(epoch: Any, every: Step) -> Any:
    """Return the greatest multiple of a step that is not above an epoch; `MIN` and `MAX` stay.

    Multiples count from 0; those of datetimes and dates from the beginning of 1970, in UTC if they have a zone. Of two
    epochs the lesser is never rounded to the greater multiple.

    Args:
        epoch: the epoch.
        every: the step; positive.

    Raises:
        TypeError: if the step does not fit the type of the epoch.

    >>> rounded_down(-1, 10), rounded_down(7.5, 2), rounded_down(datetime(2024, 5, 1, 12, 34), timedelta(hours=1))
    (-10, 6.0, datetime.datetime(2024, 5, 1, 12, 0))
    """
    if epoch is MIN or epoch is MAX:
        return epoch
    if isinstance(epoch, (date, timedelta)) and not isinstance(every, timedelta):
        raise TypeError(_wrong_step(epoch, every))
    try:
        if isinstance(epoch, date):
            return _since_1970(epoch, every)
        number = epoch // every
        multiple = number * every
        if multiple > epoch:  # a Decimal is divided towards zero
            multiple = (number - 1) * every
    except TypeError as error:
        raise TypeError(_wrong_step(epoch, every)) from error
    return multiple if multiple <= epoch else epoch  # an infinite one is no multiple


def _since_1970(epoch: Any, every: Any) -> Any:
    if not isinstance(epoch, datetime):
        return _DAY + (epoch - _DAY) // every * every
    if epoch.tzinfo is None:
        return _NAIVE + (epoch - _NAIVE) // every * every
    multiple = _AWARE + (epoch - _AWARE) // every * every
    return multiple if epoch.tzinfo is UTC else multiple.astimezone(epoch.tzinfo)


def _wrong_step(epoch: Any, every: Any) -> str:
    kinds = type(epoch).__name__, type(every).__name__
    return (
        f"the epochs are {kinds[0]}, as {shown(epoch)}, and every is {kinds[1]}, {shown(every)}, which has no such "
        "multiples; give an every that fits, such as a timedelta for datetimes and a number for numbers"
    )

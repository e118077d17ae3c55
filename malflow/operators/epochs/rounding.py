"""The usual epoch generator, a fixed distance behind the newest record, and rounding to fewer epochs."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol, TypeAlias, TypeVar

from malflow.durations import as_length
from malflow.errors import GraphError
from malflow.message import MAX, MIN, DataMessage
from malflow.operators.epochs.timestamps import as_python
from malflow.words import short_repr

__all__ = [
    "LimitedOutOfOrderness",
    "Step",
    "Thinning",
    "calm_until",
    "can_skip",
    "limit_out_of_orderness",
    "rounded_down",
]

Step: TypeAlias = float | timedelta | Decimal | Fraction
"""A step of epochs: a number, or a timedelta for datetimes and dates."""

_DAY = date(1970, 1, 1)
_NAIVE = datetime(1970, 1, 1)  # noqa: DTZ001 - for times without a zone
_AWARE = datetime(1970, 1, 1, tzinfo=UTC)

_NUMBERS = frozenset({int, float})
_PRECISION = 49
"""Bits of a sum of numbers that rounding does not affect."""


def rounded_down(epoch: Any, every: Step) -> Any:
    """Return the greatest multiple of a step at or below an epoch; `MIN` and `MAX` stay.

    Multiples count from 0; for datetimes and dates, from the beginning of 1970, in UTC if they have a zone. Rounding
    preserves the order of epochs.

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
    if type(multiple) is float:
        multiple += 0.0  # -0.0 becomes 0.0
    return multiple if multiple <= epoch else epoch  # infinity is not a multiple


def can_skip(timestamp: Any, bound: Any, every: Step | None) -> bool:
    """Whether records with timestamps of this type may be skipped until `calm_until`.

    >>> can_skip(1, 0.5, None), can_skip(datetime(2024, 5, 1), timedelta(1), None), can_skip("a", 1, None)
    (True, True, False)
    """
    if type(timestamp) is datetime:
        return type(bound) is timedelta and (every is None or type(every) is timedelta)
    return type(timestamp) in _NUMBERS and type(bound) in _NUMBERS and (every is None or type(every) in _NUMBERS)


def calm_until(epoch: Any, bound: Any, every: Any) -> Any:
    """Return a timestamp up to which no record moves the epoch to another multiple of `every`.

    For datetimes and integers it is the last such timestamp; for other numbers a slightly earlier one, since
    differences may be rounded.

    >>> calm_until(20, bound=5, every=10), calm_until(datetime(2024, 5, 1), timedelta(hours=1), timedelta(minutes=1))
    (34, datetime.datetime(2024, 5, 1, 1, 0, 59, 999999))
    """
    if epoch is MIN or epoch is MAX:
        return epoch
    try:
        end = rounded_down(epoch, every) + every + bound
        if isinstance(epoch, datetime):
            return end - datetime.resolution
        size = abs(epoch) + every + bound
        return end - 1 - (size >> _PRECISION) if type(size) is int else end - size * 2**-_PRECISION
    except (OverflowError, TypeError):  # such as a Decimal epoch and a float bound
        return epoch


class Thinning:
    """Rounds epochs down; caches the last multiple, since many epochs in a row round to the same one.

    Args:
        every: the step; None leaves epochs as they are.
    """

    def __init__(self, every: Step | None) -> None:
        self._every: Any = every
        self._kind: Any = None
        self._multiple: Any = None
        self._until: Any = None

    def __call__(self, epoch: Any) -> Any:
        """Return the greatest multiple at or below an epoch.

        Raises:
            TypeError: if the step does not fit the type of the epoch.
        """
        every = self._every
        if every is None:
            return epoch
        if (
            type(epoch) is self._kind
            and (self._kind is not datetime or epoch.tzinfo is self._multiple.tzinfo)
            and self._multiple <= epoch <= self._until
        ):
            return self._multiple
        multiple = rounded_down(epoch, every)
        if can_skip(epoch, every, every):
            self._kind = type(epoch)
            self._multiple, self._until = multiple, calm_until(multiple, every - every, every)
        return multiple


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
        f"the epochs are {kinds[0]}, such as {short_repr(epoch)}, and every is {kinds[1]}, {short_repr(every)}, which "
        "has no such multiples; use an every that fits, such as a timedelta for datetimes and a number for numbers"
    )


class _Subtractable(Protocol):
    def __sub__(self, other: Any, /) -> Any: ...


T = TypeVar("T", bound=_Subtractable)


class LimitedOutOfOrderness:
    """An epoch generator that depends only on the record's timestamp; see `limit_out_of_orderness`.

    Args:
        bound: the distance between a timestamp and its epoch.

    Attributes:
        bound: as given.
    """

    __slots__ = ("bound",)

    def __init__(self, bound: Any) -> None:
        self.bound = bound

    def __call__(self, msg: DataMessage[Any, Any, T], _previous: T | None) -> T:
        """Return the timestamp minus the bound."""
        try:
            return msg.timestamp - self.bound  # type: ignore[no-any-return] # the type of a difference is the user's
        except TypeError as error:
            raise TypeError(_wrong_bound(msg.timestamp, self.bound)) from error

    def __repr__(self) -> str:
        return f"limit_out_of_orderness({self.bound!r})"


def limit_out_of_orderness(bound: Any) -> LimitedOutOfOrderness:
    """Return an epoch generator for streams with records less than `bound` behind the newest one.

    The epoch is the greatest timestamp minus `bound`. Since a record at the epoch is late, a record exactly `bound`
    behind the newest is late; with a bound of zero, timestamps must strictly ascend.

    So nearly every new maximum issues an epoch, and each epoch runs ``on_epoch`` and expires entries. If fewer epochs
    are enough, ``generate_epochs(..., every=timedelta(minutes=1))`` issues one per minute, and makes no additional
    record late.

    Args:
        bound: the distance: a number, or for datetimes a timedelta or a text such as ``"5s"``.

    Raises:
        GraphError: if `bound` is negative or not finite.

    >>> generator = limit_out_of_orderness(10)
    >>> generator(DataMessage("key", "value", 25), None)
    15
    """
    given, bound = bound, as_length(bound)
    try:
        fine = bound >= bound - bound
    except TypeError:
        field = (
            "; the field of timestamps is an argument of .event_time() and .assign_timestamps()"
            if isinstance(bound, str)
            else ""
        )
        raise GraphError(
            f"limit_out_of_orderness needs a number or a timedelta, or a text such as '5s' for datetimes; got "
            f"{short_repr(given)}{field}"
        ) from None
    if not fine:
        raise GraphError(f"limit_out_of_orderness needs a finite bound of zero or more; got {bound!r}")
    return LimitedOutOfOrderness(as_python(bound))


def _wrong_bound(timestamp: Any, bound: Any) -> str:
    kinds = type(timestamp).__name__, type(bound).__name__
    cure = "use a bound that can, such as a timedelta for datetimes, or change the timestamps"
    if isinstance(timestamp, str):
        cure = "convert them when they are read, as in CsvSource(..., types={'time': datetime}), or by .map() first"
    return (
        f"the timestamps are {kinds[0]}, such as {short_repr(timestamp)}, and the bound is {kinds[1]}, "
        f"{short_repr(bound)}, which can't be subtracted; {cure}"
    )

"""The usual epoch generator, which stays a fixed distance behind the newest record."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from malflow.durations import as_length
from malflow.errors import GraphError
from malflow.message import DataMessage
from malflow.operators.epochs.timestamp_checks import as_python
from malflow.words import short_repr

__all__ = ["LimitedOutOfOrderness", "limit_out_of_orderness"]


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

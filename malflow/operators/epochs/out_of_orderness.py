"""The usual generator of epochs: some distance behind the newest record."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from malflow.errors import GraphError, short_repr
from malflow.message import DataMessage
from malflow.operators.epochs.timestamp_checks import as_python

__all__ = ["LimitedOutOfOrderness", "limit_out_of_orderness"]


class _Subtractable(Protocol):
    def __sub__(self, other: Any, /) -> Any: ...


T = TypeVar("T", bound=_Subtractable)


class LimitedOutOfOrderness:
    """An epoch generator whose answer depends on the record's timestamp alone; see `limit_out_of_orderness`.

    Args:
        bound: what is subtracted from a timestamp.

    Attributes:
        bound: as given.
    """

    __slots__ = ("bound",)

    def __init__(self, bound: Any) -> None:
        self.bound = bound

    def __call__(self, msg: DataMessage[Any, Any, T], _previous: T | None) -> T:
        """Return the timestamp less the bound."""
        try:
            return msg.timestamp - self.bound  # type: ignore[no-any-return] # the type of a difference is the user's
        except TypeError as error:
            raise TypeError(_wrong_bound(msg.timestamp, self.bound)) from error

    def __repr__(self) -> str:
        return f"limit_out_of_orderness({self.bound!r})"


def limit_out_of_orderness(bound: Any) -> LimitedOutOfOrderness:
    """Make an epoch generator for streams whose records are less than `bound` behind the newest one.

    The epoch follows the greatest timestamp at a distance of `bound`. Since an epoch's own time is late, a record
    exactly `bound` behind the newest is late, and with a bound of zero timestamps must strictly ascend.

    So there is an epoch for nearly every record that is newer than those before, and each one runs ``on_epoch`` and
    looks for what has expired. Where less often will do, ``generate_epochs(..., every=timedelta(minutes=1))`` issues
    one a minute, and makes nothing late that would not be.

    Args:
        bound: what is subtracted from a timestamp: a number, a timedelta, ...

    Raises:
        GraphError: if `bound` is negative or not finite.

    >>> generator = limit_out_of_orderness(10)
    >>> generator(DataMessage("key", "value", 25), None)
    15
    """
    try:
        fine = bound >= bound - bound
    except TypeError:
        field = (
            "; the field of the times is an argument of .event_time() and .assign_timestamps()"
            if isinstance(bound, str)
            else ""
        )
        raise GraphError(f"limit_out_of_orderness needs a number or a timedelta; got {bound!r}{field}") from None
    if not fine:
        raise GraphError(f"limit_out_of_orderness needs a finite bound of zero or more; got {bound!r}")
    return LimitedOutOfOrderness(as_python(bound))


def _wrong_bound(timestamp: Any, bound: Any) -> str:
    kinds = type(timestamp).__name__, type(bound).__name__
    cure = "give a bound that can, such as a timedelta for datetimes, or timestamps that fit"
    if isinstance(timestamp, str):
        cure = "convert them where they are read, as in CsvSource(..., types={'time': datetime}), or by .map() first"
    return (
        f"the timestamps are {kinds[0]}, as {short_repr(timestamp)}, and the bound is {kinds[1]}, "
        f"{short_repr(bound)}, which can't be subtracted; {cure}"
    )

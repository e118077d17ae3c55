"""A user's reader of one part of a source, its optional methods, and its host's data about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from malflow.checks import is_whole_number
from malflow.errors import check_methods, check_not_deferred, offers
from malflow.event_time.tick import Tick
from malflow.records.column import is_column
from malflow.records.columnar import is_columnar
from malflow.sources.contract import Rejected, StatefulSourcePartition, poll_until
from malflow.words import plural

__all__ = [
    "Lags",
    "PickledReader",
    "Reader",
    "Share",
    "lag_of",
    "offers_own",
    "share_of",
    "total_share",
]

Lags = Mapping[Any, int | None]
"""The input that waits after the position of each part; None if unknown."""

Share: TypeAlias = tuple[int, int]
"""How much has been read, and how much there is in all."""


def offers_own(reader: Any, method: str) -> bool:
    """Whether a reader implements an optional method, rather than inheriting the empty one."""
    inherited = getattr(StatefulSourcePartition, method)
    return callable(getattr(reader, method, None)) and getattr(type(reader), method, None) is not inherited


def lag_of(reader: Any) -> int | None:
    """Return a reader's lag.

    Raises:
        TypeError: if it is not a number.
    """
    lag = reader.lag()
    if lag is not None and not is_whole_number(lag, least=None):
        raise TypeError(f"lag() must return an int, or None if unknown; got {lag!r}")
    return lag


def share_of(reader: Any) -> Share | None:
    """Return how much of its part a reader has read, and the size of the part; None if unknown.

    Raises:
        TypeError: if it is not a pair of numbers.
    """
    share = reader.share()
    if share is None:
        return None
    if not isinstance(share, tuple) or [type(it) for it in share] != [int, int]:
        raise TypeError(f"share() must return two ints, or None if unknown; got {share!r}")
    read, whole = share
    return min(read, whole), whole


def total_share(shares: Iterable[Share | None]) -> Share | None:
    """Return the sum; None if any share is unknown or there are no shares.

    >>> total_share([(1, 2), (3, 3)]), total_share([(1, 2), None]), total_share([])
    ((4, 5), None, None)
    """
    found = [*shares]
    known = [it for it in found if it is not None]
    return (sum(it[0] for it in known), sum(it[1] for it in known)) if found and len(known) == len(found) else None


_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class PickledReader:
    """A reader without a position, pickled whole."""

    data: bytes


class Reader:
    """The reader of one part.

    Args:
        partition: the user's object.
        has_position: whether it resumes from a position (it may confirm this).

    Attributes:
        partition: the user's object.
        is_live: whether it is still polled, since it has not finished in this run.
        must_note: whether its position must still be saved, though it has finished.
        confirms: whether it confirms positions, by ``committed``.
        tells_lag: whether it reports how much input waits after its position, by ``lag``.
        tells_share: whether it reports how much of its part it has read, by ``share``.
        rejects: whether it returns the records that it could not read, by ``take_rejected``.
    """

    __slots__ = ("confirms", "is_live", "must_note", "partition", "rejects", "tells_lag", "tells_share")

    def __init__(self, partition: Any, *, has_position: bool) -> None:
        self.partition = partition
        self.is_live = True
        self.must_note = False
        self.confirms = has_position and offers_own(partition, "committed")
        self.tells_lag = offers_own(partition, "lag")
        self.tells_share = offers_own(partition, "share")
        self.rejects = offers_own(partition, "take_rejected")

    def check(self) -> None:
        """Check that the user's object is a reader.

        Raises:
            TypeError: if it lacks a method, or has one that can't be called directly.
        """
        has_columns_only = offers_own(self.partition, "poll_batch") and not offers(self.partition, "poll")
        poll = "poll_batch" if has_columns_only else "poll"
        check_methods(self.partition, "build_part()", (poll, "is_finished"))
        check_not_deferred(self.partition, "build_part()", ("poll_batch", "snapshot", "collect", "suspend"))

    def is_finished(self) -> bool:
        """Whether it has no more records."""
        return bool(self.partition.is_finished())

    @property
    def may_go_on(self) -> bool:
        """Whether it can continue from another reader's position: it overrides `go_on_from`."""
        kind = StatefulSourcePartition
        return isinstance(self.partition, kind) and type(self.partition).go_on_from is not kind.go_on_from

    def set_clock(self, tick: Tick) -> None:
        """Set the reader's clock, if it has one, to the time of a tick."""
        if hasattr(self.partition, "set_clock"):
            self.partition.set_clock(tick.now, tick.started)

    def poll(self, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return up to `limit` records, as two columns.

        Raises:
            ValueError: if the user's columns differ in length.
            TypeError: if the values are a data frame or a record batch; a sequence of rows is needed.
        """
        partition = self.partition
        values, timestamps = (
            partition.poll_batch(limit) if hasattr(partition, "poll_batch") else poll_until(partition, limit)
        )
        if hasattr(values, "columns") and not is_columnar(values):
            raise TypeError(
                f"poll_batch returned an object of type {type(values).__name__} as values; return a list, or "
                "malflow.columns.Frame(record_batch) for columns"
            )
        if len(values) != len(timestamps):
            raise ValueError(
                f"poll_batch returned {plural(len(values), 'value')} and {plural(len(timestamps), 'timestamp')}"
            )
        return _counted(values), _counted(timestamps)

    def take_rejected(self) -> Sequence[Rejected]:
        """Return the records that it could not read since the last call."""
        rejected: Sequence[Rejected] = self.partition.take_rejected()
        return rejected

    def take_skipped(self) -> timedelta:
        """Return the time by which to advance the clock of ticks since the last call."""
        skipped: timedelta = self.partition.take_skipped() if hasattr(self.partition, "take_skipped") else _NO_TIME
        return skipped

    def suspend(self) -> None:
        """Release its resources, if it has a method for that."""
        if hasattr(self.partition, "suspend"):
            self.partition.suspend()


def _counted(column: Sequence[Any]) -> Sequence[Any]:
    """Return a column with iterators that have a length hint, to find a failing record."""
    return column if type(column) in (list, tuple, range) or is_columnar(column) or is_column(column) else list(column)

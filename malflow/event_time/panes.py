"""Numbered partitions of time.

A pane is an interval that includes its start and excludes its end. Panes follow each other without gaps, and their
numbers ascend by one. An epoch closes a pane once it reaches the pane's last instant: the greatest timestamp in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import Enum
from functools import lru_cache
from itertools import product
from math import inf, isfinite, nextafter
from numbers import Integral
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from malflow.errors import GraphError
from malflow.words import short_repr

__all__ = [
    "CalendarPanes",
    "Fitting",
    "Panes",
    "RegularPanes",
    "Unit",
    "fitted",
    "horizon",
    "instant_after",
    "instant_before",
    "regular",
    "shown_in_zone",
    "zone_of",
]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - for timestamps without a zone
_UTC_EPOCH = _EPOCH.replace(tzinfo=UTC)
_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_TICK = timedelta.resolution
_TICKS: dict[type, Any] = {int: 1, datetime: _TICK, timedelta: _TICK, date: _DAY}
"""The least differences between timestamps, for the most common types."""


class Panes(Protocol):
    """A numbered partition of time."""

    def number(self, timestamp: Any, /) -> int:
        """Return the number of the pane that contains a timestamp."""

    def start(self, number: int, /) -> Any:
        """Return the first instant of a pane."""

    def last(self, number: int, /) -> Any:
        """Return the last instant of a pane."""


class Fitting(Protocol):
    """A partition of time with bounds that depend on the type of the timestamps."""

    def fit(self, timestamp: Any, /) -> Panes:
        """Return the panes for timestamps of this type."""


def fitted(panes: Panes | Fitting, timestamp: Any) -> Panes:
    """Return panes for timestamps of this type.

    Raises:
        TypeError: if the panes don't divide the time of such timestamps.
    """
    fit = getattr(panes, "fit", None)
    return panes if fit is None else fit(timestamp)  # type: ignore[return-value] # one of the two protocols


def horizon(panes: Panes, epoch: Any) -> Any:
    """Return the least epoch (watermark) above another one that closes a pane: the last instant of the first open pane.

    >>> panes = fitted(RegularPanes(10, 0), 0)
    >>> horizon(panes, 8), horizon(panes, 9)
    (9, 19)
    """
    number = panes.number(epoch)
    return panes.last(number + 1 if panes.last(number) <= epoch else number)


def instant_before(moment: Any) -> Any:
    """Return the greatest timestamp below a moment, among timestamps of its type.

    >>> instant_before(10), instant_before(date(2026, 3, 1))
    (9, datetime.date(2026, 2, 28))
    """
    return nextafter(moment, -inf) if isinstance(moment, float) else moment - _tick_of(moment)


def instant_after(moment: Any) -> Any:
    """Return the least timestamp above a moment, among timestamps of its type.

    >>> instant_after(9)
    10
    """
    return nextafter(moment, inf) if isinstance(moment, float) else moment + _tick_of(moment)


def _tick_of(timestamp: Any) -> Any:
    """Return the least difference between two timestamps of this type.

    Raises:
        TypeError: if the type has no least difference.
    """
    tick = _TICKS.get(type(timestamp))
    if tick is not None:
        return tick
    if isinstance(timestamp, Integral):
        return 1
    if isinstance(timestamp, datetime | timedelta):
        return _TICK
    if isinstance(timestamp, date):
        return _DAY
    raise TypeError(
        f"windows don't fit the timestamp {short_repr(timestamp)} of type {type(timestamp).__name__}; timestamps can "
        "be ints, floats, datetimes, dates or timedeltas: set them by .event_time()"
    )


def shown_in_zone(panes: Panes, moment: Any) -> Any:
    """Return an instant in the form for results: in the zone of calendar panes."""
    zone = getattr(panes, "zone", None)
    return moment.astimezone(zone) if zone is not None and isinstance(moment, datetime) and moment.tzinfo else moment


@dataclass(frozen=True, slots=True)
class RegularPanes:
    """Panes of one size, aligned to zero or 1970; `fit` makes them usable for a type of timestamps.

    Attributes:
        size: their length.
        offset: the start of a pane, at least zero and less than the size.
    """

    size: Any
    offset: Any

    def fit(self, timestamp: Any) -> Panes:
        """Return the panes for timestamps of this type.

        Raises:
            TypeError: if the size can't be added to such a timestamp, or the type has no least difference.
        """
        if not isinstance(self.size, timedelta):
            return self._fit_number(timestamp)
        if isinstance(timestamp, datetime):
            origin = _EPOCH if timestamp.tzinfo is None else _UTC_EPOCH
            return _Even(origin + self.offset, self.size, _tick_of(timestamp))
        if isinstance(timestamp, timedelta):
            return _Even(self.offset, self.size, _tick_of(timestamp))
        if isinstance(timestamp, date) and not self.size % _DAY and not self.offset % _DAY:
            return _Even(date(1970, 1, 1) + self.offset, self.size, _tick_of(timestamp))
        if isinstance(timestamp, date):
            raise TypeError(f"windows of {self.size} can't divide days; use whole days, or datetimes as timestamps")
        raise self._misfit(timestamp)

    def _fit_number(self, timestamp: Any) -> Panes:
        if isinstance(timestamp, Integral) and isinstance(self.size, int):
            return _Even(self.offset, self.size, _tick_of(timestamp))
        if isinstance(timestamp, float) or (isinstance(timestamp, Integral) and isinstance(self.size, float)):
            return _FloatPanes(float(self.size), float(self.offset))
        raise self._misfit(timestamp)

    def _misfit(self, timestamp: Any) -> TypeError:
        cure = (
            "use a timedelta as the size"
            if isinstance(timestamp, date | timedelta)
            else "timestamps can be ints or floats for windows of a number, and datetimes, dates or timedeltas for "
            "windows of a timedelta: set them by .event_time()"
        )
        return TypeError(
            f"windows of {self.size!r} don't fit the timestamp {short_repr(timestamp)} of type "
            f"{type(timestamp).__name__}; {cure}"
        )

    def __repr__(self) -> str:
        return f"{self.size}" + (f" from {self.offset}" if self.offset else "")


@dataclass(frozen=True, slots=True)
class _Even:
    """Panes of one size with multiples as bounds; `tick` is the least difference between two timestamps."""

    origin: Any
    size: Any
    tick: Any

    def number(self, timestamp: Any) -> int:
        """Return the number of the pane that contains a timestamp."""
        return int((timestamp - self.origin) // self.size)

    def start(self, number: int) -> Any:
        """Return the first instant of a pane."""
        return self.origin + number * self.size

    def last(self, number: int) -> Any:
        """Return the last instant of a pane."""
        return self.origin + (number + 1) * self.size - self.tick


def regular(panes: Panes) -> tuple[Any, Any] | None:
    """Return the start of the pane 0 and the size of panes, if all have one size and no floats are involved.

    >>> regular(fitted(RegularPanes(10, 3), 0)), regular(fitted(RegularPanes(0.5, 0), 0))
    ((3, 10), None)
    """
    return (panes.origin, panes.size) if isinstance(panes, _Even) else None


@dataclass(frozen=True, slots=True)
class _FloatPanes:
    """Panes of one size for floats. Their last instant is the greatest float before the next start."""

    size: float
    offset: float

    def number(self, timestamp: Any) -> int:
        """Return the number of the pane that contains a timestamp."""
        if not isfinite(timestamp):
            raise ValueError(f"timestamp {timestamp!r} is in no window; filter such records")
        number = int((timestamp - self.offset) // self.size)
        for near in (number, number - 1, number + 1):  # the product may round differently from the quotient
            if self.start(near) <= timestamp < self.start(near + 1):
                return near
        raise ValueError(
            f"timestamp {timestamp!r} is too large for windows of {self.size}: floats are further apart there than "
            "windows; filter such records, or use integers as timestamps"
        )

    def start(self, number: int) -> float:
        """Return the first instant of a pane."""
        return self.offset + number * self.size

    def last(self, number: int) -> float:
        """Return the last instant of a pane."""
        return nextafter(self.start(number + 1), -inf)


class Unit(Enum):
    """A unit of the calendar."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


_LENGTHS = {Unit.SECOND: timedelta(seconds=1), Unit.MINUTE: timedelta(minutes=1), Unit.HOUR: _HOUR}
_YEARS = range(2020, 2038)
"""The years in which the offsets of time zones are checked."""
_MONTHS = {Unit.MONTH: 1, Unit.QUARTER: 3, Unit.YEAR: 12}


def zone_of(zone: Any) -> tzinfo:
    """Return a time zone by its name; a tzinfo unchanged.

    Raises:
        GraphError: if no zone has this name.
    """
    if isinstance(zone, tzinfo):
        return zone
    if zone == "UTC":
        return UTC
    try:
        return ZoneInfo(zone)
    except Exception as error:
        raise GraphError(
            f"{short_repr(zone)} is not a known time zone; use a name such as 'Europe/Prague' (pip install tzdata "
            "where the "
            "system has no time zones), or a tzinfo"
        ) from error


@dataclass(frozen=True)
class CalendarPanes:
    """Calendar units in a time zone: see `malflow.windows.calendar`.

    A day starts at midnight; if midnight does not exist, at the first instant after it; if it occurs twice, at the
    first one. A day that a zone skips is empty: it starts where the next day does. Hours start at full hours of the
    zone's offset on 2020-01-01.

    Instants are returned in UTC. They thus compare as instants.

    Raises:
        GraphError: if units can't be aligned to the zone's clock: it changes by a fraction of a unit.
    """

    unit: Unit
    zone: tzinfo
    _bounds: Any = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the zone, and prepare the bounds."""
        length = _LENGTHS.get(self.unit)
        if length is not None and not _has_whole_offsets(self.zone, length):
            one = self.unit.value
            raise GraphError(
                f"calendar windows of {one}s don't fit the zone {self.zone}, where clocks change by a part of "
                f"a{'n' if one == 'hour' else ''} {one}, so they would not begin at full {one}s of the clock; "
                f"use {one}s of UTC or of a fixed offset, as in calendar({one!r}, timezone(timedelta(hours=10))), or "
                "days and longer units, which fit each zone"
            )
        object.__setattr__(self, "_bounds", lru_cache(maxsize=256)(self._find_start))

    def __reduce__(self) -> Any:
        return CalendarPanes, (self.unit, self.zone)

    def __repr__(self) -> str:
        return f"{self.unit.value}s in {self.zone}"

    def fit(self, timestamp: Any) -> Panes:
        """Return panes for timestamps of this type.

        Raises:
            TypeError: if it is not a date or datetime, or has no zone and the panes have one other than UTC.
        """
        if isinstance(timestamp, datetime):
            if timestamp.tzinfo is not None:
                return self
            if self.zone is not UTC:
                raise TypeError(
                    f"the timestamp {timestamp} has no zone, and the windows are {self!r}; set one, such as "
                    ".replace(tzinfo=UTC), or use calendar windows without a zone"
                )
            return _Civil(self, datetime, _TICK)
        if isinstance(timestamp, date) and self.unit not in _LENGTHS:
            return _Civil(CalendarPanes(self.unit, UTC), date, _DAY)
        raise TypeError(
            f"{self!r} don't fit the timestamp {short_repr(timestamp)} of type {type(timestamp).__name__}; calendar "
            "windows "
            "need datetimes, or dates for days and longer units: set them by .assign_timestamps()"
        )

    def number(self, timestamp: Any) -> int:
        """Return the number of the pane that contains a datetime with a zone."""
        number = self._guess(timestamp)
        while timestamp < self.start(number):
            number -= 1
        while timestamp >= self.start(number + 1):
            number += 1
        return number

    def start(self, number: int) -> datetime:
        """Return the first instant of a pane, in UTC."""
        return self._bounds(number)  # type: ignore[no-any-return] # a cache of `_find_start`

    def last(self, number: int) -> datetime:
        """Return the last instant of a pane, in UTC."""
        return self.start(number + 1) - _TICK

    def _guess(self, timestamp: datetime) -> int:
        if self.unit in _LENGTHS:
            return (timestamp - self._origin()) // _LENGTHS[self.unit]
        day = timestamp.astimezone(self.zone)
        if self.unit is Unit.DAY:
            return day.toordinal()
        if self.unit is Unit.WEEK:
            return (day.toordinal() - 1) // 7
        return (12 * day.year + day.month - 1) // _MONTHS[self.unit]

    def _find_start(self, number: int) -> datetime:
        if self.unit in _LENGTHS:
            return self._origin() + number * _LENGTHS[self.unit]
        if self.unit is Unit.DAY:
            return _midnight(date.fromordinal(number), self.zone)
        if self.unit is Unit.WEEK:
            return _midnight(date.fromordinal(7 * number + 1), self.zone)
        year, month = divmod(number * _MONTHS[self.unit], 12)
        return _midnight(date(year, month + 1, 1), self.zone)

    def _origin(self) -> datetime:
        offset = datetime(2020, 1, 1, tzinfo=self.zone).utcoffset() or timedelta(0)
        return _UTC_EPOCH - offset % _LENGTHS[self.unit]


@dataclass(frozen=True, slots=True)
class _Civil:
    """Calendar panes for timestamps without a zone: dates, and wall-clock datetimes."""

    panes: CalendarPanes
    kind: type[Any]
    tick: timedelta

    def number(self, timestamp: Any) -> int:
        """Return the number of the pane that contains a timestamp."""
        if isinstance(timestamp, datetime):
            return self.panes.number(timestamp.replace(tzinfo=UTC))
        return self.panes.number(datetime.combine(timestamp, time(), tzinfo=UTC))

    def start(self, number: int) -> Any:
        """Return the first instant of a pane."""
        start = self.panes.start(number)
        return start.date() if self.kind is date else start.replace(tzinfo=None)

    def last(self, number: int) -> Any:
        """Return the last instant of a pane."""
        return self.start(number + 1) - self.tick


def _has_whole_offsets(zone: tzinfo, length: timedelta) -> bool:
    """Whether the offsets of a time zone differ by multiples of a length."""
    offsets = {datetime(year, month, 1, tzinfo=zone).utcoffset() for year, month in product(_YEARS, range(1, 13))}
    return len({(offset or timedelta(0)) % length for offset in offsets}) == 1


def _midnight(day: date, zone: tzinfo) -> datetime:
    """Return the first instant of a day in a zone, in UTC."""
    wall = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - a wall-clock time
    found = wall.replace(tzinfo=zone).astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) == wall:
        return found
    before, after = wall.replace(tzinfo=zone, fold=1).astimezone(UTC), found
    while after - before > _TICK:  # the clock was set forward across midnight: find the instant of the change
        middle = before + (after - before) // 2
        if middle.astimezone(zone).replace(tzinfo=None) < wall:
            before = middle
        else:
            after = middle
    return after

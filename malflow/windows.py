"""Kinds of windows: divisions of event time, or of a key's records, into pieces that are aggregated separately.

A window includes its start and excludes its end. It closes at the first epoch (watermark) at or after its last instant.
That is one microsecond, day or unit before its end, depending on the type of the timestamps: see
`malflow.event_time.panes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from math import gcd
from typing import Any, Final, Generic, NamedTuple, TypeVar

from malflow.checks import check_flag, check_whole_number
from malflow.durations import as_length
from malflow.errors import GraphError
from malflow.event_time.panes import CalendarPanes, Fitting, Panes, RegularPanes, Unit, zone_of
from malflow.message import Timing
from malflow.words import short_repr

__all__ = [
    "FOREVER",
    "CountWindows",
    "Forever",
    "SessionWindows",
    "TimeWindows",
    "Timing",
    "WindowResult",
    "Windows",
    "calendar",
    "counting",
    "cumulating",
    "session",
    "sliding",
    "tumbling",
]

R = TypeVar("R")
T = TypeVar("T")

_WEEK = timedelta(weeks=1)


class WindowResult(NamedTuple, Generic[R, T]):
    """The result of one window of a key; use `KeyedStream.map_with_key` to combine it with the key.

    Attributes:
        start: the window's first instant.
        end: the first instant after it.
        value: the result of the aggregators.
        timing: when the result was emitted.
    """

    start: T
    end: T
    value: R
    timing: Timing


class Forever:
    """The type of `FOREVER`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "FOREVER"

    def __reduce__(self) -> str:
        """Pickle by name, for one `FOREVER` per process."""
        return "FOREVER"


FOREVER: Final = Forever()
"""An unlimited duration: entries kept for it are never dropped."""


def _restore(windows: Any, state: Sequence[Any], defaults: Mapping[str, Any]) -> None:
    """Set the attributes of frozen windows to a pickled state, and those that it lacks to their defaults."""
    for at, (name, default) in enumerate(defaults.items()):
        object.__setattr__(windows, name, state[at] if at < len(state) else default)


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of `span` consecutive panes; one starts every `step` panes.

    Attributes:
        panes: a numbered partition of time. Shifts, fiscal years or trading days can be any object with
            ``number(timestamp)``, ``start(number)`` and ``last(number)``; its numbers must be integers without gaps.
        span: how many panes a window has.
        step: the number of panes between the starts of two windows.
        grows: whether windows grow: one ends with each pane, and begins with the first of `span` panes. `step` is then
            `span`.
    """

    panes: Panes | Fitting
    span: int = 1
    step: int = 1
    grows: bool = False

    def __setstate__(self, state: Sequence[Any]) -> None:
        """Restore the attributes; windows that were pickled before they could grow have fewer."""
        _restore(self, state, {"panes": None, "span": 1, "step": 1, "grows": False})

    def __post_init__(self) -> None:
        """Check the numbers of panes."""
        for count, what in ((self.span, "span"), (self.step, "step")):
            check_whole_number("TimeWindows", what, count)
        for method in () if hasattr(self.panes, "fit") else ("number", "start", "last"):
            if not callable(getattr(self.panes, method, None)):
                raise GraphError(f"windows need panes with a method {method}(); got {short_repr(self.panes)}")

    @property
    def definition(self) -> str:
        """The partition of time as a text that is the same in every run of a program."""
        kind = type(self.panes)
        return repr(self.panes) if kind.__repr__ is not object.__repr__ else f"{kind.__module__}.{kind.__qualname__}"

    def __str__(self) -> str:
        """Return the windows in words.

        >>> str(sliding(60, 7)), str(tumbling(timedelta(hours=1))), str(calendar("day", "Asia/Tokyo"))
        ('windows of 60 panes of 1, one every 7', 'windows of 1:00:00', 'windows of days in Asia/Tokyo')
        """
        if self.is_plain:
            return f"windows of {self.definition}"
        if self.grows:
            return f"windows that grow by {self.definition}, up to {self.span} of them"
        return f"windows of {self.span} panes of {self.definition}, one every {self.step}"

    @property
    def is_plain(self) -> bool:
        """Whether each pane is a window."""
        return self.span == self.step == 1


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Session windows: a key's records with gaps shorter than `gap` between them, or of at most `gap` with `touch`."""

    gap: Any
    touch: bool = False

    def __setstate__(self, state: Sequence[Any]) -> None:
        """Restore the attributes; sessions that were pickled before they could touch have fewer."""
        _restore(self, state, {"gap": None, "touch": False})

    @property
    def definition(self) -> str:
        """The windows as a text that is the same in every run of a program."""
        return f"sessions with a gap of {self.gap}{' that may touch' if self.touch else ''}"

    def __str__(self) -> str:
        return self.definition


@dataclass(frozen=True, slots=True)
class CountWindows:
    """Windows of `size` records of a key; one starts every `every` records."""

    size: int
    every: int

    @property
    def definition(self) -> str:
        """The windows as a text that is the same in every run of a program."""
        return f"windows of {self.size} records" + ("" if self.size == self.every else f", one every {self.every}")

    def __str__(self) -> str:
        return self.definition


Windows = TimeWindows | SessionWindows | CountWindows
"""A kind of windows."""


def tumbling(size: Any, *, offset: Any = None) -> TimeWindows:
    """Make windows of a fixed size, one after the other.

    They are aligned to 0, or to 1970-01-01T00:00 (in UTC, for datetimes with a zone), and shifted by `offset`.

    Args:
        size: the length of a window, in the unit of the timestamps' differences: a number, or a timedelta.
        offset: shifts the starts of windows; only its remainder modulo `size` counts.

    Raises:
        GraphError: if `size` is not positive, `offset` does not match its type, or the windows are weeks without an
            offset.

    >>> tumbling(10).panes.fit(0).number(25)
    2
    """
    length = _checked_size("tumbling", size, "size")
    return TimeWindows(_panes("tumbling", length, offset, length))


def sliding(size: Any, every: Any, *, offset: Any = None) -> TimeWindows:
    """Make overlapping windows of a fixed size; one starts every `every`.

    A record is in ``size / every`` windows. Where `every` exceeds `size`, records between two windows are in none.

    Args:
        size: the length of a window: a number, or a timedelta.
        every: the distance between the starts of two windows; need not divide `size`.
        offset: shifts the starts of windows; only its remainder modulo `every` counts.

    Raises:
        GraphError: as for `tumbling`; or if one of `size` and `every` is a number and the other a timedelta.

    >>> sliding(60, 7).span, sliding(60, 7).step
    (60, 7)
    >>> sliding(0.3, 0.1).span, sliding(0.3, 0.1).step
    (3, 1)
    """
    size = _checked_size("sliding", size, "size")
    every = _checked_size("sliding", every, "distance")
    unit = _common_unit(size, every)
    return TimeWindows(_panes("sliding", unit, offset, every), _times(unit, size), _times(unit, every))


def cumulating(size: Any, every: Any, *, offset: Any = None) -> TimeWindows:
    """Make windows that grow: each begins where a tumbling window of `size` does, and one ends every `every` after it.

    So a record is in up to ``size / every`` windows, and the results of a key are its totals so far, such as those of
    the day after each hour. They are emitted from the key's first record in `size` on, whether there were more or not.
    This is ``CUMULATE`` of Flink SQL.

    Args:
        size: the length of the longest window: a number, or a timedelta.
        every: how much a window grows; must divide `size`.
        offset: shifts the starts of windows, as for `tumbling`.

    Raises:
        GraphError: as for `sliding`; or if `every` does not divide `size`.

    >>> str(cumulating(timedelta(days=1), timedelta(hours=1)))
    'windows that grow by 1:00:00, up to 24 of them'
    """
    size = _checked_size("cumulating", size, "size")
    every = _checked_size("cumulating", every, "distance")
    unit = _common_unit(size, every)
    if _times(unit, every) != 1:
        raise GraphError(f"cumulating windows need a size that is a multiple of every; got {size} and {every}")
    count = _times(unit, size)
    return TimeWindows(_panes("cumulating", unit, offset, size), count, count, grows=count > 1)


def calendar(unit: str, zone: Any = "UTC", *, span: int = 1) -> TimeWindows:
    """Make windows of calendar units in a time zone, for timestamps that are datetimes or dates.

    Days have 23, 24 or 25 hours, depending on the zone's clock changes; months, quarters and years have their actual
    days; weeks start on Monday. Seconds, minutes and hours have a fixed length and are aligned to the zone's clock.
    This is impossible for hours in a zone that shifts its clock by half an hour, such as Australia/Lord_Howe. Before
    2020, hours are aligned as in 2020, even if the zone's offset had other minutes then. Datetimes without a zone are
    taken literally, and need ``zone="UTC"``.

    Args:
        unit: ``second``, ``minute``, ``hour``, ``day``, ``week``, ``month``, ``quarter`` or ``year``.
        zone: the name of a time zone, or a tzinfo.
        span: how many units a window has; a window starts at each unit.

    Raises:
        GraphError: if the unit or the zone is unknown, or hours can't be aligned to the zone's clock.

    >>> from datetime import datetime, timezone
    >>> days = calendar("day", "Europe/Berlin").panes
    >>> day = days.number(datetime(2026, 3, 29, 12, tzinfo=timezone.utc))
    >>> (days.start(day + 1) - days.start(day)).total_seconds() / 3600
    23.0
    """
    try:
        known = Unit(unit)
    except ValueError:
        units = ", ".join(repr(it.value) for it in Unit)
        raise GraphError(f"calendar windows need one of the units {units}; got {short_repr(unit)}") from None
    return TimeWindows(CalendarPanes(known, zone_of(zone)), span)


def session(gap: Any, *, touch: bool = False) -> SessionWindows:
    """Make session windows: a key's session ends when the key has no record for `gap`.

    Two records exactly `gap` apart are in two sessions. A session's end is its last record's timestamp plus `gap`. A
    key that never pauses keeps one session open.

    Args:
        gap: a number, or a timedelta.
        touch: whether two records exactly `gap` apart are in one session, as in Flink. The session is over at the same
            epoch as without it, so the second record must come before. The gap is then an integer or a timedelta.

    Raises:
        GraphError: if `gap` is not positive.

    >>> session(5)
    SessionWindows(gap=5, touch=False)
    """
    check_flag("session", "touch", touch)
    length = _checked_size("session", gap, "gap")
    if touch and not isinstance(length, int | timedelta):
        raise GraphError(f"session needs an integer or a timedelta as gap with touch=True; got {short_repr(gap)}")
    return SessionWindows(length, touch)


def counting(size: int, every: int | None = None) -> CountWindows:
    """Make windows of a number of records of a key, in their order of arrival.

    Results depend on the order in which records arrive. A window's start and end are the timestamps of its first and
    last record. The first window starts with a key's first record: ``counting(2, 3)`` has its records 1 and 2, then 4
    and 5, where Flink's ``countWindow(2, 3)`` has 2 and 3, then 5 and 6.

    Args:
        size: how many records a window has.
        every: the number of records between the starts of two windows; `size` by default.

    Raises:
        GraphError: if a number is not a positive integer.

    >>> counting(100)
    CountWindows(size=100, every=100)
    """
    every = size if every is None else every
    check_whole_number("counting windows", "size", size)
    check_whole_number("counting windows", "every", every)
    return CountWindows(size, every)


def early_fault(windows: Windows, early: Any) -> str | None:
    """Return why windows can't have early results at this distance; None if they can."""
    if isinstance(windows, TimeWindows) and windows.grows:
        return "has windows that grow, which are results so far already: leave out early="
    if isinstance(windows, SessionWindows):
        return (
            "has sessions, whose end changes as they grow, so no result would replace an earlier one: leave out early="
        )
    if isinstance(windows, CountWindows):
        return "has count windows, which have no early results: leave out early="
    if not _is_length(early):
        return f"needs a positive number or timedelta as early=, or a text such as '5 min'; got {short_repr(early)}"
    return _misfit(windows, early, "early")


def _misfit(windows: TimeWindows, length: Any, what: str) -> str | None:
    """Return why a length does not fit windows."""
    if not isinstance(windows.panes, RegularPanes | CalendarPanes):
        return None
    needs = isinstance(getattr(windows.panes, "size", _WEEK), timedelta)
    if needs == isinstance(length, timedelta):
        return None
    return f"has {windows}, which {what}={length!r} does not fit; use a {'timedelta' if needs else 'number'}"


def until_fault(windows: Windows, until: Any) -> str | None:
    """Return why late records can't be added to windows, or closed windows can't be kept; None if they can."""
    if isinstance(windows, CountWindows):
        return "has count windows, which no epoch closes, so no record is late for them"
    if until in (0, timedelta(0)):
        return None
    if not _is_length(until):
        return f"needs until=0, a positive number or timedelta, or a text such as '5 min'; got {short_repr(until)}"
    if isinstance(windows, SessionWindows):
        return "has sessions, and a late record may join two that have closed: leave out until="
    if not windows.is_plain:
        return "has windows that overlap, whose results can't be revised: leave out until="
    return _misfit(windows, until, "until")


def _panes(kind: str, unit: Any, offset: Any, cycle: Any) -> RegularPanes:
    offset = as_length(offset)
    if isinstance(cycle, timedelta) and not cycle % _WEEK and offset is None:
        raise GraphError(
            f"{kind} windows of weeks would start on Thursdays, as 1970 did; use calendar('week', zone), or set offset="
        )
    if offset is None:
        return RegularPanes(unit, unit - unit)
    try:
        return RegularPanes(unit, offset % cycle)
    except TypeError:
        raise GraphError(
            f"{kind} windows of {cycle!r} need an offset of the same type; got {short_repr(offset)}"
        ) from None


def _checked_size(kind: str, size: Any, what: str) -> Any:
    """Return a size; a text as a timedelta."""
    length = as_length(size)
    if not _is_length(length):
        raise GraphError(
            f"{kind} windows need a positive number or timedelta as their {what}, or a text such as '5 min' for "
            f"datetimes; got {short_repr(size)}"
        )
    return length


def _is_length(size: Any) -> bool:
    """Whether a size is a finite positive number, or a positive timedelta."""
    is_one = isinstance(size, timedelta) or (isinstance(size, int | float) and not isinstance(size, bool))
    return is_one and size > size - size and size - size == size - size


def _times(unit: Any, length: Any) -> int:
    """Return how many units a length has."""
    return round(length / unit) if isinstance(unit, float) else int(length // unit)


def _common_unit(size: Any, every: Any) -> Any:
    if isinstance(size, timedelta) and isinstance(every, timedelta):
        tick = timedelta.resolution
        return gcd(size // tick, every // tick) * tick
    if isinstance(size, int) and isinstance(every, int):
        return gcd(size, every)
    if isinstance(size, timedelta) or isinstance(every, timedelta):
        raise GraphError(
            f"sliding windows of {size!r} every {every!r} have no common unit; use two numbers or two timedeltas"
        )
    one, other = Fraction(str(size)), Fraction(str(every))  # as written: 0.1 is a tenth
    common = one.denominator * other.denominator
    return float(Fraction(gcd(int(one * common), int(other * common)), common))

"""Instants, dates and intervals, as the generated code calculates with them.

They are whole numbers: of `TIMESTAMP(p)` units of 10 to the power of -p seconds since 1970, of `DATE` days, of
`TIME(p)` units since midnight.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

__all__ = [
    "add_months",
    "add_months_to_date",
    "ceil_to_months",
    "date_of_text",
    "date_part",
    "date_text",
    "days_of",
    "floor_to_months",
    "in_zone",
    "instant",
    "instant_of_text",
    "instant_text",
    "moment",
    "months_between",
    "rescaled",
    "time_of_day",
    "time_of_text",
    "time_text",
]

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - an instant without a zone, as TIMESTAMP has none
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY = 86_400
_MICROSECONDS = 6
_UNITS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
"""How many units of each precision a second has."""


def moment(units: int, digits: int) -> datetime:
    """Return the instant of a number of units, without a zone."""
    seconds, rest = divmod(units, _UNITS[digits])
    return EPOCH + timedelta(0, seconds, rest * _UNITS[_MICROSECONDS - digits])


def instant(moment: datetime, digits: int) -> int:
    """Return the number of units of an instant; finer parts are cut off."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - EPOCH) // timedelta(microseconds=_UNITS[_MICROSECONDS - digits])


def rescaled(units: int, given: int, wanted: int) -> int:
    """Convert a number of units to another precision. Finer parts are cut off."""
    if wanted >= given:
        return units * _UNITS[wanted - given]
    return units // _UNITS[given - wanted]


def days_of(units: int, digits: int) -> int:
    """Return the date of an instant."""
    return units // (_DAY * _UNITS[digits])


def time_of_day(units: int, digits: int, wanted: int) -> int:
    """Return the time of day of an instant."""
    return rescaled(units % (_DAY * _UNITS[digits]), digits, wanted)


def add_months(units: int, months: int, digits: int) -> int:
    """Return an instant some months later: the same day, or the last of a shorter month."""
    old = moment(units, digits)
    year, month = divmod(old.year * 12 + old.month - 1 + months, 12)
    day = min(old.day, monthrange(year, month + 1)[1])
    return instant(old.replace(year=year, month=month + 1, day=day), digits)


def add_months_to_date(days: int, months: int) -> int:
    """Return a date some months later."""
    return days_of(add_months(days * _DAY, months, 0), 0)


def months_between(start: int, end: int, digits: int) -> int:
    """Return the whole months from one instant to another; negative if they go back."""
    if end < start:
        return -months_between(end, start, digits)
    first, last = moment(start, digits), moment(end, digits)
    months = (last.year - first.year) * 12 + last.month - first.month
    return months - (add_months(start, months, digits) > end)


def floor_to_months(units: int, months: int, day: int) -> int:
    """Return the first instant of the year, quarter or month of another; a day has so many units."""
    old = date.fromordinal(units // day + _EPOCH_DAY)
    year, month = divmod((old.year * 12 + old.month - 1) // months * months, 12)
    return (date(year, month + 1, 1).toordinal() - _EPOCH_DAY) * day


def ceil_to_months(units: int, months: int, day: int) -> int:
    """Return the first instant of a year, quarter or month that is not before another."""
    found = floor_to_months(units, months, day)
    return found if found == units else add_months_to_date(found // day, months) * day


_PARTS: dict[str, Callable[[date], int]] = {
    "YEAR": lambda it: it.year,
    "QUARTER": lambda it: (it.month + 2) // 3,
    "MONTH": lambda it: it.month,
    "WEEK": lambda it: it.isocalendar().week,
    "DAY": lambda it: it.day,
    "DOW": lambda it: it.isoweekday() % 7 + 1,
    "ISODOW": date.isoweekday,
    "DOY": lambda it: it.timetuple().tm_yday,
    "ISOYEAR": lambda it: it.isocalendar().year,
    "DECADE": lambda it: it.year // 10,
    "CENTURY": lambda it: (it.year + 99) // 100,
    "MILLENNIUM": lambda it: (it.year + 999) // 1000,
}


def date_part(part: str, days: int) -> int:
    """Return a part of a date: weeks begin on Monday, the numbers of their days (DOW) on Sunday, as in Flink."""
    return _PARTS[part](date.fromordinal(days + _EPOCH_DAY))


def in_zone(text: str, old: str, new: str) -> str | None:
    """Return the text of an instant of one time zone in another; None if it is not one.

    Raises:
        ValueError: if there is no such zone.
    """
    zones = _zone(old), _zone(new)
    try:
        given = moment(instant_of_text(text, 0), 0)
    except ValueError:
        return None
    return f"{given.replace(tzinfo=zones[0]).astimezone(zones[1]):%Y-%m-%d %H:%M:%S}"


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError):
        raise ValueError(f"there is no time zone {name!r}; write one as 'Europe/Prague' or 'UTC'") from None


_INSTANT = re.compile(r"\s*(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?\s*")
_TIME = re.compile(r"\s*(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?\s*")


_USUAL = frozenset({19, 23, 26})
"""Lengths of instants with whole seconds, three or six digits of them: Python reads these in half the time."""

_TIMESTAMP, _DATE = "TIMESTAMP, such as '2026-03-01 12:30:00.5'", "DATE, such as '2026-03-01'"
"""What a text should be, for errors."""


def instant_of_text(text: str, digits: int, what: str = _TIMESTAMP) -> int:
    """Return the instant of a text such as `2026-03-01 12:30:00.5`.

    Raises:
        ValueError: if it is not one.
    """
    if len(text) in _USUAL and text[10] in " T" and text[13] == text[16] == ":" and text[19:20] in {"", "."}:
        with suppress(ValueError):
            usual = datetime.fromisoformat(text)
            if usual.tzinfo is None:
                return instant(usual, digits)
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a {what}")
    year, month, day, hour, minute, second, fraction = match.groups(default="0")
    try:
        found = datetime(*map(int, (year, month, day, hour, minute, second)))  # type: ignore[arg-type]  # noqa: DTZ001
    except ValueError as error:
        raise ValueError(f"{text!r} is not a {what.partition(',')[0]}: {error}") from None
    return instant(found, 0) * _UNITS[digits] + _fraction(fraction, digits)


def _fraction(digits_behind: str, digits: int) -> int:
    return int(digits_behind[:digits].ljust(digits, "0") or 0)


def date_of_text(text: str) -> int:
    """Return the date of a text such as `2026-03-01`.

    Raises:
        ValueError: if it is not one.
    """
    return days_of(instant_of_text(text, 0, _DATE), 0)


def time_of_text(text: str, digits: int) -> int:
    """Return the time of a text such as `12:30:00`.

    Raises:
        ValueError: if it is not one.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a TIME, such as '12:30:00'")
    hour, minute, second, fraction = match.groups(default="0")
    try:
        found = time(int(hour), int(minute), int(second))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a TIME: {error}") from None
    return (found.hour * 3_600 + found.minute * 60 + found.second) * _UNITS[digits] + _fraction(fraction, digits)


def instant_text(units: int, digits: int) -> str:
    """Return the text of an instant, with all digits of its precision."""
    whole, fraction = divmod(units, _UNITS[digits])
    return f"{EPOCH + timedelta(seconds=whole)}{f'.{fraction:0{digits}}' if digits else ''}"


def date_text(days: int) -> str:
    """Return the text of a date."""
    return date.fromordinal(days + _EPOCH_DAY).isoformat()


def time_text(units: int, digits: int) -> str:
    """Return the text of a time of day."""
    return instant_text(units, digits)[11:]

"""Values of many classes that are equal in Python, as keys."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from hypothesis import strategies as st

__all__ = ["EXAMPLES", "are_one_key", "equals", "nested", "pools"]

FIRST_DAY, LAST_DAY = datetime(1700, 1, 1), datetime(2250, 1, 1)  # within the nanoseconds of pandas
ZONES: list[tzinfo] = [
    UTC,
    timezone(timedelta(hours=2)),
    ZoneInfo("Europe/Berlin"),
    ZoneInfo("Australia/Lord_Howe"),
    ZoneInfo("America/St_Johns"),
]


class Moment(datetime):
    """A datetime that prints itself in its own way."""

    def isoformat(self, *args: Any, **kwargs: Any) -> str:
        """Return something else."""
        return f"a moment {args}{kwargs}"

    def __sub__(self, other: Any) -> Any:
        """Return something else."""
        return f"{super().__sub__(other)} earlier"

    __str__ = isoformat


class Day(date):
    """A date that prints itself in its own way."""

    def isoformat(self) -> str:
        """Return something else."""
        return "a day"


class Clock(time):
    """A time that prints itself in its own way."""

    def isoformat(self, *args: Any, **kwargs: Any) -> str:
        """Return something else."""
        return f"a time {args}{kwargs}"


class Span(timedelta):
    """A timedelta whose days are no plain ones."""

    @property
    def days(self) -> int:
        """Return something else."""
        return 7


class Count(int):
    """An int that converts itself in its own way."""

    def __int__(self) -> int:
        """Return something else."""
        return 7


class Word(str):
    """A text that encodes itself in its own way."""

    __slots__ = ()

    def encode(self, *args: Any, **kwargs: Any) -> bytes:
        """Return something else."""
        return f"a word {args}{kwargs}".encode()


class Pair(NamedTuple):
    """A pair."""

    one: Any
    other: Any


class Name(uuid.UUID):
    """A uuid by another name."""


def are_one_key(key: Any, other: Any) -> bool:
    """Whether a dict that has one of the keys finds the other one."""
    try:
        return hash(key) == hash(other) and bool(key == other)
    except (ValueError, TypeError, OverflowError, NotImplementedError):  # pandas and numpy refuse to compare some
        return False


def _of_number(number: int) -> list[Any]:
    made: list[Any] = [number, Count(number), str(number), float(number), complex(number), -float(-number)]
    made += [IntEnum("Chosen", {"ONE": number}).ONE, number + 1, number - 1]  # type: ignore[attr-defined] # made here
    return [*made, bool(number)] if number in (0, 1) else made


def _of_exact_number(number: int) -> list[Any]:
    return [*_of_number(number), Fraction(number), Decimal(number), Decimal(number * 10) / 10]


def _of_numpy_number(number: int) -> list[Any]:  # which cannot be compared with a Fraction or a Decimal
    made: list[Any] = [*_of_number(number), np.str_(number), np.float64(number), np.complex128(number)]
    made.append(np.longdouble(number))
    if -(2**63) <= number < 2**63:
        made.append(np.int64(number))
    if -128 <= number < 128:
        made += [np.int8(number), np.float16(number), np.float32(number)]
    return [*made, np.bool_(number)] if number in (0, 1) else made


def _of_text(text: str) -> list[Any]:
    made: list[Any] = [text, Word(text), text.encode(), text + "\ud800", StrEnum("Chosen", {"ONE": text}).ONE]  # type: ignore[attr-defined]
    return made if "\0" in text else [*made, np.str_(text), np.bytes_(text.encode())]


def _of_moment(moment: datetime) -> list[Any]:
    naive: list[Any] = [moment, Moment.combine(moment.date(), moment.time()), moment.date(), moment.time()]
    naive += [Day.fromordinal(moment.toordinal()), Clock.fromisoformat(moment.time().isoformat())]
    naive += [np.datetime64(moment, unit) for unit in ("Y", "M", "D", "h", "s", "ms", "us", "ns")]
    naive += [pd.Timestamp(moment), pd.Timestamp(moment).as_unit("us"), pd.Timestamp(moment) + pd.Timedelta(1, "ns")]
    aware = [moment.replace(tzinfo=UTC).astimezone(zone) for zone in ZONES]
    late = [one.replace(fold=1) for one in aware]
    moments = [Moment.fromisoformat(datetime.isoformat(one)) for one in aware]
    stamps = [pd.Timestamp(one) for one in (*aware, *late)]
    pinned = [pd.Timestamp(one).as_unit("s") for one in aware]
    after = [stamp + pd.Timedelta(1, "ns") for stamp in stamps[:2]]
    clocks = [one.timetz() for one in aware]
    return [*naive, *aware, *late, *moments, *stamps, *pinned, *after, *clocks]


def _of_span(span: timedelta) -> list[Any]:
    made: list[Any] = [span, Span(span.days, span.seconds, span.microseconds), np.timedelta64(span, "us")]
    if abs(span) < timedelta(days=90_000):
        made += [
            pd.Timedelta(span),
            pd.Timedelta(span) + pd.Timedelta(1, "ns"),
            np.timedelta64(span, "us").astype("m8[ns]"),
        ]
    return [*made, int(span.total_seconds())]


class _Colour(Enum):
    RED = 1
    BLUE = 2


def _of_uuid(number: int) -> list[Any]:
    return [uuid.UUID(int=number), Name(int=number), number, _Colour.RED, _Colour.BLUE]


_MOMENTS = st.datetimes(FIRST_DAY, LAST_DAY)
_ROUND = st.one_of(
    _MOMENTS.map(lambda it: it.replace(microsecond=0)),
    _MOMENTS.map(lambda it: it.replace(hour=0, minute=0, second=0, microsecond=0)),
    st.sampled_from([datetime(2024, 10, 27, hour, 30) for hour in range(4)]),
    st.just(datetime(1970, 1, 1)),
)
pools = st.one_of(
    (st.integers(-(2**70), 2**70) | st.integers(-3, 3)).map(_of_exact_number),
    (st.integers(-(2**70), 2**70) | st.integers(-3, 3)).map(_of_numpy_number),
    st.text(st.characters(exclude_categories=["Cs"])).map(_of_text),
    (_MOMENTS | _ROUND).map(_of_moment),
    st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6)).map(_of_span),
    st.integers(-100, 100).map(lambda it: _of_span(timedelta(seconds=it))),
    st.integers(0, 2**128 - 1).map(_of_uuid),
)
"""Lists of values, many of which are equal."""

EXAMPLES: dict[str, list[Any]] = {
    "number": [it for it in _of_exact_number(1) if not isinstance(it, Enum)],
    "number of numpy": [it for it in _of_numpy_number(1) if not isinstance(it, Enum)],
    "text": [it for it in _of_text("a") if not isinstance(it, Enum)],
    "moment": _of_moment(datetime(2024, 10, 27)),
    "span": _of_span(timedelta(seconds=90)),
    "uuid": _of_uuid(7),
}
"""One list of each kind, whose values can be pickled."""

_INTO: list[Callable[[Any], Any]] = [
    lambda it: it,
    lambda it: (it, "x"),
    lambda it: Pair(it, "x"),
    lambda it: frozenset([it]),
    lambda it: (1, (it,)),
]


@st.composite
def nested(draw: st.DrawFn) -> list[Any]:
    """Draw such a list, in which some values are parts of tuples and frozensets, and which one dict can hold."""
    values: list[Any] = []
    for value in draw(pools):
        if all(_are_comparable(value, other) for other in values):
            values.append(value)
    return [into(value) for value in values for into in draw(st.sampled_from([_INTO[:1], _INTO[1:3], _INTO[3:]]))]


def _are_comparable(value: Any, other: Any) -> bool:
    """Whether a dict can look up one where the other is: pandas raises for some moments that repeat by the clock."""
    try:
        return hash(value) != hash(other) or bool(value == other) == bool(other == value)
    except (ValueError, TypeError, OverflowError, NotImplementedError):
        return False


def equals(values: list[Any]) -> list[tuple[Any, Any]]:
    """Return the pairs of values that are one key."""
    return [
        (one, other) for index, one in enumerate(values) for other in values[index + 1 :] if are_one_key(one, other)
    ]

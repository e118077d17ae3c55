"""Spans of time, wherever a user gives one: a number of seconds, a timedelta, or a text such as ``500ms``."""

from __future__ import annotations

import re
from datetime import timedelta
from math import isfinite
from numbers import Real
from typing import Any, Final, TypeAlias

__all__ = ["EXAMPLES", "PATTERN", "Duration", "as_length", "as_span", "read_duration", "span_text"]

Duration: TypeAlias = timedelta | float | str
"""A span of time: a timedelta, a number of seconds, or a text such as ``"500ms"`` or ``"5 min"``."""

EXAMPLES: Final = "500ms, 30s, 5m, 2h, 1d"
"""Texts of spans, for errors."""

PATTERN: Final = r"(\d+(?:\.\d+)?) ?(us|ms|s|min|m|h|d)?"
"""The form of such a text, in the syntax that Python and JSON Schema share."""

_TEXT = re.compile(PATTERN, re.ASCII)
_UNITS: Final = {
    "us": "microseconds",
    "ms": "milliseconds",
    "s": "seconds",
    "min": "minutes",
    "m": "minutes",
    "h": "hours",
    "d": "days",
}


def read_duration(text: str) -> timedelta | None:
    """Return the span that a text stands for; without a unit, it is a number of seconds. None for another text.

    >>> read_duration("500ms"), read_duration("2 min"), read_duration("1.5"), read_duration("soon")
    (datetime.timedelta(microseconds=500000), datetime.timedelta(seconds=120), \
datetime.timedelta(seconds=1, microseconds=500000), None)
    """
    found = _TEXT.fullmatch(text.strip())
    try:
        return None if found is None else timedelta(**{_UNITS[found[2] or "s"]: float(found[1])})
    except OverflowError:
        return None


def as_length(value: Any) -> Any:
    """Return a length of event time: a text as a timedelta; anything else, such as a number, as it is.

    A number has the unit of the timestamps, whatever that is; a text has a unit of its own, so it fits datetimes. A
    text that is not a span of time is returned too, for the caller to refuse.

    >>> as_length("5 min"), as_length(300), as_length("soon")
    (datetime.timedelta(seconds=300), 300, 'soon')
    """
    if not isinstance(value, str):
        return value
    found = _TEXT.fullmatch(value.strip())
    span = read_duration(value) if found is not None and found[2] else None
    return value if span is None else span


def as_span(value: object) -> timedelta | None:
    """Return a span of time as a timedelta; None for another value.

    >>> as_span("5 min"), as_span(300), as_span("soon")
    (datetime.timedelta(seconds=300), datetime.timedelta(seconds=300), None)
    """
    if isinstance(value, str):
        return read_duration(value)
    if isinstance(value, timedelta):
        return value
    try:
        is_number = not isinstance(value, bool) and isinstance(value, Real) and isfinite(value)
        return timedelta(seconds=float(value)) if is_number else None  # type: ignore[arg-type] # a number
    except OverflowError:
        return None


_SPANS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000))


def span_text(span: timedelta) -> str:
    """Return a time as a configuration writes it.

    >>> span_text(timedelta(minutes=90)), span_text(timedelta(seconds=0.25)), span_text(timedelta(0))
    ('90m', '250ms', '0s')
    """
    whole = span // timedelta(microseconds=1)
    if not whole:
        return "0s"
    unit, size = next(((unit, size) for unit, size in _SPANS if whole % size == 0), ("ms", 1_000))
    return f"{whole // size if whole % size == 0 else whole / size:{'d' if whole % size == 0 else 'f'}}{unit}"

"""Spans of time, wherever a user gives one: a number of seconds, a timedelta, or a text such as ``500ms``."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from math import isfinite
from numbers import Real
from typing import Any, Final, TypeAlias

from malflow.errors import GraphError
from malflow.words import short_repr

__all__ = ["EXAMPLES", "Duration", "as_length", "checked_duration", "checked_seconds", "read_duration", "wait_of"]

Duration: TypeAlias = timedelta | float | str
"""A span of time: a timedelta, a number of seconds, or a text such as ``"500ms"`` or ``"5 min"``."""

EXAMPLES: Final = "500ms, 30s, 5m, 2h, 1d"
"""Texts of spans, for errors."""

_TEXT = re.compile(r"(\d+(?:\.\d+)?) ?(us|ms|s|min|m|h|d)?", re.ASCII)
_UNITS: Final = {
    "us": "microseconds",
    "ms": "milliseconds",
    "s": "seconds",
    "min": "minutes",
    "m": "minutes",
    "h": "hours",
    "d": "days",
}
_ZERO = timedelta(0)


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


def checked_duration(
    subject: str | Callable[[str], Exception],
    option: str,
    value: Any,
    *,
    may_be_zero: bool = False,
    may_be_none: bool = False,
) -> timedelta:
    """Return a span of time as a timedelta.

    Args:
        subject: what has the option, for the error; or a function that makes the error from what is wrong.
        option: the name of the option.
        value: what the user has given.
        may_be_zero: whether zero is allowed.
        may_be_none: whether the error says that None is allowed; the caller has looked for it.

    Raises:
        GraphError: if it is not a span of time, or too short; or the error of the subject's function.

    >>> checked_duration("KafkaSink", "timeout", 5), checked_duration("KafkaSink", "timeout", "100ms")
    (datetime.timedelta(seconds=5), datetime.timedelta(microseconds=100000))
    >>> checked_duration("KafkaSink", "timeout", "5 parsecs")
    Traceback (most recent call last):
    malflow.errors.GraphError: KafkaSink needs a time above zero as its timeout, such as '10s', a number of seconds or \
a timedelta; got '5 parsecs'
    """
    found = _span(value)
    if found is not None and (found > _ZERO or (may_be_zero and not found)):
        return found
    least = "of zero or more" if may_be_zero else "above zero"
    none = ", or None" if may_be_none else ""
    wrong = (
        f"needs a time {least} as its {option}, such as '10s', a number of seconds or a timedelta{none}; got "
        f"{short_repr(value)}"
    )
    raise GraphError(f"{subject} {wrong}") if isinstance(subject, str) else subject(wrong)


def checked_seconds(
    subject: str | Callable[[str], Exception],
    option: str,
    value: Any,
    *,
    may_be_zero: bool = False,
    may_be_none: bool = False,
) -> float:
    """Return a span of time as seconds; the rest is as for `checked_duration`.

    >>> checked_seconds("HttpSink", "timeout", "1m"), checked_seconds("HttpSink", "timeout", 30)
    (60.0, 30.0)
    """
    options = {"may_be_zero": may_be_zero, "may_be_none": may_be_none}
    return checked_duration(subject, option, value, **options).total_seconds()


def wait_of(subject: str, value: Duration, option: str = "timeout") -> float:
    """Return the seconds of a wait; a number is returned as it is, so zero or infinity are allowed.

    Raises:
        GraphError: if it is not a span of time.

    >>> wait_of("why()", "1 min"), wait_of("why()", 0)
    (60.0, 0)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return checked_seconds(subject, option, value, may_be_zero=True)


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


def _span(value: object) -> timedelta | None:
    if isinstance(value, str):
        return read_duration(value)
    if isinstance(value, timedelta):
        return value
    try:
        is_number = not isinstance(value, bool) and isinstance(value, Real) and isfinite(value)
        return timedelta(seconds=float(value)) if is_number else None  # type: ignore[arg-type] # a number
    except OverflowError:
        return None

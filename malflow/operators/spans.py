"""Checks that the user's spans of event time fit the timestamps."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from numbers import Number
from typing import Any

from malflow.words import short_repr

__all__ = ["check_span", "misfit"]

_DAY = timedelta(days=1)


def check_span(argument: str, span: Any, timestamp: Any) -> None:
    """Check that a span can be added to a timestamp.

    Args:
        argument: the name of the span's argument.
        span: a number, or a timedelta.
        timestamp: the timestamp of a record; a user-defined type is not checked.

    Raises:
        TypeError: if it can't.
    """
    if isinstance(timestamp, datetime | timedelta):
        fits = isinstance(span, timedelta)
    elif isinstance(timestamp, date):
        fits = isinstance(span, timedelta) and not span % _DAY
    else:
        fits = not isinstance(timestamp, Number) or isinstance(span, Number)
    if not fits:
        raise misfit(argument, span, timestamp)


def misfit(argument: str, span: Any, timestamp: Any) -> TypeError:
    """Return the error for a span that does not fit a timestamp."""
    return TypeError(
        f"{argument}={span!r} does not fit the timestamp {short_repr(timestamp)} of type {type(timestamp).__name__}; "
        f"{argument}= is a number for numbers, a timedelta for datetimes and timedeltas, and one of whole days for "
        "dates"
    )

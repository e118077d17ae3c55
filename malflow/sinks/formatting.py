"""The text that a sink writes for a message: its value, or the result of the user's formatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import length_hint
from typing import Any, TypeAlias

from malflow.checks import check_function
from malflow.message import DataMessage
from malflow.words import short_repr

__all__ = ["Formatter", "checked_formatter", "formatted"]

Formatter: TypeAlias = Callable[[DataMessage[Any, Any, Any]], Any]


def checked_formatter(asked_by: str, formatter: Formatter | None) -> Formatter | None:
    """Check the formatter of a sink, a plain function of a message, and return it; None is allowed."""
    if formatter is not None:
        check_function(asked_by, "formatter", formatter, arguments="msg")
    return formatter


def formatted(
    formatter: Formatter | None, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]
) -> Sequence[Any]:
    """Return the items that a sink writes for messages: their values, or the formatter's results.

    An exception raised by the formatter gets a note that names the message.
    """
    if formatter is None:
        return values
    rest = iter(values)
    try:
        return [formatter(message) for message in map(DataMessage, keys, rest, timestamps)]
    except Exception as error:
        at = len(values) - length_hint(rest) - 1
        key, value, timestamp = map(short_repr, (keys[at], values[at], timestamps[at]))
        error.add_note(f"the formatter was called with key {key}, value {value}, timestamp {timestamp}")
        raise

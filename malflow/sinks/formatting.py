"""The text that a sink writes for a message: its value, or the result of the user's formatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import length_hint
from typing import Any, TypeAlias

from malflow.callables import takes, without_result
from malflow.diagnostics import describe
from malflow.errors import GraphError
from malflow.message import DataMessage
from malflow.words import short_repr

__all__ = ["Formatter", "checked_formatter", "formatted"]

Formatter: TypeAlias = Callable[[DataMessage[Any, Any, Any]], Any]


def checked_formatter(sink: object, formatter: Formatter | None) -> Formatter | None:
    """Check the formatter of a sink, and return it; None is allowed.

    Args:
        sink: the sink, or the name of its class.
        formatter: the argument.

    Raises:
        GraphError: if it is not a plain function of a message, or returns nothing.
    """
    if formatter is None:
        return None
    if not callable(formatter):
        raise GraphError(f"{sink} needs a plain function as formatter; got {short_repr(formatter)}")
    fault = without_result(formatter)
    if fault is not None:
        raise GraphError(f"{sink} needs a plain function as formatter; got {fault}, {describe(formatter)}")
    if not takes(formatter, 1):
        raise GraphError(f"{sink} calls formatter(msg), but {describe(formatter)} takes other arguments")
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

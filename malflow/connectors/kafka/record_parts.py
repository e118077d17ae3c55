"""The key, time and headers of a record of Kafka, from a message or from the result of a user's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from malflow.aggregators.fields import read_of_message
from malflow.checks import check_function
from malflow.connectors.kafka.produce import Record
from malflow.connectors.key_texts import PlainKeyEncoder
from malflow.message import DataMessage, NoKey
from malflow.words import short_repr

__all__ = ["OfMessage", "RecordKeys", "milliseconds", "of_message", "own_headers", "own_milliseconds", "size_of"]

OfMessage: TypeAlias = Callable[[DataMessage[Any, Any, Any]], Any]

_OVERHEAD = 128
"""The largest overhead of a record around its key and value, in bytes."""

_LATEST = 2**63 - 1
"""The latest time in milliseconds: Kafka's timestamps have 64 bits with a sign."""


def of_message(asked_by: str, role: str, given: Any, *, fields: bool = True) -> OfMessage | None:
    """Return a function of the message; the name of a field of its value becomes a function.

    Raises:
        GraphError: if `given` is neither.
    """
    if fields and isinstance(given, str):
        return partial(read_of_message, given)
    if given is None:
        return None
    check_function(asked_by, role, given, or_else=("the name of a field",) if fields else ())
    function: OfMessage = given
    return function


def size_of(record: Record) -> int:
    """Return the most bytes that a record takes."""
    headers = sum(len(name) + len(raw or b"") for name, raw in record[4]) if record[4] else 0
    return len(record[1] or b"") + len(record[2] or b"") + headers + _OVERHEAD


def own_headers(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers that a function of the user has returned.

    Raises:
        TypeError: if they are not pairs of a name and bytes.
    """
    wanted = "pairs of a name and bytes"
    try:
        pairs = tuple((name, raw.encode() if isinstance(raw, str) else raw) for name, raw in headers)
    except (TypeError, ValueError) as error:
        raise TypeError(f"KafkaSink headers= returned {short_repr(headers)}; it must be {wanted}") from error
    if isinstance(headers, Mapping) or not all(map(_is_header, pairs)):
        raise TypeError(f"KafkaSink headers= returned {short_repr(headers)}; it must be {wanted}")
    return pairs


def _is_header(pair: tuple[Any, Any]) -> bool:
    name, raw = pair
    return isinstance(name, str) and name.isprintable() and (raw is None or isinstance(raw, bytes))


class RecordKeys:
    """The keys of records for the keys of messages: bytes and text as they are, numbers in decimal; None for none.

    Args:
        one_kind: whether to refuse keys of several kinds; unequal ones may be written alike.
    """

    def __init__(self, *, one_kind: bool) -> None:
        self._encoder = PlainKeyEncoder("make them alike" if one_kind else None)

    def column(self, keys: Sequence[Any]) -> Sequence[bytes | None]:
        """Return the keys of several records.

        Raises:
            TypeError: if a key is neither bytes, text nor a number, or of another kind than those before it.
        """
        if None in keys or NoKey in keys:
            return list(map(self.one, keys))
        try:
            return self._encoder.encode_column(keys)
        except (TypeError, ValueError):
            return list(map(self.one, keys))

    def one(self, key: Any) -> bytes | None:
        """Return the key of a record; see `column`."""
        if key is NoKey or key is None:
            return None
        try:
            return self._encoder.encode(key)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"KafkaSink cannot write {short_repr(key)} as the key of a record: {error}; pass key=, a function of "
                "the message that returns bytes, text or None"
            ) from error


def milliseconds(timestamp: Any) -> int | None:
    """Return the time of a record for the timestamp of a message; None unless it is an aware datetime."""
    if isinstance(timestamp, datetime) and timestamp.tzinfo is not None:
        return max(0, round(timestamp.timestamp() * 1000))
    return None


def own_milliseconds(timestamp: Any) -> int | None:
    """Return the time that a function of the user has returned.

    Raises:
        TypeError: if it is neither milliseconds, an aware datetime nor None.
    """
    if isinstance(timestamp, int) and not isinstance(timestamp, bool) and 0 <= timestamp <= _LATEST:
        return timestamp
    found = milliseconds(timestamp)
    if found is None and timestamp is not None:
        raise TypeError(
            f"KafkaSink timestamp= returned {short_repr(timestamp)}; it must be milliseconds since 1970, an aware "
            "datetime or None"
        )
    return found

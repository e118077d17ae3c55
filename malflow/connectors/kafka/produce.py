"""The key, time and headers of a record, the client's queue, and the delivery."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, Message, Producer

from malflow.aggregators.fields import read_of_message
from malflow.checks import check_function
from malflow.connectors.kafka.client import ClientSettings, KafkaFailed
from malflow.connectors.key_texts import PlainKeyEncoder
from malflow.message import DataMessage, NoKey
from malflow.words import plural, short_repr

__all__ = [
    "Failures",
    "OfMessage",
    "Record",
    "RecordKeys",
    "hint_of",
    "is_about_records",
    "milliseconds",
    "of_message",
    "own_headers",
    "own_milliseconds",
    "produce_all",
    "size_of",
]

Record: TypeAlias = tuple[str, bytes | None, bytes | None, int | None, tuple[tuple[str, bytes | None], ...] | None]
"""Topic, key, value, time in milliseconds (None: now), headers."""

_HINTS = {
    KafkaError.INVALID_TIMESTAMP: "a time is too far from the broker's clock: pass timestamp=, or raise the topic's "
    "'message.timestamp.after.max.ms'",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise the topic's 'max.message.bytes', or lower the setting 'batch.size'",
    KafkaError.TOPIC_EXCEPTION: "the topic's name is not valid",
}

_ABOUT_RECORDS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.RECORD_LIST_TOO_LARGE,
    }
)
"""The errors of brokers about records, which they refuse for good."""

_POLL_SECONDS = 0.1
"""The longest wait in seconds for room in a full queue; a delivery ends it at once. It is also the precision of the
deadline."""

_SHOWN = 3
"""The most failed records to name: records of a batch mostly fail for the same reason. Others are counted."""


class Failures:
    """Records that were not delivered, and the last connection error of the client."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._errors: list[tuple[KafkaError, str]] = []
        self._count = 0
        self._heard = ""
        self._users_on_error: Any = settings.settings.get("error_cb")

    def note(self, error: KafkaError | None, message: Message) -> None:
        """Record the outcome of a record's delivery."""
        if error is None:
            return
        self._count += 1
        if len(self._errors) < _SHOWN:
            self._errors.append((error, f"topic '{message.topic()}' partition {message.partition()}"))

    def hear(self, error: KafkaError) -> None:
        """Record an error of the client's connections."""
        self._heard = self._settings.text(error)
        if self._users_on_error is not None:
            self._users_on_error(error)

    @property
    def heard(self) -> str:
        """The client's last connection error, for messages."""
        return f" ({self._heard})" if self._heard else ""

    def forget(self) -> None:
        """Clear the client's connection errors, after a success."""
        self._heard = ""

    def take(self) -> KafkaFailed | None:
        """Return an error that names the first failures since the last call; None if there was no failure."""
        if not self._count:
            return None
        shown = "; ".join(f"{place}: {self._settings.text(error)}" for error, place in self._errors)
        hints = "".join(dict.fromkeys(hint_of(it.code()) for it, _ in self._errors))
        failed = KafkaFailed(
            f"{plural(self._count, 'record')} could not be written on {self._settings.servers}: "
            f"{shown}{self.heard}{hints}"
        )
        failed.refuses_records = any(is_about_records(error) for error, _ in self._errors)
        self._errors, self._count = [], 0
        return failed

    def take_final(self, codes: Collection[int]) -> KafkaFailed | None:
        """Return an error if a failure since the last call has one of these codes; discard the others."""
        is_final = any(error.code() in codes for error, _place in self._errors)
        failed = self.take()
        return failed if is_final else None


def is_about_records(error: KafkaError) -> bool:
    """Whether brokers refuse records for good."""
    return error.code() in _ABOUT_RECORDS


def hint_of(code: int) -> str:
    """Return the remedy for an error, as the end of a message."""
    return f"; {_HINTS[code]}" if code in _HINTS else ""


def produce_all(producer: Producer, records: Iterable[Record], deadline: float) -> None:
    """Put records into the client's queue; wait while it is full.

    Raises:
        KafkaException: if the client refuses one.
        KafkaFailed: if the queue stays full until the deadline.
    """
    produce = producer.produce
    for record in records:
        topic, key, value, timestamp, headers = record
        more: dict[str, Any] = {}
        if timestamp is not None:
            more["timestamp"] = timestamp
        if headers:
            more["headers"] = list(headers)
        while True:
            try:
                produce(topic, value, key, **more)
                break
            except BufferError:
                if time.monotonic() > deadline:
                    raise KafkaFailed(
                        f"the producer's queue stayed full while records of topic '{topic}' were written"
                    ) from None
                producer.poll(_POLL_SECONDS)
    producer.poll(0)


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

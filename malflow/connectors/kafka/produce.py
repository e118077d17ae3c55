"""Put records into the client's queue, and track their delivery."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, Message, Producer

from malflow.connectors.kafka.client import ClientSettings
from malflow.connectors.kafka.errors import KafkaFailed
from malflow.words import plural

__all__ = ["Failures", "Record", "hint_of", "is_about_records", "produce_all"]

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

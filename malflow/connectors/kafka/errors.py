"""Errors of Kafka, and of its records."""

from __future__ import annotations

from malflow.errors import MalflowError
from malflow.words import plural, short_repr

__all__ = ["BadKafkaRecord", "KafkaDataLost", "KafkaFailed", "UnwritableKafkaRecord"]

_SHOWN = 80
"""The most bytes of a key or value in a message: about a line of a terminal. Its length follows."""


class KafkaFailed(MalflowError, RuntimeError):
    """Kafka refused a request or did not answer in time."""


class KafkaDataLost(KafkaFailed):
    """Records were deleted before they were read, or the partition has a different log.

    Attributes:
        topic, partition: the partition.
        wanted: the offset that was to be read next.
        available: the first available offset, and the one after the last.
    """

    def __init__(self, topic: str, partition: int, wanted: int, available: tuple[int, int], reason: str) -> None:
        low, high = available
        super().__init__(
            f"topic '{topic}' partition {partition}: {reason}; expected offset {wanted}, but the offsets are {low} to "
            f"{high}; to continue without the lost records, pass on_data_loss='earliest' (from {low}) or 'latest' "
            f"(from {high})"
        )
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        self.available = available
        self.reason = reason


class BadKafkaRecord(MalflowError, ValueError):
    """A record that cannot be decoded.

    Attributes:
        topic, partition, offset: its position.
        key, value: its key and value as bytes, or None.
        timestamp: its time in milliseconds since 1970.
        reason: the cause.
    """

    def __init__(
        self,
        place: tuple[str, int, int],
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        reason: str,
    ) -> None:
        topic, partition, offset = place
        super().__init__(
            f"topic '{topic}' partition {partition} offset {offset}: the record cannot be decoded: {reason}; its value "
            f"is {_beginning(value)}; to continue without it, pass on_error='skip', or a function that takes this error"
        )
        self.topic, self.partition, self.offset = place
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.reason = reason


class UnwritableKafkaRecord(MalflowError, ValueError):
    """A value that cannot be written as a record.

    Attributes:
        target: the topic.
        value: the value.
        reason: the cause.
    """

    refuses_records = True

    def __init__(self, target: str, value: object, reason: str) -> None:
        super().__init__(f"{target} cannot take {short_repr(value)}: {reason}")
        self.target = target
        self.value = value
        self.reason = reason


def _beginning(raw: bytes | None) -> str:
    if raw is None or len(raw) <= _SHOWN:
        return repr(raw)
    return f"{raw[:_SHOWN]!r}... ({plural(len(raw), 'byte')})"

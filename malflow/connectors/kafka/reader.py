"""The reader of one partition: messages become columns of values and timestamps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

from confluent_kafka import Message

from malflow.connectors.codecs.contract import CodecUnavailable, Decoder
from malflow.connectors.kafka.buffer import Buffer, Part
from malflow.connectors.kafka.client import BadKafkaRecord
from malflow.connectors.kafka.consumer import SharedConsumer
from malflow.connectors.options import Handling, keeps_rejected
from malflow.failures import OnError as Policy
from malflow.operators.failures.halves import by_halves
from malflow.records.batch import Batch, concat
from malflow.sources.contract import Rejected, StatefulSourcePartition
from malflow.words import error_line, short_repr

__all__ = ["KafkaPartition", "KafkaRecord", "OnError", "Position", "ReadOptions"]

OnError: TypeAlias = Literal["fail", "skip", "dead_letter"] | Callable[[BadKafkaRecord], Any] | Policy
"""The handling of a record that cannot be decoded: end the run, skip it, keep it as a dead letter, or emit the
function's result for it."""

Position: TypeAlias = tuple[Any, ...]
"""The id of the topic, the next offset, the number of skipped records, and the last record's mark: plain values.

The mark is missing before the first record, and in positions of older versions."""

_PLACE = 3
"""The number of items in a position without the mark."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST, _LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class _BadRecords(ValueError):
    """Messages of which one cannot be decoded."""


class KafkaRecord(NamedTuple):
    """A record with its metadata in Kafka.

    Attributes:
        key: its decoded key; None if it has none.
        value: its decoded value; None for a tombstone.
        timestamp: its time in milliseconds since 1970.
        headers: names and values, in order.
    """

    key: Any
    value: Any
    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading messages."""

    decoder: Decoder[Any]
    key_decoder: Decoder[Any]
    records: bool
    datetimes: bool
    on_error: Handling

    def read_again(self, raw: Any) -> Any:
        """Return the value of a raw record that could not be decoded before: bytes, None, or a record of them."""
        if not isinstance(raw, KafkaRecord):
            return None if raw is None else self.decoder.decode(raw)
        key = None if raw.key is None else self.key_decoder.decode(raw.key)
        value = None if raw.value is None else self.decoder.decode(raw.value)
        return raw._replace(key=key, value=value) if self.records else value


class KafkaPartition(StatefulSourcePartition[Any, Any, Position]):
    """The reader of one partition.

    Args:
        part: the partition.
        consumer: the consumer that it shares with the readers of other partitions.
        options: the options of the source.
        buffer: its messages.
        skipped: the number of bad records before them.
        stop_at: the offset at which the partition ends for this run; None if it does not end.
        tally: the counts of bad records of all partitions.
    """

    def __init__(
        self,
        part: Part,
        consumer: SharedConsumer,
        options: ReadOptions,
        buffer: Buffer,
        skipped: int,
        stop_at: int | None,
        tally: dict[Part, int],
    ) -> None:
        self._part = part
        self._consumer = consumer
        self._options = options
        self._buffer = buffer
        self._stop_at = stop_at
        self._tally = tally
        self._skipped = tally[part] = skipped
        self._failing: list[Message] = []
        self._rejected: list[Rejected] = []
        self._next = buffer.next
        self._is_open = True

    def poll(self) -> tuple[Any, Any] | None:
        """Return the next record and its time."""
        values, timestamps = self.poll_batch(1)
        return (values[0], timestamps[0]) if values else None

    def poll_batch(self, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the next records and their times, without waiting.

        Raises:
            BadKafkaRecord: if the next record cannot be decoded and `on_error` is ``"fail"``.
            KafkaFailed: if the partition cannot be read.
        """
        messages = self._failing or self._consumer.take(self._buffer, limit)
        if self._stop_at is not None:
            messages = self._before_the_stop(messages, self._stop_at)
        columns: tuple[Sequence[Any], Sequence[Any]] = (), ()
        if messages:
            self._failing = messages  # kept here if an error is raised, so that none is skipped
            columns = self._decoded(messages) or self._around_bad_ones(messages)
            done = len(messages) - len(self._failing)
            if done:
                self._buffer.seen = messages[done - 1]
        if self._is_open and not self._failing:
            self._next = self._reached()
        return columns

    def take_rejected(self) -> Sequence[Rejected]:
        """Return the records that could not be decoded since the last call."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def is_finished(self) -> bool:
        """Whether the reader has reached the offset at which the partition ends for this run."""
        return self._stop_at is not None and self._next >= self._stop_at and self._buffer.doubted is None

    def snapshot(self) -> Position:
        """Return the id of the topic, the next offset, the number of skipped records, and the last record's mark."""
        mark = self._buffer.mark
        return self._buffer.topic_id, self._next, self._skipped, *(() if mark is None else (tuple(mark),))

    def go_on_from(self, position: Position) -> bool:
        """Whether this reader is at the position of the other one and can continue from it."""
        return self._is_open and not self._failing and tuple(position)[:_PLACE] == self.snapshot()[:_PLACE]

    def committed(self, state: Position) -> None:
        """Commit an offset for the group, if `group` was passed."""
        if self._is_open:
            self._consumer.commit(self._part, state[1])

    def lag(self) -> int | None:
        """Return the number of offsets after the position, as far as the client knows; open transactions count."""
        return self._consumer.lag(self._buffer) if self._is_open else None

    def suspend(self) -> None:
        """Stop reading the partition."""
        if self._is_open:
            self._is_open = False
            self._consumer.unassign(self._part)

    def _before_the_stop(self, messages: list[Message], stop_at: int) -> list[Message]:
        if not messages or (messages[-1].offset() or 0) < stop_at:
            return messages
        return [it for it in messages if (it.offset() or 0) < stop_at]

    def _reached(self) -> int:
        """Return the offset that the buffer has reached; records after the stop are left to the next run."""
        reached = self._buffer.next
        return reached if self._stop_at is None else min(reached, max(self._stop_at, self._next))

    def _decoded(self, messages: list[Message]) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """Return the columns of messages; None if one of them cannot be decoded."""
        try:
            columns = self._columns(messages)
        except _BadRecords:
            return None
        self._failing = []
        return columns

    def _columns(self, messages: list[Message]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the columns of messages.

        Raises:
            _BadRecords: if one of them cannot be decoded.
        """
        try:
            values = _column(self._options.decoder, list(map(Message.value, messages)))
            if self._options.records:
                values = self._records(messages, values)
            return values, self._times(messages)
        except CodecUnavailable:
            raise
        except Exception as error:
            raise _BadRecords from error

    def _records(self, messages: list[Message], values: Sequence[Any]) -> list[KafkaRecord]:
        keys = _column(self._options.key_decoder, list(map(Message.key, messages)))
        topic, partition = self._part
        return [
            KafkaRecord(key, value, topic, partition, it.offset() or 0, it.timestamp()[1], _headers(it))
            for key, value, it in zip(keys, values, messages, strict=True)
        ]

    def _times(self, messages: list[Message]) -> list[Any]:
        if self._options.datetimes:
            return [_EPOCH + timedelta(milliseconds=it.timestamp()[1]) for it in messages]
        return [it[1] for it in map(Message.timestamp, messages)]

    def _nearest_time(self, message: Message) -> Any:
        try:
            return self._times([message])[0]
        except OverflowError:
            return _LATEST if message.timestamp()[1] > 0 else _EARLIEST

    def _around_bad_ones(self, messages: list[Message]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Decode messages by halves, and handle the bad ones; return the messages before an error.

        The next call raises it. Records stay columns if the decoder makes columns and no value stands for a bad one.
        """
        answers, failed = by_halves(
            lambda start, stop: Batch(None, *self._columns(messages[start:stop])),
            len(messages),
            _BadRecords(),
            lambda _: True,  # a decoder may fail once
        )
        parts = {it.start: it.answer for it in answers}
        found: list[Batch] = []
        self._failing = []
        for at in sorted([*parts, *failed]):
            try:
                found.append(parts[at] if at in parts else self._one(messages[at]))
            except BadKafkaRecord:
                self._failing = messages[at:]
                if not any(map(len, found)):
                    raise
                self._next = messages[at].offset() or 0
                break
        whole = concat([it for it in found if len(it)] or found)
        return whole.values, whole.timestamps

    def _one(self, message: Message) -> Batch:
        """Decode a message; return the record, the one that stands for it if it is bad, or none.

        Raises:
            BadKafkaRecord: if it is bad, and no policy handles it.
        """
        try:
            return Batch(None, [self._decode_one(message)], self._times([message]))
        except CodecUnavailable:
            raise
        except Exception as error:
            bad = self._bad(message, error)
            if self._options.on_error == "fail":
                raise bad from error
        self._skipped = self._tally[self._part] = self._skipped + 1
        value = self._instead(bad, message)
        return Batch(None, (), ()) if value is None else Batch(None, [value], [self._nearest_time(message)])

    def _instead(self, bad: BadKafkaRecord, message: Message) -> Any:
        """Return the value to emit for a record that cannot be decoded; None if there is no such value."""
        on_error = self._options.on_error
        if callable(on_error):
            return on_error(bad)
        if keeps_rejected(on_error):
            place = f"{bad.topic}[{bad.partition}] offset {bad.offset}"
            time = self._nearest_time(message)
            raw: Any = bad.value
            if self._options.records:
                raw = KafkaRecord(bad.key, raw, *self._part, bad.offset, bad.timestamp, _headers(message))
            self._rejected.append(Rejected(raw, time, place, type(bad).__name__, bad.reason))
        return None

    def _decode_one(self, message: Message) -> Any:
        raw = message.value()
        value = None if raw is None else self._options.decoder.decode(raw)
        if not self._options.records:
            return value
        try:
            return self._records([message], [value])[0]
        except CodecUnavailable:
            raise
        except Exception as error:
            key = short_repr(message.key())
            raise ValueError(f"its key is {key}, {error_line(error)}") from error

    def _bad(self, message: Message, error: Exception) -> BadKafkaRecord:
        place = (*self._part, message.offset() or 0)
        reason = error_line(error)
        return BadKafkaRecord(place, _bytes(message.key()), _bytes(message.value()), message.timestamp()[1], reason)


def _column(decoder: Decoder[Any], raws: Sequence[Any]) -> Sequence[Any]:
    """Return decoded values; None stays None: a record without a value deletes its key."""
    if None not in raws:
        return decoder.decode_column(raws)
    decoded = iter(decoder.decode_column([raw for raw in raws if raw is not None]))
    return [None if raw is None else next(decoded) for raw in raws]


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    headers: Any = message.headers()
    return tuple(map(tuple, headers)) if headers else ()


def _bytes(raw: str | bytes | None) -> bytes | None:
    return raw.encode() if isinstance(raw, str) else raw

"""A sink that writes to topics of Kafka."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any, Literal, TypeAlias

from confluent_kafka import KafkaException, Producer

from malflow.checks import check_choice, check_flag, check_function, check_name, checked_duration
from malflow.connectors.codecs.contract import CodecUnavailable
from malflow.connectors.codecs.plain import Encode, encoder_of
from malflow.connectors.kafka.client import LOG, ClientSettings, KafkaFailed, UnwritableKafkaRecord
from malflow.connectors.kafka.produce import (
    Failures,
    OfMessage,
    Record,
    RecordKeys,
    milliseconds,
    of_message,
    own_headers,
    own_milliseconds,
    produce_all,
    size_of,
)
from malflow.connectors.kafka.topics import describe_known
from malflow.connectors.kafka.transactions import MarkedWriter, MarkerLost
from malflow.connectors.options import check_delivery
from malflow.connectors.segments import SegmentedSinkImpl, SegmentWriter, is_sealed
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.message import DataMessage
from malflow.sinks.distributed import Share
from malflow.sinks.formatting import Formatter, checked_formatter, formatted
from malflow.sinks.transactional import Delivery, Divided, Refused, SinkOwner
from malflow.type_parameters import K, T, V
from malflow.words import error_line, plural, short_repr

__all__ = ["Handle", "KafkaSink"]


Handle: TypeAlias = tuple[int, int, tuple[Record, ...], int]
"""The number of a transaction, the previous number, its records, and the claim of the run that prepared it."""

_LARGEST = 1_000_000
"""The largest record in bytes unless `message.max.bytes` is set: the default of librdkafka."""

_PARTS = ("topic", "key", "value", "timestamp", "headers")
_RECORD = "record"
"""The key of a refused record, whose own key is among its parts."""

_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")

_CALLED = "malflow checks the delivery of each record"
_FIXED: dict[str, tuple[Any, str]] = {
    "enable.idempotence": (True, "a repeated request must not write records twice or in another order"),
    "delivery.report.only.error": (True, _CALLED),
    "on_delivery": (None, _CALLED),
    "dr_cb": (None, _CALLED),
    "transactional.id": (None, "it follows from the names of the job and the sink"),
}
_USUAL: dict[str, Any] = {"linger.ms": 5, "partitioner": "murmur2_random"}
"""Settings that a user's replace. The partition of a key is the one that clients of Java and Kafka Streams choose."""

_SHORTEST_TRANSACTION, _LONGEST_TRANSACTION = timedelta(minutes=2), timedelta(minutes=15)


class KafkaSink(SegmentedSinkImpl[K, V, T]):
    """Write messages to a topic of Kafka, or several.

    At-least-once, the default: the brokers acknowledge the records by the end of each tick; after a restart, records
    since the last snapshot are written again.

    Exactly-once: the records of a transaction are kept in the snapshot, and written by one Kafka transaction once the
    snapshot is durable. Readers with ``isolation.level=read_committed`` see each transaction whole and once, at the
    interval of snapshots. The transaction's number is committed with it, in the offset of a group without consumers,
    ``malflow/<job>/<sink>``. This is also the transactional id. On Spark the workers encode the records and store them
    beside the snapshots. Snapshots have only their names, and the driver writes them to Kafka.

    The value None is written as a tombstone.

    Args:
        topic: the (existing) topic, or a function of the message that returns it.
        servers: addresses of brokers, ``"host:9092"``, several separated by commas.
        delivery: ``"at-least-once"`` or ``"exactly-once"``.
        formatter: returns the value of the record for a message; by default the message's value.
        encode: the encoder of values: ``"bytes"``, ``"text"``, ``"json"``, an `Encoder`, or a function.
        key: a function of the message that returns the record's key, or the name of a field of the value: bytes, text
            or None. By default the message's key, if it is bytes, text or a number (in decimal); None if the message
            has none. Keys that are equal, such as 1 and 1.0, are written alike; so the keys of a sink must be all text,
            all bytes or all numbers.
        headers: a function of the message that returns pairs of name and bytes (may be None).
        timestamp: a function of the message that returns the record's time, or the name of a field of the value:
            milliseconds since 1970 or an aware datetime. By default the message's timestamp if it is an aware datetime,
            else the present time.
        marker_topic: with ``"exactly-once"``, the topic for the group's offset, on its partition 0; required if `topic`
            is a function.
        on_lost_marker: what to do if a run resumes and the group's offset is gone; brokers delete it a week
            (``offsets.retention.minutes``) after the last commit. ``"fail"``, or assume that the snapshot's transaction
            is in the topic (``"drop"`` it) or is not (``"write"`` it).
        timeout: how long brokers may take to acknowledge a tick or commit a transaction.
        on_workers: with ``"exactly-once"``, whether the workers encode the records, on Spark; if False, the driver
            does.
        settings: settings of librdkafka, such as ``compression.type``. Never shown. Its ``partitioner`` is
            ``murmur2_random``, that of clients of Java, unless this names another.

    Raises:
        GraphError: if an argument is invalid, or a setting conflicts with one that malflow depends on.

    >>> KafkaSink("orders", servers="localhost:9092", settings={"sasl.password": "secret"})
    KafkaSink('orders', servers='localhost:9092', delivery='at-least-once')
    """

    def __init__(
        self,
        topic: str | OfMessage,
        *,
        servers: str | Iterable[str],
        delivery: Delivery = "at-least-once",
        encode: Encode = "bytes",
        formatter: Formatter | None = None,
        key: OfMessage | str | None = None,
        headers: OfMessage | None = None,
        timestamp: OfMessage | str | None = None,
        marker_topic: str | None = None,
        on_lost_marker: Literal["fail", "drop", "write"] = "fail",
        timeout: Duration = timedelta(minutes=2),
        on_workers: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        me = "KafkaSink"
        check_delivery(me, delivery)
        check_flag(me, "on_workers", on_workers)
        check_choice(me, "on_lost_marker", on_lost_marker, ("fail", "drop", "write"))
        check_name(me, "marker_topic", marker_topic, "the name of a topic", optional=True)
        if not (isinstance(topic, str) and topic):
            check_function(me, "topic", topic, or_else=("the name of a topic",))
        if delivery == "exactly-once" and callable(topic) and marker_topic is None:
            raise GraphError(f"{me} whose topic is a function needs marker_topic='...', a topic for its marker")
        key, headers = of_message(me, "key", key), of_message(me, "headers", headers, fields=False)
        timestamp = of_message(me, "timestamp", timestamp)
        span = checked_duration(me, "timeout", timeout)
        usual = {**_USUAL, "transaction.timeout.ms": _transaction_timeout(span)}
        self._settings = ClientSettings.checked(me, servers, settings, fixed=_FIXED, usual=usual)
        self.delivery = delivery
        self.on_driver = delivery == "exactly-once"  # type: ignore[misc] # each process may write what can be repeated
        self._topic, self._key, self._headers, self._timestamp = topic, key, headers, timestamp
        self._keys = RecordKeys(one_kind=key is None)
        self._formatter = checked_formatter(me, formatter)
        self._encoder = encoder_of(encode, me)
        self._marker_topic = marker_topic or (topic if isinstance(topic, str) else "")
        self._on_lost_marker = on_lost_marker
        self._seconds = span.total_seconds()
        largest = self._settings.settings.get("message.max.bytes", _LARGEST)
        if not str(largest).isdecimal():
            raise GraphError(f"{me} setting 'message.max.bytes' must be a number of bytes; got {short_repr(largest)}")
        self._largest = int(largest)
        self._producer: Producer | None = None
        self._failures = Failures(self._settings)
        self._unflushed = False
        self._writer: MarkedWriter | None = None
        self.on_workers = on_workers
        self._rows: list[Record] = []
        self._last_transaction = self._last_committed = self._claim = 0

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write a batch of messages; with ``"exactly-once"``, keep them for the transaction.

        Raises:
            UnwritableKafkaRecord: if one cannot be encoded or is too large.
            KafkaFailed: if the brokers reject records.
        """
        records = self._encoded(keys, values, timestamps)
        if self.delivery == "exactly-once":
            self._rows.extend(records)
            return
        producer = self._producer or self._open()
        self._unflushed = True
        try:
            produce_all(producer, records, time.monotonic() + self._seconds)
        except KafkaException as error:
            raise self._failures.take() or self._settings.failed(f"writing to {self._target}", error) from None
        self._raise_failures()

    def encode(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> list[Record]:
        """Return records of messages.

        Raises:
            UnwritableKafkaRecord: if one cannot be encoded or is too large.
        """
        return self._encoded(keys, values, timestamps)

    def open_writer(self, share: Share) -> SegmentWriter:
        """Return the writer of a segment."""
        return self.segments.writer(share)

    def flush(self) -> None:
        """Wait until the brokers have acknowledged all records.

        Raises:
            KafkaFailed: if they reject a record, or do not answer in time.
        """
        if self._producer is None or not self._unflushed:
            return
        left = self._producer.flush(self._seconds)
        self._raise_failures()
        if left:
            raise KafkaFailed(
                f"no acknowledgement of {plural(left, 'record')} for {self._target} by {self._settings.servers} within "
                f"{self._seconds:g} s{self._failures.heard}"
            )
        self._unflushed = False

    def close(self) -> None:
        """Release the clients."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._rows = []
        super().close()

    def fence(self, owner: SinkOwner) -> int:
        """Take over the transactional id; return the last committed transaction.

        Raises:
            FencedError: if a run with a higher claim writes.
            KafkaFailed: if the topic does not exist, the brokers do not answer, or they have lost transactions.
        """
        super().fence(owner)
        known = [self._topic] if isinstance(self._topic, str) else []
        describe_known(self._settings, list(dict.fromkeys([*known, self._marker_topic])))
        if self._writer is not None:
            self._writer.close()
        self._writer = MarkedWriter(self._settings, owner, self._marker_topic, self._seconds)
        self._rows = []
        self._last_transaction, self._claim = self._writer.take_over(), owner.claim
        if self._last_transaction < owner.transaction:
            self._tell_of_loss(self._last_transaction, owner.transaction)
        self._writer.accept_loss()
        self._last_committed = self._last_transaction
        return self._last_transaction

    def prepare(self, transaction: int, /) -> Any:
        """Return the transaction's records; None if there are none."""
        if not self._rows:
            return None
        handle = (transaction, self._last_transaction, tuple(self._rows), self._claim)
        self._rows, self._last_transaction = [], transaction
        return handle

    def commit(self, handles: Sequence[Any]) -> None:
        """Write transactions, each by one Kafka transaction; skip those that have been written.

        Raises:
            FencedError: if a run with a higher claim writes.
            KafkaFailed: if the brokers reject a record or do not answer in time, or the marker is lost.
        """
        writer = self._writer
        if writer is None:
            raise KafkaFailed(f"{self!r} was not fenced")
        for handle in handles:
            transaction, before, records, claim = self._read(handle)
            marker = writer.marker
            is_lost = marker.transaction < before or (marker.transaction < transaction and claim < marker.since)
            if is_lost and not self._write_without_marker(writer, transaction, before):
                records = ()  # the marker alone
            try:
                writer.write(transaction, records)
            except MarkerLost:
                told = writer.marker.transaction
                self._tell_of_loss(told, self._last_committed)
                writer.accept_loss()
                writer.write(transaction, records if self._write_without_marker(writer, transaction, before) else ())
            self._last_committed = transaction
            self._last_transaction = max(self._last_transaction, transaction)
            if is_sealed(handle):
                self.drop_shares((), until=transaction)

    def divide(self, handle: Any) -> Divided[Any]:
        """Try the records of a transaction in transactions that abort, and return it without the refused ones.

        Raises:
            KafkaFailed: if the brokers can't be asked.
        """
        writer = self._writer
        if writer is None:
            raise KafkaFailed(f"{self!r} was not fenced")
        transaction, before, records, claim = self._read(handle)
        errors = writer.refused(records)
        if not errors:
            return Divided(handle, (), len(records))
        refused = [Refused(dict(zip(_PARTS, records[at], strict=True)), error, _RECORD) for at, error in errors.items()]
        kept = tuple(record for at, record in enumerate(records) if at not in errors)
        return Divided((transaction, before, kept, claim), refused, len(records))

    def write_refused(self, records: Sequence[Refused]) -> None:
        """Write records that `divide` returned again, with the open transaction."""
        self._rows.extend(self.encode_refused(records))

    def encode_refused(self, records: Sequence[Refused]) -> list[Record]:
        """Return records that `divide` returned."""
        return [(it["topic"], it["key"], it["value"], it["timestamp"], it["headers"]) for it, *_ in records]

    def abort(self, keep: Sequence[Any]) -> None:
        """Drop the open transaction (nothing of it is in Kafka), and segments that are in none of the handles."""
        super().abort(keep)
        self._rows = []

    def _read(self, handle: Any) -> Handle:
        """Return the records of a transaction, unless they are written: the records of shares are in segments."""
        if not is_sealed(handle):
            kept: Handle = handle
            return kept
        transaction, sealed = handle
        claim = max((it[0] for it in sealed), default=self._claim)
        records: tuple[Record, ...] = ()
        if self._writer is not None and transaction > self._writer.marker.transaction:
            records = tuple(chain.from_iterable(self.segments.read(sealed)))
        return transaction, transaction - 1, records, claim

    def _tell_of_loss(self, last: int, known: int) -> None:
        """Raise an error, or warn, that the brokers lack transactions which they had confirmed."""
        told = f"{self!r}: transaction {known} was committed, and the group's offset of topic '{self._marker_topic}'"
        if self._on_lost_marker == "fail":
            raise KafkaFailed(
                f"{told} {f'says {last}' if last else 'is gone'}: the brokers have lost confirmed transactions, the "
                "topic was recreated, another topic had the marker meanwhile, or 'offsets.retention.minutes' have "
                "passed since the last commit. Check the topic; restore a snapshot from before the missing records "
                "(restore=), or pass on_lost_marker='drop' to continue with the next transaction"
            )
        LOG.warning("%s is gone or older; if the topic was recreated, so are its earlier transactions", told)

    def _write_without_marker(self, writer: MarkedWriter, transaction: int, before: int) -> bool:
        """Return whether to write a transaction that may or may not be in the topic."""
        if self._on_lost_marker != "fail":
            return self._on_lost_marker == "write"
        known = f"transaction {before} was committed" if before else "an earlier run had one"
        raise KafkaFailed(
            f"the marker of {self!r} is lost: {known}, and the group's offset of topic "
            f"'{self._marker_topic}' says {writer.marker.transaction}; brokers delete it 'offsets.retention.minutes' "
            "after the last commit, or with the topic, and each marker_topic has its own. It is unknown whether "
            f"transaction {transaction} was written: check the topic, and pass on_lost_marker='drop' if it was, or "
            "'write' if it was not"
        )

    @property
    def _target(self) -> str:
        return f"topic '{self._topic}'" if isinstance(self._topic, str) else "topics"

    def _open(self) -> Producer:
        if isinstance(self._topic, str):
            describe_known(self._settings, [self._topic])
        self._producer = self._settings.producer(on_delivery=self._failures.note, error_cb=self._failures.hear)
        return self._producer

    def _raise_failures(self) -> None:
        failed = self._failures.take()
        if failed is not None:
            raise failed

    def _encoded(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> list[Record]:
        contents = formatted(self._formatter, keys, values, timestamps)
        raws = self._raw_values(contents)
        views = map(DataMessage, keys, values, timestamps)
        if self._topic.__class__ is str and self._key is self._headers is self._timestamp is None:
            topic = self._topic
            times = map(milliseconds, timestamps)
            records: list[Record] = [
                (topic, key, raw, at, None) for key, raw, at in zip(self._keys.column(keys), raws, times, strict=True)
            ]
        else:
            records = [self._record(msg, raw) for msg, raw in zip(views, raws, strict=True)]
        for record, value in zip(records, contents, strict=True):
            if size_of(record) > self._largest:
                raise self._size_error(record, value)
        return records

    def _raw_values(self, values: Sequence[Any]) -> Sequence[bytes | None]:
        try:
            if None not in values:
                return self._encoder.encode_column(values)
        except CodecUnavailable:
            raise
        except Exception:  # noqa: BLE001, S110 - one of them; it is found below
            pass
        return [self._raw_value(value) for value in values]

    def _raw_value(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return self._encoder.encode(value)
        except CodecUnavailable:
            raise
        except Exception as error:
            reason = error_line(error)
            raise UnwritableKafkaRecord(self._target, value, reason) from error

    def _record(self, msg: DataMessage[K, V, T], raw: bytes | None) -> Record:
        topic = self._topic if isinstance(self._topic, str) else self._topic(msg)
        if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
            raise UnwritableKafkaRecord(
                "topics", msg.value, f"the function for the topic returned {short_repr(topic)}, not the name of a topic"
            )
        key = self._keys.one(msg.key if self._key is None else self._key(msg))
        at = milliseconds(msg.timestamp) if self._timestamp is None else own_milliseconds(self._timestamp(msg))
        headers = None if self._headers is None else own_headers(self._headers(msg))
        return topic, key, raw, at, headers

    def _size_error(self, record: Record, value: V) -> UnwritableKafkaRecord:
        most = f"{self._largest:,}; raise 'message.max.bytes' here and on the brokers"
        reason = f"it takes {size_of(record):,} bytes of at most {most}"
        return UnwritableKafkaRecord(f"topic '{record[0]}'", value, reason)

    def __repr__(self) -> str:
        target = repr(self._topic) if isinstance(self._topic, str) else "<function>"
        return f"KafkaSink({target}, servers={self._settings.servers!r}, delivery={self.delivery!r})"

    def __getstate__(self) -> dict[str, Any]:
        fresh: dict[str, Any] = {
            **super().__getstate__(),
            "_producer": None,
            "_writer": None,
            "_rows": [],
            "_unflushed": False,
        }
        return {**fresh, "_failures": Failures(self._settings)}


def _transaction_timeout(timeout: timedelta) -> int:
    """Return the milliseconds after which brokers may abort a transaction: later than the commit's own timeout."""
    return min(max(timeout, _SHORTEST_TRANSACTION), _LONGEST_TRANSACTION) // timedelta(milliseconds=1)

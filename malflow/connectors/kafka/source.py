"""A source that reads topics of Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from malflow.checks import check_choice, check_name, checked_duration, checked_names
from malflow.connectors.codecs.plain import Decode, decoder_of
from malflow.connectors.kafka.buffer import Mark, Part
from malflow.connectors.kafka.client import LOG, ClientSettings, KafkaFailed
from malflow.connectors.kafka.consumer import OnDataLoss, SharedConsumer
from malflow.connectors.kafka.reader import KafkaPartition, OnError, Position, ReadOptions
from malflow.connectors.kafka.topics import Topic, describe_known
from malflow.connectors.options import Handling, RejectingSource, check_start
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.sources.contract import StatefulSourceImpl
from malflow.words import short_repr

__all__ = ["KafkaSource", "Start"]

Start: TypeAlias = Literal["earliest", "latest"] | datetime
"""The start of partitions that the job has not read before."""

_LONGEST_LOOK = 10.0
"""The most seconds between two looks at the topics, even if new partitions are looked for less often: a deleted topic
is noticed in time. Half of it doubles the requests."""

_LONGEST_NAME = 249
"""The longest name of a topic, by Kafka's rules."""

_MARK = 3
"""The index of the mark in a position."""

_ASSIGNED = "partitions are assigned by malflow, and positions are in its snapshots"
_FIXED: dict[str, tuple[Any, str]] = {
    "enable.auto.commit": (False, _ASSIGNED),
    "enable.auto.offset.store": (False, _ASSIGNED),
    "auto.offset.reset": (
        "error",
        "a lost offset is an error; pass on_data_loss= to handle it otherwise, start= to choose the start",
    ),
    "enable.partition.eof": (True, "the end of a partition is part of its position"),
    "isolation.level": ("read_committed", "records of an aborted transaction never happened"),
    "on_commit": (None, "offsets are committed for monitoring only; failures are logged to malflow.kafka"),
}
_USUAL: dict[str, Any] = {
    "allow.auto.create.topics": False,
    "fetch.queue.backoff.ms": 20,
    "fetch.wait.max.ms": 100,
}


class KafkaSource(RejectingSource, StatefulSourceImpl[Part, Any, Any, Position]):
    """Read topics of Kafka; each partition is a part, and the key of its records: ``(topic, partition)``.

    Positions are in malflow's snapshots. No consumer group is joined, so nothing is rebalanced, and offsets are
    committed for monitoring only, if `group` is given. A process has one consumer for all partitions that it reads.

    Args:
        topic: an existing topic, or several.
        servers: addresses of brokers, ``"host:9092"``, several separated by commas.
        start: where partitions begin when the job first starts: ``"earliest"``, ``"latest"``, or at a time (aware).
            Partitions that are added later begin at their first record.
        stop: ``"latest"`` ends each partition at its last record at the start of the run; None never ends.
        decode: the decoder of values: ``"bytes"``, ``"text"``, ``"json"``, a `Decoder`, or a function. A record
            without a value (a tombstone) becomes None.
        decode_key: the decoder of keys, for ``emit="record"``.
        emit: ``"value"``, or ``"record"`` for a `KafkaRecord` with key, value, headers and so on.
        timestamps: the form of the records' times: ``"milliseconds"`` since 1970, or ``"datetime"`` in UTC.
        on_error: how to handle a record that cannot be decoded: ``"fail"`` with a `BadKafkaRecord`, ``"skip"`` and
            count it, ``"dead_letter"`` to keep its bytes, or call a function with it and emit the result, unless it is
            None; or an `OnError` with one of these words and more options.
        on_data_loss: what to do if records were deleted before they were read, the topic was recreated, or its log lost
            records that were read (its brokers were restored from an older copy, or lost writes): ``"fail"`` with
            `KafkaDataLost`, or continue at the ``"earliest"`` or ``"latest"`` offset with a warning in the log.
        discover_every: how often to look for new partitions; None: never.
        group: the group for which offsets are committed after each snapshot, for tools that show lag. No other program
            may consume as this group.
        settings: settings of librdkafka, such as ``security.protocol``. Never shown.

    Raises:
        GraphError: if an argument is invalid, or a setting conflicts with one that malflow depends on.

    >>> KafkaSource("orders", servers="localhost:9092", decode="json", settings={"sasl.password": "secret"})
    KafkaSource('orders', servers='localhost:9092')
    """

    def __init__(
        self,
        topic: str | Iterable[str],
        *,
        servers: str | Iterable[str],
        start: Start = "earliest",
        stop: Literal["latest"] | None = None,
        decode: Decode = "bytes",
        decode_key: Decode = "bytes",
        emit: Literal["value", "record"] = "value",
        timestamps: Literal["milliseconds", "datetime"] = "milliseconds",
        on_error: OnError = "fail",
        on_data_loss: OnDataLoss = "fail",
        discover_every: Duration | None = timedelta(minutes=1),
        group: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        me = "KafkaSource"
        check_choice(me, "stop", stop, ("latest", None))
        check_choice(me, "emit", emit, ("value", "record"))
        check_choice(me, "timestamps", timestamps, ("milliseconds", "datetime"))
        check_choice(me, "on_data_loss", on_data_loss, ("fail", "earliest", "latest"))
        check_start(me, start)
        handling = self.set_policy(me, on_error)
        every = None
        if discover_every is not None and not stop:
            every = checked_duration(me, "discover_every", discover_every, or_else="None")
        check_name(me, "group", group, "the name of a group", optional=True)
        self._topics = _topic_list(topic, me)
        fixed = {**_FIXED, "group.id": (group or "malflow", "pass group=")}
        self._settings = ClientSettings.checked(me, servers, settings, fixed=fixed, usual=_USUAL)
        self._options = ReadOptions(
            decoder_of(decode, me),
            decoder_of(decode_key, me, "decode_key"),
            emit == "record",
            timestamps == "datetime",
            handling,
        )
        self.emits_columns = self._options.decoder.emits_columns and not self._options.records
        self._start, self._stop, self._group, self._on_data_loss = start, stop, group, on_data_loss
        self.discover_every: timedelta | None = every
        self._consumers: list[SharedConsumer] = []
        self._described: dict[str, Topic] = {}
        self._tally: dict[Part, int] = {}

    @property
    def skipped(self) -> dict[Part, int]:
        """The number of bad records so far in each partition that was read in this process."""
        return dict(self._tally)

    def list_parts(self) -> list[Part]:
        """Return the partitions that the topics have now.

        Raises:
            KafkaFailed: if a topic does not exist, or the servers do not answer the first call.
            GraphError: if the client refuses a setting.
        """
        try:
            self._described = describe_known(self._settings, self._topics)
        except KafkaFailed as error:
            if not self._described:
                raise
            LOG.warning("looking for new partitions failed: %s", error)
        return [(topic, number) for topic in self._topics for number in self._described[topic].partitions]

    def build_part(self, part: Part, state: Position | None) -> KafkaPartition:
        """Return a reader of one partition.

        Raises:
            KafkaDataLost: if the position belongs to an earlier topic of that name, and `on_data_loss` is ``"fail"``.
            KafkaFailed: if the servers do not answer.
        """
        return self._build(part, state, self._start)

    def build_discovered_part(self, part: Part) -> KafkaPartition:
        """Return a reader of a partition that was added later, from its first record."""
        return self._build(part, None, "earliest")

    def _build(self, part: Part, state: Position | None, start: Start) -> KafkaPartition:
        topic, number = part
        part = (topic, number)
        consumer = self._consumer_without(part)
        offset = self._first_offset(consumer, part, start) if state is None else state[1]
        mark = Mark(*state[_MARK]) if state is not None and len(state) > _MARK else None
        buffer = consumer.assign(part, offset, mark)
        try:
            if state is not None and state[0] != buffer.topic_id:
                reason = f"the topic was deleted and recreated (its id is {buffer.topic_id}, it was {state[0]})"
                consumer.seek(buffer, consumer.lose(buffer, offset, reason))
            stop_at = consumer.offsets(part)[1] if self._stop else None
            if stop_at is not None and stop_at < buffer.next:
                consumer.seek(buffer, consumer.lose(buffer, buffer.next, "it ends before the position"))
        except BaseException:
            consumer.unassign(part)
            raise
        return KafkaPartition(
            part, consumer, self._options, buffer, 0 if state is None else state[2], stop_at, self._tally
        )

    def _consumer_without(self, part: Part) -> SharedConsumer:
        """Return a consumer that does not read a partition: a source may be used twice in a dataflow."""
        self._consumers = [it for it in self._consumers if it.is_open]
        for consumer in self._consumers:
            if part not in consumer:
                return consumer
        every = _LONGEST_LOOK if self.discover_every is None else self.discover_every.total_seconds()
        consumer = SharedConsumer(
            self._settings,
            group=self._group,
            on_data_loss=self._on_data_loss,
            look_every=min(every, _LONGEST_LOOK),
        )
        self._consumers.append(consumer)
        return consumer

    def _first_offset(self, consumer: SharedConsumer, part: Part, start: Start) -> int:
        if isinstance(start, datetime):
            return consumer.offset_at(part, max(0, int(start.timestamp() * 1000)))
        low, high = consumer.offsets(part)
        return low if start == "earliest" else high

    def read_again(self, part: Part, raw: Any) -> Any:
        """Decode the raw record of a dead letter again; errors of the decoder are raised unchanged."""
        del part
        return self._options.read_again(raw)

    def handle(self, handling: Handling) -> None:
        """Set how readers handle a record that they can't decode."""
        self._options = replace(self._options, on_error=handling)

    def __repr__(self) -> str:
        return f"KafkaSource({', '.join(map(repr, self._topics))}, servers={self._settings.servers!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_consumers": [], "_tally": {}}


def _topic_list(topic: str | Iterable[str], asked_by: str) -> list[str]:
    topics = list(checked_names(asked_by, "topic", [topic] if isinstance(topic, str) else topic))
    if not topics or any(len(it) > _LONGEST_NAME for it in topics):
        raise GraphError(f"{asked_by} needs the name of a topic, or several; got topic={short_repr(topics)}")
    return topics

"""One consumer for all the partitions that a process reads: it joins no group, and its memory is bounded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Literal, TypeAlias, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from malflow.connectors.kafka.buffer import ANOTHER_HISTORY, Buffer, Mark, Part
from malflow.connectors.kafka.client import LOG, REPEATED_EVERY, ClientSettings, KafkaDataLost, KafkaFailed
from malflow.connectors.kafka.topics import MISSING, PASSING, REQUEST_SECONDS, TopicWatch, describe_known

__all__ = ["OnDataLoss", "SharedConsumer"]

OnDataLoss: TypeAlias = Literal["fail", "earliest", "latest"]

R = TypeVar("R")

_CHUNK = 1000
"""The number of messages taken from the client at once; it is fastest with some hundreds."""

_MOST_BYTES = 64 << 20
"""The number of bytes after which one call takes no more messages."""

_LOOK_AGAIN = 0.1
"""The seconds before asking again for a new partition without a leader; electing one takes a moment. Half of it asks
twice as often, double begins to read later."""

_TOUCH_LOST = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


class SharedConsumer:
    """A consumer that assigns partitions one by one, each with a `Buffer`."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        group: str | None = None,
        on_data_loss: OnDataLoss = "fail",
        look_every: float = 60.0,
    ) -> None:
        self._settings = settings
        self._group = group
        self._on_data_loss = on_data_loss
        self._buffers: dict[Part, Buffer] = {}
        self._to_commit: dict[Part, int] = {}
        self._told: dict[str, float] = {}
        self._has_lost_touch = False
        self._ids: dict[str, str] = {}
        self._users_on_error: Callable[[KafkaError], object] | None = settings.settings.get("error_cb")
        self._consumer: Consumer = settings.consumer(on_commit=self._on_commit, error_cb=self._on_error)
        self._watch = TopicWatch(settings, look_every)
        self._is_open = True

    def __contains__(self, part: Part) -> bool:
        return part in self._buffers

    @property
    def is_open(self) -> bool:
        """Whether the consumer can still be used."""
        return self._is_open

    def topic_id(self, topic: str) -> str:
        """Return the current id of a topic."""
        if topic not in self._ids:
            self._ids[topic] = describe_known(self._settings, [topic])[topic].id
        return self._ids[topic]

    def offsets(self, part: Part) -> tuple[int, int]:
        """Return the first offset of a partition, and the offset after the last record that may be read now."""
        place = TopicPartition(*part)
        found = self._asked(part, "offsets", lambda: self._consumer.get_watermark_offsets(place, REQUEST_SECONDS))
        if found is None:
            raise KafkaFailed(
                f"topic '{part[0]}' partition {part[1]}: {self._settings.servers} did not return its offsets"
            )
        return found

    def offset_at(self, part: Part, milliseconds: int) -> int:
        """Return the offset of the first record at or after a time; the end offset if there is no such record."""
        offset = self._asked(part, "offset at a time", lambda: self._ask_for_time(part, milliseconds))
        return offset if offset >= 0 else self.offsets(part)[1]

    def _ask_for_time(self, part: Part, milliseconds: int) -> int:
        asked = [TopicPartition(*part, milliseconds)]
        [found] = self._consumer.offsets_for_times(asked, REQUEST_SECONDS)
        if found.error is not None:
            raise KafkaException(found.error)
        return int(found.offset)

    def _asked(self, part: Part, what: str, ask: Callable[[], R]) -> R:
        """Return an answer; ask again while a new partition is not known yet, or has no leader."""
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                return ask()
            except KafkaException as error:
                if error.args[0].code() not in MISSING | PASSING or time.monotonic() > deadline:
                    doing = f"asking for the {what} of topic '{part[0]}' partition {part[1]}"
                    raise self._settings.failed(doing, error) from None
            with suppress(KafkaException):  # the next answer names the error
                self._consumer.list_topics(part[0], REQUEST_SECONDS)
            time.sleep(_LOOK_AGAIN)

    def assign(self, part: Part, offset: int, mark: Mark | None = None) -> Buffer:
        """Begin to read a partition at an offset.

        Args:
            part: the partition.
            offset: the offset of the next record.
            mark: the mark of the record before (must still be there); None if unknown.
        """
        buffer = self._buffers[part] = Buffer(part, self.topic_id(part[0]), offset, mark)
        self._watch.watch(part[0])
        self._consumer.incremental_assign([_place_of(buffer, buffer.doubt())])
        return buffer

    def unassign(self, part: Part) -> None:
        """Stop reading a partition; close the consumer after the last one."""
        self._commit_now(wait=len(self._buffers) == 1)
        buffer = self._buffers.pop(part)
        if self._buffers:
            if buffer.paused:
                self._set_paused([buffer], paused=False)  # otherwise it still is when it is assigned again
            self._consumer.incremental_unassign([TopicPartition(*part)])
            return
        self._is_open = False
        self._consumer.close()

    def take(self, buffer: Buffer, limit: int) -> list[Message]:
        """Return up to `limit` messages of a partition without waiting.

        Raises:
            KafkaDataLost: if messages were lost and `on_data_loss` is ``"fail"``.
            KafkaFailed: if the partition cannot be read.
        """
        if len(buffer.messages) < limit and buffer.had_turn:
            self._fill(limit)
        buffer.had_turn = True
        if buffer.error is None and buffer.lost is None:
            return buffer.take(limit)
        if buffer.messages:
            return buffer.take(limit)
        self._handle(buffer)
        return []

    def lag(self, buffer: Buffer) -> int | None:
        """Return the number of offsets after the last emitted record, as far as the client knows."""
        try:
            _low, high = self._consumer.get_watermark_offsets(TopicPartition(*buffer.part), cached=True)
        except (KafkaException, RuntimeError, TypeError):
            return None
        return max(0, high - buffer.next) if high >= 0 else None

    def commit(self, part: Part, offset: int) -> None:
        """Commit an offset for the group, for tools that show lag; asynchronously."""
        if self._group is not None:
            self._to_commit[part] = offset

    def lose(self, buffer: Buffer, wanted: int, reason: str) -> int:
        """Return the offset at which to continue.

        Raises:
            KafkaDataLost: if `on_data_loss` is ``"fail"``.
        """
        lost = KafkaDataLost(*buffer.part, wanted, self.offsets(buffer.part), reason)
        if self._on_data_loss == "fail":
            raise lost
        offset = lost.available[0 if self._on_data_loss == "earliest" else 1]
        LOG.warning(
            "topic '%s' partition %d: %s; expected offset %d, continuing at %d", *buffer.part, reason, wanted, offset
        )
        return offset

    def seek(self, buffer: Buffer, offset: int) -> None:
        """Continue at another offset."""
        buffer.go_to(offset)
        buffer.topic_id = self.topic_id(buffer.part[0])
        self._reassign(buffer, offset)

    def _reassign(self, buffer: Buffer, offset: int) -> None:
        if buffer.paused:
            self._set_paused([buffer], paused=False)
        self._consumer.incremental_unassign([TopicPartition(*buffer.part)])
        self._consumer.incremental_assign([_place_of(buffer, offset)])

    def _look_back(self) -> None:
        """Read the last record of each partition again: a broker that has come back may have lost it.

        Its log may have grown past the position, with other records, before the client reconnects.
        """
        self._has_lost_touch = False
        for buffer in self._buffers.values():
            if buffer.mark is not None and buffer.doubted is None:
                self._reassign(buffer, buffer.doubt())

    def _fill(self, limit: int) -> None:
        """Take messages from the client and pass them to their buffers."""
        buffers = self._buffers.values()
        for it in buffers:
            it.had_turn = False
        self._hear_of_topics()
        self._commit_now()
        if len(buffers) > 1 and not self._make_room():
            return
        most, size = limit * len(buffers), 0
        while most > 0 and size < _MOST_BYTES:
            wanted = min(most, _CHUNK)
            messages = self._consumer.consume(wanted, 0)
            if self._has_lost_touch:
                self._look_back()
                return
            if messages:
                self._deal(messages)
            if len(messages) < wanted:
                return
            most -= len(messages)
            size += sum(map(len, messages))

    def _make_room(self) -> bool:
        """Pause partitions that are full while others starve; return whether to take messages."""
        full = [it for it in self._buffers.values() if it.is_full and not it.paused]
        ready = [it for it in self._buffers.values() if it.paused and len(it.messages) < _CHUNK]
        if ready:
            self._set_paused(ready, paused=False)
        if not full:
            return True
        if not any(it.starves for it in self._buffers.values()):
            return False
        self._set_paused(full, paused=True)
        return True

    def _set_paused(self, buffers: Sequence[Buffer], *, paused: bool) -> None:
        for buffer in buffers:
            buffer.paused = paused
        (self._consumer.pause if paused else self._consumer.resume)([TopicPartition(*it.part) for it in buffers])

    def _deal(self, messages: list[Message]) -> None:
        is_good = not any(map(Message.error, messages))
        if is_good and len(self._buffers) == 1:
            next(iter(self._buffers.values())).add(messages)
            return
        for (topic, partition), run in groupby(messages, _place):
            buffer = self._buffers.get((topic, partition))  # type: ignore[arg-type] # a message without one has an error
            if is_good and buffer is not None:
                buffer.add(list(run))
                continue
            for message in run:
                self._deal_one(buffer, message)

    def _deal_one(self, buffer: Buffer | None, message: Message) -> None:
        error = message.error()
        if buffer is None:
            if error is not None:
                self._on_error(error)
        elif error is None:
            buffer.add([message])
        elif error.code() == KafkaError._PARTITION_EOF:
            buffer.reach_end(message.offset() or 0)
        elif error.code() in PASSING:
            self._on_error(error)
        elif error.code() in MISSING:
            self._on_error(error)
            self._watch.hurry()
        else:
            buffer.error = error

    def _handle(self, buffer: Buffer) -> None:
        """Raise the error that stopped a partition, or continue according to `on_data_loss`."""
        error, reason = buffer.error, buffer.lost
        if reason is None and error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            doubted = buffer.doubted
            if doubted is not None and self.offsets(buffer.part)[0] > doubted.offset:  # removed by retention
                buffer.trust()
                self._reassign(buffer, buffer.next)
                return
            reason = _reason(buffer.next, self.offsets(buffer.part))
        if reason is None:
            topic, partition = buffer.part
            assert error is not None  # noqa: S101 - one of them is set
            raise self._settings.failed(f"reading topic '{topic}' partition {partition} at offset {buffer.next}", error)
        self.seek(buffer, self.lose(buffer, buffer.next, reason))

    def _hear_of_topics(self) -> None:
        for topic, now in self._watch.news().items():
            concerned = [it for it in self._buffers.values() if it.part[0] == topic]
            if now is None:
                if self._on_data_loss == "fail" and concerned:
                    raise KafkaFailed(
                        f"topic '{topic}' was deleted on {self._settings.servers} while partition "
                        f"{concerned[0].part[1]} was read up to offset {concerned[0].next}"
                    )
                self._tell(f"topic '{topic}' no longer exists")
                continue
            self._ids[topic] = now.id
            for buffer in concerned:
                if buffer.topic_id != now.id and buffer.part[1] in now.partitions:
                    buffer.lost = f"the topic was deleted and recreated (its id is {now.id}, it was {buffer.topic_id})"

    def _commit_now(self, *, wait: bool = False) -> None:
        if not self._to_commit:
            return
        offsets = [TopicPartition(*part, offset) for part, offset in self._to_commit.items()]
        self._to_commit = {}
        try:
            if wait:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            else:
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except (KafkaException, RuntimeError) as error:
            self._tell(f"offsets of group '{self._group}' were not committed: {self._settings.text(error)}")

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        failed = error or next((it.error for it in offsets if it.error is not None), None)
        if failed is not None:
            self._tell(f"offsets of group '{self._group}' were not committed: {self._settings.text(failed)}")

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in _TOUCH_LOST:
            self._has_lost_touch = True
        self._tell(self._settings.text(error))
        if self._users_on_error is not None:
            self._users_on_error(error)

    def _tell(self, what: str) -> None:
        """Log a message, at a limited rate."""
        now = time.monotonic()
        if now - self._told.get(what, -REPEATED_EVERY) >= REPEATED_EVERY:
            self._told[what] = now
            LOG.warning("%s: %s", self._settings.servers, what)


def _place(message: Message) -> tuple[str | None, int | None]:
    return message.topic(), message.partition()


def _place_of(buffer: Buffer, offset: int) -> TopicPartition:
    """Return the position to read at; the broker refuses it if its log has another history."""
    mark = buffer.mark
    if mark is None or mark.epoch < 0:
        return TopicPartition(*buffer.part, offset)
    return TopicPartition(*buffer.part, offset, leader_epoch=mark.epoch)


def _reason(wanted: int, available: tuple[int, int]) -> str:
    low, high = available
    if wanted < low:
        return "records were deleted before they were read"
    if wanted > high:
        return "it ends before the position"
    return ANOTHER_HISTORY

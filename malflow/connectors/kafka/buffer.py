"""Messages of one partition that are not yet emitted, and the mark that reveals a log restored from an older copy."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from confluent_kafka import KafkaError, Message

__all__ = ["ANOTHER_HISTORY", "Buffer", "Mark", "Part"]

Part: TypeAlias = tuple[str, int]
"""A topic and the number of a partition."""

ANOTHER_HISTORY = (
    "it has other records than those that were read: the broker lost the end of its log, or was restored from an older "
    "copy, and new records were written since"
)

_FULL_MESSAGES = 16_384
"""The most messages in a buffer: some sixteen chunks of a poll. Half of it pauses the partition sooner, double takes
twice the memory."""

_FULL_BYTES = 32 << 20
"""The most bytes in a buffer, for large messages: each partition may take 32 MB. Half of it saves memory with many
partitions, double suits few partitions with large records."""

_DIGEST_BYTES = 8
"""The bytes of a digest in a mark: by chance, one of 2 ** 64 other records has the same. It is part of positions in
snapshots, so it can't change."""


class Mark(NamedTuple):
    """The identity of a record, to recognize another record that later has the same offset.

    Attributes:
        offset: its offset.
        epoch: the epoch of the leader that wrote it; -1 if unknown.
        time: its time in milliseconds.
        digest: the digest of its key and value.
    """

    offset: int
    epoch: int
    time: int
    digest: bytes

    @classmethod
    def of(cls, message: Message) -> Mark:
        """Return the mark of a record."""
        digest = blake2b(digest_size=_DIGEST_BYTES)
        for part in (message.key(), message.value()):
            raw = part.encode() if isinstance(part, str) else part
            digest.update(b"-" if raw is None else b"%d:" % len(raw))
            digest.update(raw or b"")
        epoch = message.leader_epoch()
        return cls(_offset(message), -1 if epoch is None else epoch, message.timestamp()[1], digest.digest())


class Buffer:
    """The messages of one partition that have been read and not yet emitted.

    Attributes:
        part: the partition.
        topic_id: the id of its topic.
        next: the offset after the last message taken, or after the gap that followed it up to the end.
        messages: the waiting messages.
        seen: the last message that was emitted.
        doubted: the mark of that message, while it is read again to be compared.
        lost: how messages were lost; None if nothing was lost.
    """

    def __init__(self, part: Part, topic_id: str, offset: int, mark: Mark | None) -> None:
        self.part = part
        self.topic_id = topic_id
        self.messages: deque[Message] = deque()
        self.error: KafkaError | None = None
        self.lost: str | None = None
        self.paused = False
        self.had_turn = True
        self.seen: Message | None = None
        self.doubted: Mark | None = None
        self.go_to(offset)
        self._mark = mark

    @property
    def mark(self) -> Mark | None:
        """The mark of the last record; None if nothing was read."""
        if self.seen is not None:
            self._mark, self.seen = Mark.of(self.seen), None
        return self._mark

    def go_to(self, offset: int) -> None:
        """Drop all records, waiting and read, and continue at an offset."""
        self.seen = self._mark = None
        self._forget(offset)

    def doubt(self) -> int:
        """Drop the waiting records; return the offset of the last record. It is read again and compared."""
        self._forget(self.next)
        self.doubted = self.mark
        return self.next if self.doubted is None else self.doubted.offset

    def trust(self) -> None:
        """Continue without a comparison: the last record can no longer be read."""
        self._forget(self.next)

    def _forget(self, offset: int) -> None:
        self.next = self._expected = self._end = offset
        self.doubted = None
        self._bytes = 0
        self.messages.clear()
        self.error = self.lost = None

    @property
    def is_full(self) -> bool:
        """Whether the buffer must not grow further."""
        return len(self.messages) >= _FULL_MESSAGES or self._bytes >= _FULL_BYTES

    @property
    def starves(self) -> bool:
        """Whether the buffer is empty although the end of the partition was not reached."""
        return not self.messages and self._end < self._expected

    def add(self, messages: list[Message]) -> None:
        """Append messages; drop those from before a seek."""
        if self.doubted is not None:
            self._compare(self.doubted, messages)
        if self.lost is not None:
            return
        if _offset(messages[0]) < self._expected:
            messages = [it for it in messages if _offset(it) >= self._expected]
        if not messages:
            return
        self.messages.extend(messages)
        self._bytes += sum(map(len, messages))
        self._expected = _offset(messages[-1]) + 1

    def reach_end(self, offset: int) -> None:
        """Note that all messages before an offset have been added."""
        if self.doubted is not None:
            self.doubted = None
            if offset < self._expected:
                self.lost = "it ends before the position"
        if offset >= self._expected:
            self._expected = self._end = offset

    def _compare(self, doubted: Mark, messages: list[Message]) -> None:
        """Compare the record at the mark's offset; if it was compacted away, it can't be compared."""
        found = next((it for it in messages if _offset(it) >= doubted.offset), None)
        if found is None:
            return
        self.doubted = None
        if _offset(found) == doubted.offset and Mark.of(found) != doubted:
            self.lost = ANOTHER_HISTORY

    def take(self, limit: int) -> list[Message]:
        """Remove and return up to `limit` messages."""
        waiting = self.messages
        if len(waiting) <= limit:
            taken = list(waiting)
            waiting.clear()
            self._bytes = 0
        else:
            taken = [waiting.popleft() for _ in range(limit)]
            self._bytes -= sum(map(len, taken))
        if taken:
            self.next = _offset(taken[-1]) + 1
        if not waiting:
            self.next = max(self.next, self._end)
        return taken


def _offset(message: Message) -> int:
    return message.offset() or 0  # only an unsent message has no offset

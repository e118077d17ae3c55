"""A reader of one stream, and its entries as records; each read shows whether entries were lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias

import redis

from malflow.connectors.codecs.contract import CodecUnavailable, Decoder
from malflow.connectors.options import Handling, keeps_rejected
from malflow.connectors.redis.connection import BadStreamEntry, RedisDataLost, RedisServer
from malflow.failures import OnError as Policy
from malflow.sources.contract import Rejected, StatefulSourcePartition
from malflow.words import error_line, plural, short_repr

__all__ = [
    "Entry",
    "EntryDecoder",
    "OnDataLoss",
    "OnError",
    "Position",
    "StreamReader",
    "entries_of",
    "streams_of",
]

Entry: TypeAlias = tuple[bytes, Mapping[bytes, bytes]]
"""An entry as the client returns it: its id and its fields."""

Pairs: TypeAlias = list[list[bytes]]
"""The fields of an entry that has some of them twice, as a letter keeps them."""

OnError: TypeAlias = Literal["fail", "skip", "dead_letter"] | Callable[[BadStreamEntry], Any] | Policy


class FieldsTwice(dict[bytes, bytes]):
    """The fields of an entry in which some come twice: the last of each name.

    Attributes:
        pairs: all of them.
    """

    def __init__(self, pairs: Pairs) -> None:
        super().__init__((name, value) for name, value in pairs)
        self.pairs = pairs

    def __reduce__(self) -> tuple[Any, ...]:
        return FieldsTwice, (self.pairs,)

    def check_once(self, field: str | None) -> None:
        """Check that a field comes once; all of them for None.

        Raises:
            ValueError: if it does not.
        """
        names = [name for name, _ in self.pairs if field is None or name == field.encode()]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            values = [value for name, value in self.pairs if name == twice]
            raise ValueError(f"its field {twice!r} comes {plural(len(values), 'time')}, with {short_repr(values)}")


def entries_of(reply: Any) -> list[Entry] | None:
    """Return the entries of a reply of the server, as `XRANGE` has them."""
    return None if reply is None else [(number, _fields(flat)) for number, flat in reply]


def streams_of(reply: Any) -> list[tuple[bytes, list[Entry] | None]]:
    """Return the entries by stream of a reply to `XREAD`."""
    return [(stream, entries_of(entries)) for stream, entries in reply or ()]


def _fields(flat: Sequence[bytes]) -> Mapping[bytes, bytes]:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    if 2 * len(fields) == len(flat):
        return fields
    return FieldsTwice([list(pair) for pair in zip(flat[::2], flat[1::2], strict=True)])


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EntryDecoder:
    """Decode entries to records.

    Attributes:
        field: the field that is the record; None for all of them.
        decoder: decodes fields.
        on_error: how an entry that can't be decoded is handled.
        as_datetime: whether timestamps are datetimes, not milliseconds.
    """

    field: str | None
    decoder: Decoder[Any]
    on_error: Handling
    as_datetime: bool

    def decode(self, stream: str, entries: Sequence[Entry], rejected: list[Rejected]) -> tuple[list[Any], list[Any]]:
        """Return the values and timestamps of entries, without those that are skipped.

        Args:
            stream: the key of the stream.
            entries: the entries.
            rejected: receives the entries that can't be decoded, if they are kept.

        Raises:
            BadStreamEntry: if one can't be decoded, and `on_error` is ``"fail"``.
        """
        try:
            return self._column([fields for _, fields in entries]), self._times(entries)
        except CodecUnavailable:
            raise
        except Exception:  # noqa: BLE001 - which entry it is shows when they are decoded one by one
            return self._one_by_one(stream, entries, rejected)

    def read_again(self, fields: Mapping[bytes, bytes] | Pairs) -> Any:
        """Return the value of the fields of an entry that could not be decoded before."""
        return self._column([fields if isinstance(fields, Mapping) else FieldsTwice(fields)])[0]

    def _column(self, column: Sequence[Mapping[bytes, bytes]]) -> list[Any]:
        if FieldsTwice in map(type, column):
            for fields in column:
                if isinstance(fields, FieldsTwice):
                    fields.check_once(self.field)
        if self.field is not None:
            name = self.field.encode()
            return list(self.decoder.decode_column([fields[name] for fields in column]))
        decode = self.decoder.decode
        return [{name.decode(): decode(value) for name, value in fields.items()} for fields in column]

    def _one_by_one(
        self, stream: str, entries: Sequence[Entry], rejected: list[Rejected]
    ) -> tuple[list[Any], list[Any]]:
        values: list[Any] = []
        times: list[Any] = []
        for entry in entries:
            try:
                [value], [time] = self._column([entry[1]]), self._times([entry])
            except CodecUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - whatever the decoder raises, the entry has no value
                value = self._instead(stream, entry, error, rejected)
                if value is None:
                    continue
                time = self._nearest_time(entry)
            values.append(value)
            times.append(time)
        return values, times

    def _nearest_time(self, entry: Entry) -> Any:
        try:
            return self._times([entry])[0]
        except OverflowError:
            return _LATEST

    def _instead(self, stream: str, entry: Entry, error: Exception, rejected: list[Rejected]) -> Any:
        number, fields = entry
        lacks = self.field is not None and self.field.encode() not in fields
        reason = f"it has no field '{self.field}'" if lacks else error_line(error)
        bad = BadStreamEntry(stream, number.decode(), dict(fields), reason)
        if self.on_error == "fail":
            raise bad from error
        if callable(self.on_error):
            return self.on_error(bad)
        if keeps_rejected(self.on_error):
            place = f"stream '{stream}' entry {bad.id}"
            raw = fields.pairs if isinstance(fields, FieldsTwice) else bad.fields
            rejected.append(Rejected(raw, self._nearest_time(entry), place, type(bad).__name__, bad.reason))
        return None

    def _times(self, entries: Sequence[Entry]) -> list[Any]:
        milliseconds = [int(number.partition(b"-")[0]) for number, _ in entries]
        if not self.as_datetime:
            return milliseconds
        return [_EPOCH + timedelta(milliseconds=it) for it in milliseconds]


Position: TypeAlias = tuple[Any, ...]
"""The id of the last entry read, the number of entries ever added up to it, if known, and a digest of that entry. The
digest is missing before the first entry, and in positions of older versions."""

OnDataLoss: TypeAlias = Literal["fail", "earliest", "latest"]

_LOG = logging.getLogger("malflow")
_DIGEST = 2
"""The index of the digest in a position."""
_DIGEST_BYTES = 8
"""The bytes of a digest in a position: by chance, one of 2 ** 64 other entries has the same. It is part of snapshots,
so it can't change."""

_LAST_IN_MILLISECOND = 2**64 - 1
"""The greatest number of an entry within a millisecond: both parts of an id have 64 bits."""


class _Id(NamedTuple):
    milliseconds: int
    number: int

    @classmethod
    def of(cls, text: str | bytes) -> _Id:
        milliseconds, _, number = (text.decode() if isinstance(text, bytes) else text).partition("-")
        return cls(int(milliseconds), int(number or 0))

    def __str__(self) -> str:
        return f"{self.milliseconds}-{self.number}"


_ZERO = _Id(0, 0)


class _Look(NamedTuple):
    """The state of a stream at a moment.

    Attributes:
        added: the number of entries that were ever added.
        gone: the number of entries that no longer exist.
        first: the id of its first entry; None if it is empty.
        last: the highest id that it ever had.
        entries: the entries after the position.
        present: the entry at the position; None if it no longer exists.
    """

    added: int
    gone: int
    first: _Id | None
    last: _Id
    entries: Sequence[Entry]
    present: Entry | None = None


class StreamReader(StatefulSourcePartition[Any, Any, Position]):
    """The reader of one stream.

    Args:
        stream: the key of the stream.
        server: the server.
        decoder: decodes entries to records.
        on_data_loss: where to continue if entries are lost, or to fail.
    """

    def __init__(self, stream: str, server: RedisServer, decoder: EntryDecoder, on_data_loss: OnDataLoss) -> None:
        self._stream = stream
        self._server = server
        self._decoder = decoder
        self._on_data_loss = on_data_loss
        self._client = server.client()
        self._client.set_response_callback("XREAD", lambda reply, **_: streams_of(reply))
        self._client.set_response_callback("XRANGE", lambda reply, **_: entries_of(reply))
        self._at = _ZERO
        self._count: int | None = 0
        self._last: Entry | None = None
        self._digest: bytes | None = None
        self._stop: _Id | None = None
        self._finished = False
        self._rejected: list[Rejected] = []
        self._added: int | None = None
        self._unreachable_since: float | None = None
        self._next_try = 0.0

    def begin(self, position: Position | None, start: Literal["earliest", "latest"] | datetime, *, stops: bool) -> None:
        """Seek to a position, or to the start of a new job; if the reader stops at the latest entry, note that entry.

        Raises:
            RedisFailed: if the server can't be reached, or is too old.
        """
        if position is not None:
            self._go_to(position)
            if not stops:
                return
        look = self._server.retry(lambda: self._look(1), f"looking at stream '{self._stream}'")
        if position is None:
            self._at, self._count = _beginning(look, start)
        if stops:
            self._stop = look.last
            self._finished = self._at >= look.last

    def poll(self) -> tuple[Any, Any] | None:
        """Return the next record."""
        while not self._finished:
            before = self._at
            values, timestamps = self.poll_batch(1)
            if values:
                return values[0], timestamps[0]
            if self._at == before:
                return None
        return None

    def poll_batch(self, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the records of the next entries, up to `limit`; nothing while the server can't be reached.

        Raises:
            RedisDataLost: if entries were lost before they were read.
            RedisFailed: if the server can't be reached for too long, or refuses.
            BadStreamEntry: if an entry can't be decoded, and `on_error` is ``"fail"``.
        """
        if self._unreachable_since is not None and time.monotonic() < self._next_try:
            return (), ()
        try:
            look = self._look(limit)
        except redis.RedisError as error:
            self._wait(error)
            return (), ()
        self._unreachable_since = None
        lost = self._lost(look)
        if lost is not None:
            return self._go_on(look, lost)
        return self._take(look, limit)

    def take_rejected(self) -> Sequence[Rejected]:
        """Return the entries that could not be decoded since the last call."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def is_finished(self) -> bool:
        """Whether the reader has reached the entry that was the last when the run started."""
        return self._finished

    def snapshot(self) -> Position:
        """Return the position after the last record returned."""
        if self._last is not None:
            self._digest, self._last = _digest(self._last), None
        return str(self._at), self._count, *(() if self._digest is None else (self._digest,))

    def go_on_from(self, position: Position) -> bool:
        """Continue from a position that another reader of the stream has reached, on the same connection."""
        self._go_to(position)
        self._finished = self._stop is not None and self._at >= self._stop
        return True

    def lag(self) -> int | None:
        """Return the number of entries after the position, as of the last look at the stream."""
        if self._added is None or self._count is None:
            return None
        return max(0, self._added - self._count)

    def suspend(self) -> None:
        """Close the connection."""
        self._client.close()

    def _go_to(self, position: Position) -> None:
        self._at, self._count = _Id.of(position[0]), position[1]
        self._last, self._digest = None, position[2] if len(position) > _DIGEST else None

    def _look(self, limit: int) -> _Look:
        with self._client.pipeline(transaction=True) as pipe:
            queue: Callable[..., Any] = pipe.execute_command  # has no types
            queue("XINFO STREAM", self._stream)
            queue("XREAD", "COUNT", limit, "STREAMS", self._stream, str(self._at))
            queue("XRANGE", self._stream, str(self._at), str(self._at))
            info, read, present = pipe.execute(raise_on_error=False)
        if isinstance(read, Exception):
            raise read
        if isinstance(info, Exception):
            if "no such key" in str(info):
                return _Look(0, 0, None, _ZERO, ())
            raise info
        if "entries-added" not in info:
            raise redis.ResponseError("XINFO STREAM has no 'entries-added': the server must be Redis 7.0 or newer")
        return _look_of(info, read[0][1] if read else ())._replace(present=present[0] if present else None)

    def _wait(self, error: redis.RedisError) -> None:
        now = time.monotonic()
        since = self._unreachable_since if self._unreachable_since is not None else now
        if not self._server.is_lost(error) or now - since > self._server.retry_for:
            raise self._server.failure(f"reading stream '{self._stream}'", error) from None
        self._unreachable_since = since
        self._next_try = now + min(1.0, 0.02 + (now - since) / 2)

    def _lost(self, look: _Look) -> str | None:
        """Return how entries were lost; None if nothing was lost."""
        read = None if self._count is None else self._count + len(look.entries)
        is_entry = self._at.number != _LAST_IN_MILLISECOND  # not a time, which may be in the future
        if (is_entry and look.last < self._at) or (read is not None and look.added < read):
            return "it was deleted and recreated, or the server has lost writes"
        if look.present is not None and self._has_changed(look.present):
            return "its entry differs from the one that was read: it was deleted and recreated, or the server restored"
        behind_gap = look.first is None or look.first > self._at
        if behind_gap and look.gone > 0 and (self._count is None or look.gone > self._count):
            unread = "" if self._count is None else f"{look.gone - self._count} "
            return f"{unread}entries were trimmed before they were read"
        return None

    def _has_changed(self, present: Entry) -> bool:
        """Whether the entry at the position differs from the one that was read."""
        if self._last is not None:
            return present[1] != self._last[1]
        return self._digest is not None and _digest(present) != self._digest

    def _go_on(self, look: _Look, lost: str) -> tuple[Sequence[Any], Sequence[Any]]:
        """Seek to the entry at which reading continues after a loss; return nothing until the next look."""
        there = f"its entries are {look.first} to {look.last}" if look.first else "it has no entries"
        text = f"stream '{self._stream}' at {self._server!r}: {lost}; the position is {self._at}, and {there}"
        if self._on_data_loss == "fail":
            raise RedisDataLost(f"{text}; to continue without what is lost, pass on_data_loss='earliest' or 'latest'")
        _LOG.warning("%s; reading continues at the %s", text, self._on_data_loss)
        self._at, self._count = _beginning(look, self._on_data_loss)
        self._last = self._digest = None
        return (), ()

    def _take(self, look: _Look, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        entries = look.entries
        if self._stop is not None and entries and _Id.of(entries[-1][0]) >= self._stop:
            entries = [entry for entry in entries if _Id.of(entry[0]) <= self._stop]
            self._finished = True
        values, timestamps = self._decoder.decode(self._stream, entries, self._rejected) if entries else ((), ())
        if entries:
            self._at, self._last = _Id.of(entries[-1][0]), entries[-1]
        if len(look.entries) < limit:
            self._count = look.added - (len(look.entries) - len(entries))
            self._finished = self._stop is not None
        elif self._count is not None:
            self._count += len(entries)
        self._added = look.added
        return values, timestamps


def _digest(entry: Entry) -> bytes:
    """Return a digest of an entry's fields, to recognize another entry with the same id."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in (part for pair in entry[1].items() for part in pair):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


def _look_of(info: Mapping[str, Any], entries: Sequence[Entry]) -> _Look:
    added, length = int(info["entries-added"]), int(info["length"])
    first = info["first-entry"]
    last = _Id.of(info["last-generated-id"])
    return _Look(added, added - length, _Id.of(first[0]) if first else None, last, entries)


def _beginning(look: _Look, start: Literal["earliest", "latest"] | datetime) -> tuple[_Id, int | None]:
    """Return the id after which to begin, and the number of entries up to it."""
    if start == "earliest":
        return _ZERO, look.gone
    if start == "latest":
        return look.last, look.added
    milliseconds = (start - _EPOCH) // timedelta(milliseconds=1)
    at = _Id(max(0, milliseconds - 1), _LAST_IN_MILLISECOND) if milliseconds > 0 else _ZERO
    if look.first is None or at >= look.last:
        return at, look.added
    return at, look.gone if at < look.first else None

"""Entries of a stream as records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

from malflow.connectors.codecs.contract import CodecUnavailable, Decoder
from malflow.connectors.redis.errors import BadStreamEntry
from malflow.connectors.rejecting import Handling, keeps_rejected
from malflow.failures import OnError as Policy
from malflow.sources.contract import Rejected
from malflow.words import error_line, plural, short_repr

__all__ = ["Entry", "EntryDecoder", "OnError", "entries_of", "streams_of"]

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

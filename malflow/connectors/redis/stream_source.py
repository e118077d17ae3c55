"""A source that reads streams of Redis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from malflow.checks import check_choice, checked_names
from malflow.connectors.codecs.plain import Decode, decoder_of
from malflow.connectors.options import Handling, RejectingSource, check_start
from malflow.connectors.redis.connection import RedisServer
from malflow.connectors.redis.stream import EntryDecoder, OnDataLoss, OnError, Position, StreamReader
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.sources.contract import StatefulSourceImpl
from malflow.words import short_repr

__all__ = ["RedisStreamSource"]

Start: TypeAlias = Literal["earliest", "latest"] | datetime


class RedisStreamSource(RejectingSource, StatefulSourceImpl[str, Any, Any, Position]):
    """Read streams of Redis by position, without a consumer group; each stream is a part, and the key of its records.

    Nothing is written to Redis. The position is the id of the last entry and the number of entries added up to it. The
    source thus notices if unread entries were trimmed. Entries that are deleted one by one (``XDEL``) are skipped.
    Needs Redis 7.0, or Valkey.

    Args:
        url: ``redis://host:6379/0``, ``rediss://`` for TLS.
        streams: the key of a stream, or of several. A stream that does not exist counts as empty.
        field: the field that holds the record; by default the record is a dict of all fields by name.
        decode: the decoder of fields: ``"text"``, ``"bytes"``, ``"json"``, a `Decoder`, or a function.
        start: where streams begin when the job first starts: ``"earliest"``, ``"latest"``, or at a time (aware).
        stop: ``"latest"`` ends each stream at its last entry at the start of the run; None never ends.
        timestamps: the form of the times in ids: ``"milliseconds"`` since 1970, or ``"datetime"`` in UTC.
        on_error: how to handle an entry that cannot be decoded: ``"fail"`` with a `BadStreamEntry`, ``"skip"``,
            ``"dead_letter"`` to keep its fields, or call a function with it and emit the result, unless it is None; or
            an `OnError` with one of these words and more options.
        on_data_loss: what to do if entries were trimmed before they were read, or the stream was recreated: ``"fail"``
            with `RedisDataLost`, or continue at the ``"earliest"`` or ``"latest"`` entry with a warning.
        retry_for: how long to wait for an unreachable server.
        settings: arguments of `redis.Redis`, such as ``ssl_ca_certs``. Never shown.

    Raises:
        GraphError: if an argument is invalid, or a setting conflicts with one that malflow depends on.

    >>> RedisStreamSource("redis://:secret@localhost:6379/0", "orders", field="order", decode="json")
    RedisStreamSource('orders' at localhost:6379/0)
    """

    def __init__(
        self,
        url: str,
        streams: str | Iterable[str],
        *,
        field: str | None = None,
        decode: Decode = "text",
        start: Start = "earliest",
        stop: Literal["latest"] | None = None,
        timestamps: Literal["milliseconds", "datetime"] = "milliseconds",
        on_error: OnError = "fail",
        on_data_loss: OnDataLoss = "fail",
        retry_for: Duration = timedelta(minutes=1),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        me = "RedisStreamSource"
        check_choice(me, "stop", stop, ("latest", None))
        check_choice(me, "timestamps", timestamps, ("milliseconds", "datetime"))
        check_choice(me, "on_data_loss", on_data_loss, ("fail", "earliest", "latest"))
        check_start(me, start)
        handling = self.set_policy(me, on_error)
        if not isinstance(field, str | None):
            raise GraphError(f"{me} field must be the name of a field; got {short_repr(field)}")
        self._streams = list(checked_names(me, "streams", [streams] if isinstance(streams, str) else streams))
        if not self._streams:
            raise GraphError(f"{me} needs the keys of streams; got streams=[]")
        self._server = RedisServer(url, settings, retry_for, me)
        self._decoder = EntryDecoder(field, decoder_of(decode, me), handling, as_datetime=timestamps == "datetime")
        self._start, self._stop, self._on_data_loss = start, stop, on_data_loss

    def list_parts(self) -> list[str]:
        """Return the streams."""
        return self._streams

    def build_part(self, part: str, state: Position | None) -> StreamReader:
        """Return a reader of a stream. It starts at the position, or according to `start`.

        Raises:
            RedisFailed: if the server can't be reached for longer than `retry_for`, or is too old.
        """
        reader = StreamReader(part, self._server, self._decoder, self._on_data_loss)
        reader.begin(state, self._start, stops=self._stop is not None)
        return reader

    def read_again(self, part: str, raw: Mapping[bytes, bytes]) -> Any:
        """Decode the fields of a dead letter again; errors of the decoder are raised unchanged."""
        del part
        return self._decoder.read_again(raw)

    def handle(self, handling: Handling) -> None:
        """Set how readers handle an entry that they can't decode."""
        self._decoder = replace(self._decoder, on_error=handling)

    def __repr__(self) -> str:
        return f"RedisStreamSource({', '.join(map(repr, self._streams))} at {self._server!r})"

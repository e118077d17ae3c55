"""A logical replication connection that never blocks, and the messages of `pgoutput`, protocol 1."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, TypeAlias

import psycopg
from psycopg import pq

from malflow.connectors.postgres.adapters import READING
from malflow.connectors.postgres.connection import PostgresError, PostgresServer
from malflow.connectors.postgres.identifiers import shown_name
from malflow.connectors.remote import ServerSilent
from malflow.connectors.tables.change import UNCHANGED, KeyOnly

__all__ = [
    "Relation",
    "ReplicationStream",
    "Timeline",
    "create_slot",
    "lsn_number",
    "lsn_text",
    "postgres_time",
    "read_relation",
    "timelines",
]

Loader: TypeAlias = Callable[[bytes], Any]

_NULL, _TEXT = b"nt"
_INT = Struct(">i").unpack_from
_SHORT = Struct(">H").unpack_from

_FAST: dict[int, Loader] = {
    16: b"t".__eq__,
    20: int,
    21: int,
    23: int,
    25: bytes.decode,
    26: int,
    700: float,
    701: float,
    1042: bytes.decode,
    1043: bytes.decode,
}
"""Loaders of frequent types that are faster than psycopg's and return the same."""


class Relation:
    """A table as the stream last described it; the stream describes it again after every change of its columns."""

    __slots__ = ("_keys", "_loaders", "_names", "_width", "is_wanted", "oid", "table")

    def __init__(
        self, oid: int, table: str, names: tuple[str, ...], keys: frozenset[str], loaders: list[Loader]
    ) -> None:
        self.oid, self.table = oid, table
        self.is_wanted = True
        self._names, self._keys, self._loaders = names, keys, loaders
        self._width = len(names).to_bytes(2, "big")

    def row(self, data: bytes, at: int) -> tuple[dict[str, Any], int]:
        """Return the row with a tuple at an offset, and the offset after it."""
        values: list[Any] = []
        add = values.append
        if data[at : at + 2] != self._width:
            raise PostgresError(
                f"table {self.table}: a row of the stream does not have the columns described before it"
            )
        at += 2
        try:
            for load in self._loaders:
                if data[at] == _TEXT:
                    begin = at + 5
                    at = begin + _INT(data, at + 1)[0]
                    add(load(data[begin:at]))
                else:
                    add(None if data[at] == _NULL else UNCHANGED)
                    at += 1
        except (ValueError, psycopg.Error, OverflowError) as error:
            raise self._undecodable(data[begin:at], self._names[len(values)], error) from error
        return dict(zip(self._names, values)), at  # noqa: B905 - the width was compared

    def old_row(self, data: bytes, at: int, kind: int) -> tuple[dict[str, Any], int]:
        """Return the old row of a change: only its key if `kind` is ``K``, all of it if ``O``."""
        row, at = self.row(data, at)
        if kind == ord("O"):
            return row, at
        return KeyOnly((name, value) for name, value in row.items() if name in self._keys), at

    def _undecodable(self, text: bytes, column: str, error: Exception) -> PostgresError:
        value = text.decode(errors="backslashreplace")
        return PostgresError(
            f"table {self.table}, column {column!r}: Python cannot represent {value[:200]!r} ({error}); "
            f"pass text=[{column!r}] to get the column as Postgres writes it"
        )


def read_relation(
    data: bytes, at: int, text: frozenset[str], bases: Callable[[Iterable[int]], Mapping[int, int]]
) -> Relation:
    """Return the relation that a message describes.

    Args:
        data: the message.
        at: the offset of the relation's oid.
        text: columns that stay as Postgres writes them.
        bases: returns the base types of domains, for those oids that psycopg does not know.
    """
    (oid,) = _INT(data, at)
    schema, name, rest = data[at + 4 :].split(b"\0", 2)
    at, names, keys, types = 3, [], [], []
    for _ in range(_SHORT(rest, 1)[0]):
        end = rest.index(b"\0", at + 1)
        column = rest[at + 1 : end].decode()
        names.append(column)
        if rest[at] & 1:
            keys.append(column)
        types.append(_INT(rest, end + 1)[0] & 0xFFFFFFFF)
        at = end + 9
    below = bases({kind for kind in types if psycopg.adapters.types.get(kind) is None})
    loaders = [
        bytes.decode if column in text else _loader(below.get(kind, kind))
        for column, kind in zip(names, types, strict=True)
    ]
    shown = shown_name(schema.decode() or "pg_catalog", name.decode())
    return Relation(oid, shown, tuple(names), frozenset(keys), loaders)


def _loader(oid: int) -> Loader:
    if oid in _FAST:
        return _FAST[oid]
    kind = READING.get_loader(oid, pq.Format.TEXT)
    return bytes.decode if kind is None else kind(oid, READING).load


def lsn_number(text: str) -> int:
    """Return a position in the server's log as a number.

    >>> lsn_number("16/B374D848")
    97500059720
    """
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(number: int) -> str:
    """Return a position in the server's log as Postgres writes it.

    >>> lsn_text(97500059720)
    '16/B374D848'
    """
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


Timeline: TypeAlias = tuple[int, int | None]
"""The number of a timeline, and the position at which the server's log left it; None for the current one."""

_DATA = ord("w")
_STATUS = Struct(">cqqqqb").pack
_KEEPALIVE = Struct(">qqb").unpack_from
_UNHEARD_MILLISECONDS = "30000"
"""How long the system tries to send a status message, a few bytes, before the connection counts as lost."""
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH_US = 946_684_800_000_000
"""The microseconds from 1970 to the beginning of 2000, where the times of Postgres begin."""

_STATUS_SECONDS = 2.0
"""How often a reader reports to the server, even in bursts: the server hangs up on a silent one (wal_sender_timeout).

More often if that timeout is short.
"""

_TIMEOUT = "select setting::float / 1000 from pg_settings where name = 'wal_sender_timeout'"

_BETWEEN_CLOCKS = 256
"""The number of messages between two looks at the clock."""


class ReplicationStream:
    """An open stream of a slot from a position. Only `confirm` reports positions to the server as durable.

    The starting position need not be durable: a reader that reconnects may be ahead of the last snapshot.

    Attributes:
        idle_at: the position up to which the server has sent everything, by its last keepalive; 0 before the first.
    """

    def __init__(self, server: PostgresServer, slot: str, start: int, publication: str) -> None:
        self._connection = server.connect(replication="database", tcp_user_timeout=_UNHEARD_MILLISECONDS)
        self._attention = server.attention()
        self._pg = self._connection.pgconn
        row = self._connection.execute(_TIMEOUT).fetchone()
        self._status_seconds = min(_STATUS_SECONDS, row[0] / 4) if row and row[0] else _STATUS_SECONDS
        self._confirmed = 0
        self.idle_at = 0
        self._next_status = 0.0
        self._until_clock = 0
        self._is_silent = False
        publications = _quoted(publication).replace("'", "''")
        options = f"(proto_version '1', publication_names '{publications}')"
        command = f"START_REPLICATION SLOT {_quoted(slot)} LOGICAL {lsn_text(start)} {options}"
        result = self._pg.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            self.close()
            raise _failure(result)
        self._pg.nonblocking = 1
        self._attention.heard()

    def receive(self) -> bytes | None:
        """Return the next message of the stream with its header of 25 bytes; None if there is none now.

        Raises:
            psycopg.OperationalError: if the connection is lost.
        """
        get = self._pg.get_copy_data
        looked = False
        while True:
            self._until_clock -= 1
            if self._until_clock < 0:
                self._look_at_clock()
            size, data = get(1)
            if size > 0:
                self._is_silent = False
                if data[0] == _DATA:
                    return bytes(data)
                end, _sent, wanted = _KEEPALIVE(data, 1)
                self.idle_at = end
                if wanted:
                    self._answer()
            elif size < 0:
                raise self._ended()
            elif looked:
                self._until_clock = 0
                self._check_silence()
                return None
            else:
                self._pg.consume_input()
                looked = True

    def confirm(self, lsn: int) -> None:
        """Confirm that everything before `lsn` is durable in a snapshot. The server may then remove it."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self._answer()

    def close(self) -> None:
        """Close the connection. Another one can then read the slot."""
        self._connection.close()

    def _check_silence(self) -> None:
        """Raise if the server has not answered the requests that it gets every two seconds."""
        if not self._is_silent:
            self._attention.heard()
            self._is_silent = True
            return
        try:
            self._attention.check()
        except ServerSilent as silent:
            raise psycopg.OperationalError(str(silent)) from None

    def _look_at_clock(self) -> None:
        self._until_clock = _BETWEEN_CLOCKS
        if time.monotonic() >= self._next_status:
            self._answer()

    def _answer(self) -> None:
        now = int(time.time() * 1_000_000) - _EPOCH_US
        written = max(self.idle_at, self._confirmed)  # lets the server shut down before anything is confirmed
        self._pg.put_copy_data(_STATUS(b"r", written, self._confirmed, self._confirmed, now, int(self._is_silent)))
        self._pg.flush()
        self._next_status = time.monotonic() + self._status_seconds

    def _ended(self) -> psycopg.Error:
        result = self._pg.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return _failure(result)
        return psycopg.OperationalError(self._pg.get_error_message() or "the server ended the stream")


def create_slot(connection: psycopg.Connection[tuple[object, ...]], slot: str) -> tuple[int, str]:
    """Create a slot on a replication connection; return the start of its stream and the name of a snapshot.

    The snapshot shows the database at the start of the stream. It is valid until the connection's next command, or its
    end.
    """
    command = f"CREATE_REPLICATION_SLOT {_quoted(slot)} LOGICAL pgoutput (SNAPSHOT 'export')"
    result = connection.pgconn.exec_(command.encode())
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise _failure(result)
    point, snapshot = result.get_value(0, 1), result.get_value(0, 2)
    return lsn_number((point or b"0/0").decode()), (snapshot or b"").decode()


def timelines(server: PostgresServer) -> list[Timeline]:
    """Return the timelines of the server's log, the current one last.

    A server begins a new timeline when it is promoted, or restored to a point in time.
    """
    with server.connect(replication="database") as connection:
        _system, now = _answer(connection, "IDENTIFY_SYSTEM")
        before = _answer(connection, f"TIMELINE_HISTORY {now}")[1] if int(now) > 1 else ""
    lines = [line.split("\t") for line in before.splitlines() if line.strip() and not line.startswith("#")]
    return [*((int(number), lsn_number(left)) for number, left, *_ in lines), (int(now), None)]


def _answer(connection: psycopg.Connection[tuple[object, ...]], command: str) -> tuple[str, str]:
    """Return the first two columns of the answer to a command of the replication protocol."""
    result = connection.pgconn.exec_(command.encode())
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise _failure(result)
    first, second = ((result.get_value(0, column) or b"").decode(errors="replace") for column in (0, 1))
    return first, second


def postgres_time(microseconds: int) -> datetime:
    """Convert a time of the protocol. It counts from the year 2000."""
    return _EPOCH + timedelta(microseconds=microseconds)


def _failure(result: pq.abc.PGresult) -> psycopg.Error:
    """Return the error of a result; without SQLSTATE it is libpq's own, and the connection is lost."""
    error = psycopg.errors.error_from_result(result, encoding="utf-8")
    return error if error.sqlstate else psycopg.OperationalError(str(error))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

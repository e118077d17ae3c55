"""A table or query as a source, read page by page in the order of a unique key."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias, cast

import psycopg
from psycopg import sql

from malflow.checks import check_function, check_name, check_whole_number, checked_names, checked_seconds
from malflow.connectors.postgres.connection import PostgresError, PostgresServer, close_after
from malflow.connectors.postgres.copy_text import fetched
from malflow.connectors.postgres.identifiers import Table, describe, identifiers, raw_sql, type_names
from malflow.connectors.remote import Background
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition
from malflow.words import short_repr

__all__ = ["PostgresSource"]

Position: TypeAlias = tuple[int, tuple[Any, ...]]
"""The number of rows read, and the key of the last one; an empty key at the beginning."""

Row: TypeAlias = tuple[Any, ...]
Connection: TypeAlias = psycopg.Connection[Row]

_NOT_AS_VALUES = frozenset({1186, 1266, 3802})
"""Types whose Python values are inexact, or written differently than read: interval, timetz, jsonb; text in a key."""

_LOG = logging.getLogger("malflow")
_PATIENCE = 5.0
"""Seconds for which `suspend` waits for a connection that is being made."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of `PostgresSource`. Picklable."""

    server: PostgresServer
    table: str | None
    query: str | None
    key: tuple[str, ...]
    columns: tuple[str, ...] | None
    row: Callable[..., Any]
    timestamp: str | None
    page_rows: int
    poll_every: float | None
    text: frozenset[str]


class PostgresSource(StatefulSourceImpl[str, Any, Any, Position]):
    """Emit the rows of a table or query in the order of a unique key, each with its index from 0 as timestamp.

    Pages are read by key (``where key > last order by key limit n``), each while the previous one is processed. The
    position is the last key. Rows that are changed, or inserted with a lower key, after the source has passed them are
    missed: use `PostgresChanges` for these.

    Args:
        dsn: a libpq connection string or URL; every setting of libpq is passed through.
        table: the table's name as in SQL; or pass `query`.
        query: a ``select`` without order and limit.
        key: the columns to order by: unique together and not NULL. Required with `query`; None: the primary key.
        columns: the columns of the table to read; None: all.
        text: columns to emit as Postgres writes them, such as dates that may be ``infinity``.
        row: the type of the values: ``dict``, ``tuple``, or a class or function that is called with the columns as
            keywords.
        timestamp: the column with the timestamp of a row; None: the index of the row.
        page_rows: the number of rows in a page.
        poll_every: how long to wait, once everything is read, before polling for higher keys; None: the source ends. A
            row that is committed late with a lower key is missed.
        retry_for: how long to retry a lost connection before the run fails.

    Raises:
        GraphError: if an argument is invalid.
    """

    keyed: ClassVar[bool] = False

    def __init__(
        self,
        dsn: str,
        table: str | None = None,
        *,
        query: str | None = None,
        key: Iterable[str] | None = None,
        columns: Iterable[str] | None = None,
        text: Iterable[str] = (),
        row: Callable[..., Any] = dict,
        timestamp: str | None = None,
        page_rows: int = 10_000,
        poll_every: Duration | None = None,
        retry_for: Duration = timedelta(minutes=1),
    ) -> None:
        me = "PostgresSource"
        check_name(me, "table", table, "the name of a table", optional=True)
        check_name(me, "query", query, "a select", optional=True)
        check_name(me, "timestamp", timestamp, "the name of a column", optional=True)
        if (table is None) == (query is None):
            raise GraphError(f"{me} needs either a table or query=...")
        keys = () if key is None else checked_names(me, "key", key, what="columns")
        chosen = None if columns is None else checked_names(me, "columns", columns, what="columns")
        check_whole_number(me, "page_rows", page_rows)
        check_function(me, "row", row)
        if query is not None and (not keys or chosen is not None):
            raise GraphError(f"{me} with a query needs key=[...], and its columns are named in the query")
        self._options = SourceOptions(
            PostgresServer(dsn, retry_for, me),
            table,
            query,
            keys,
            chosen,
            row,
            timestamp,
            page_rows,
            None if poll_every is None else checked_seconds(me, "poll_every", poll_every, or_else="None"),
            frozenset(checked_names(me, "text", text, what="columns")),
        )

    def list_parts(self) -> Sequence[str]:
        """Return the one part: the table, or the query."""
        return (self._options.table or "query",)

    def build_part(self, part: str, state: Position | None) -> SourcePartition:
        """Return the reader; it connects at the first poll."""
        del part
        return SourcePartition(self._options, state or (0, ()), time.monotonic)

    def __repr__(self) -> str:
        return f"PostgresSource({self._options.server!r}, {self._options.table or 'query'!r})"


@dataclass(slots=True)
class _Page:
    names: tuple[str, ...]
    rows: list[Row]
    last: bool


@dataclass(frozen=True, slots=True)
class _Statement:
    """The query and its columns; the columns of the key, their types as SQL, and whether each is read as text."""

    select: sql.Composable
    names: tuple[str, ...]
    text: frozenset[str]
    key: tuple[str, ...]
    casts: tuple[str, ...]
    as_text: tuple[bool, ...]
    may_repeat: bool

    def after(self, key: Row) -> sql.Composed:
        """Return the condition on rows that follow a key."""
        cells = [
            sql.SQL("({}::{})").format(sql.Literal(value), raw_sql(cast))
            for value, cast in zip(key, self.casts, strict=True)
        ]
        return sql.SQL("where row({}) > row({})").format(identifiers(self.key), sql.SQL(", ").join(cells))

    def cells(self) -> sql.Composed:
        """Return the columns, and then the key's columns, for the select list."""
        pairs = [(it, it in self.text) for it in self.names]
        pairs += [(it, text or it in self.text) for it, text in zip(self.key, self.as_text, strict=True)]
        return sql.SQL(", ").join(
            sql.SQL("{}::text" if text else "{}").format(sql.Identifier(it)) for it, text in pairs
        )

    def order(self) -> sql.Composed:
        """Return the columns of the key for ``order by``."""
        return sql.SQL(", ").join(sql.Identifier("source", name) for name in self.key)

    def lacks(self) -> sql.Composed:
        """Return the condition on rows with NULL in their key."""
        return sql.SQL(" or ").join(sql.SQL("{} is null").format(sql.Identifier(name)) for name in self.key)


class SourcePartition(StatefulSourcePartition[Any, Any, Position]):
    """The reader of a table or query."""

    def __init__(self, options: SourceOptions, position: Position, clock: Callable[[], float]) -> None:
        self._options, self._clock = options, clock
        self._index, self._key = position
        self._fetching: Background[_Page] | None = None
        self._page: _Page | None = None
        self._at = 0
        self._connection: Connection | None = None
        self._statement: _Statement | None = None
        self._not_before = float("-inf")
        self._lost_since: float | None = None
        self._finished = False
        self._looked_for_null = False

    def poll(self) -> tuple[Any, Any] | None:
        """Return the next row and its timestamp."""
        values, times = self.poll_batch(1)
        return (values[0], times[0]) if values else None

    def poll_batch(self, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the rows that have arrived, and their timestamps.

        Raises:
            PostgresError: if the query fails, or the server can't be reached for too long.
        """
        try:
            return self._poll(limit)
        except psycopg.Error as error:
            self.suspend()
            self._tolerate(error)
            return (), ()
        except BaseException:
            self.suspend()
            raise

    def is_finished(self) -> bool:
        """Whether all rows are read, and the source does not poll for more."""
        return self._finished

    def snapshot(self) -> Position:
        """Return the position after the last row returned."""
        return self._index, self._key

    def go_on_from(self, position: Position) -> bool:
        """Whether the reader is at this position."""
        return position == self.snapshot()

    def suspend(self) -> None:
        """Close the connection."""
        fetching, self._fetching = self._fetching, None
        self._page = None
        if fetching is not None and self._connection is None:
            fetching.join(_PATIENCE)  # it is connecting: the connection must be closed
        connection, self._connection = self._connection, None
        if connection is not None:
            close_after(fetching, connection)

    def _poll(self, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        if self._finished or (self._page is None and not self._fetched()):
            return (), ()
        page, at = cast("_Page", self._page), self._at
        rows = page.rows[at : at + limit]
        self._at += len(rows)
        values, times = self._values(page.names, rows), self._times(page.names, rows)
        if rows:
            self._index += len(rows)
            self._key = rows[-1][len(page.names) :]
        if self._at >= len(page.rows):
            self._page = None
            self._end_page(last=page.last)
        return values, times

    def _fetched(self) -> bool:
        if self._fetching is None:
            if self._clock() < self._not_before:
                return False
            self._fetch_after(self._key)
        if self._fetching is None or not self._fetching.done:
            return False
        self._page, self._at, self._fetching = self._fetching.result(), 0, None
        self._lost_since = None
        if not self._page.last:
            self._fetch_after(self._page.rows[-1][len(self._page.names) :])
        return True

    def _fetch_after(self, key: Row) -> None:
        self._fetching = Background(lambda: self._fetch(key))

    def _end_page(self, *, last: bool) -> None:
        if not last:
            return
        if self._options.poll_every is None:
            self._finished = True
            self.suspend()
        else:
            self._not_before = self._clock() + self._options.poll_every

    def _values(self, names: tuple[str, ...], rows: list[Row]) -> list[Any]:
        make, width = self._options.row, len(names)
        if make is tuple:
            return [row[:width] for row in rows]
        if make is dict:
            return [dict(zip(names, row, strict=False)) for row in rows]
        return [make(**dict(zip(names, row, strict=False))) for row in rows]

    def _times(self, names: tuple[str, ...], rows: list[Row]) -> Sequence[Any]:
        if self._options.timestamp is None:
            return range(self._index, self._index + len(rows))
        place = names.index(self._options.timestamp)
        return [row[place] for row in rows]

    def _fetch(self, after: Row) -> _Page:
        options = self._options
        if self._connection is None:
            self._connection = options.server.connect()
        if self._statement is None:
            self._statement = self._describe(self._connection)
        read = self._statement
        query = sql.SQL("select {} from ({}\n) as source {} order by {} limit {}")
        condition = read.after(after) if after else sql.SQL("")
        most = sql.Literal(options.page_rows + 1)
        statement = query.format(read.cells(), read.select, condition, read.order(), most)
        rows = fetched(self._connection.execute(statement), self._what, "pass text=[{column!r}]")
        last = len(rows) <= options.page_rows
        if read.may_repeat:
            self._check_keys([row[len(read.names) :] for row in rows], read, last=last)
        return _Page(read.names, rows[: options.page_rows], last=last)

    def _check_keys(self, keys: Sequence[Row], read: _Statement, *, last: bool) -> None:
        """Check that no row would be skipped because its key is NULL, or equal to the key before."""
        what = f"{self._what}: the key {', '.join(read.key)}"
        if any(None in key for key in keys) or (last and self._has_null(read)):
            raise PostgresError(f"{what} is NULL in a row; exclude such rows")
        twice = next((key for key, next_key in pairwise(keys) if key == next_key), None)
        if twice is not None:
            mend = "add columns that make it unique"
            if self._options.query is None:
                mend = "its inheritance children have keys of their own; pass query='select ... from only ...'"
            raise PostgresError(f"{what} is {short_repr(twice)} in two rows; {mend}")

    def _has_null(self, read: _Statement) -> bool:
        """Whether a row has NULL in its key, and is in no page; asked once, when all others are read."""
        if self._looked_for_null or self._connection is None:
            return False
        self._looked_for_null = True
        query = sql.SQL("select exists(select from ({}\n) as source where {})").format(read.select, read.lacks())
        return self._connection.execute(query).fetchone() == (True,)

    def _describe(self, connection: Connection) -> _Statement:
        options = self._options
        if options.query is not None:
            query = raw_sql(options.query.strip().rstrip(";"))
            found = connection.execute(sql.SQL("select * from ({}\n) as source limit 0").format(query)).description
            names = tuple(column.name for column in found or ())
            self._check(names, options.key)
            oids = {column.name: column.type_code for column in found or ()}
            types = [oids[name] for name in options.key]
            casts = type_names(connection, types)
            return _Statement(query, names, options.text, options.key, casts, _as_text(types), may_repeat=True)
        table = describe(connection, options.table or "", "PostgresSource")
        key = options.key or table.primary_key
        names = options.columns or _all_columns(connection, table)
        if not key:
            raise PostgresError(f"{self._what} has no primary key; pass key=[...], of a unique index")
        if (
            not any(unique <= frozenset(key) for unique in (*table.uniques, *table.deferrable))
            or frozenset(key) - table.not_null
        ):
            raise PostgresError(f"{self._what}: {', '.join(key)} must be NOT NULL and have a unique index")
        self._check(names, ())
        select = sql.SQL("select {} from {}").format(identifiers(_with(names, key)), table.identifier)
        casts = tuple(table.casts[table.columns.index(name)] for name in key)
        as_text = _as_text([table.type_of(name) for name in key])
        return _Statement(select, _with(names, key), options.text, key, casts, as_text, may_repeat=table.is_inherited)

    def _check(self, names: tuple[str, ...], key: tuple[str, ...]) -> None:
        wanted = (*key, *([self._options.timestamp] if self._options.timestamp else ()), *sorted(self._options.text))
        missing = [name for name in wanted if name not in names]
        if missing or len(set(names)) < len(names):
            lacks = f"there is no column {', '.join(missing)}" if missing else "two columns have one name"
            raise PostgresError(f"{self._what}: {lacks}; its columns are {', '.join(names)}")

    @property
    def _what(self) -> str:
        return f"table {self._options.table}" if self._options.table is not None else "the query"

    def _tolerate(self, error: psycopg.Error) -> None:
        server, now = self._options.server, self._clock()
        since = now if self._lost_since is None else self._lost_since
        self._not_before = now + 0.1
        if not server.is_lost(error) or now - since > server.retry_for:
            raise server.failure(f"reading {self._what}", error) from None
        if self._lost_since is None:
            _LOG.warning("%s; trying again for %g s", server.failure(f"reading {self._what}", error), server.retry_for)
        self._lost_since = since


def _as_text(types: Iterable[int]) -> tuple[bool, ...]:
    return tuple(oid in _NOT_AS_VALUES for oid in types)


def _all_columns(connection: Connection, table: Table) -> tuple[str, ...]:
    found = connection.execute(sql.SQL("select * from {} limit 0").format(table.identifier)).description
    return tuple(column.name for column in found or ())


def _with(names: tuple[str, ...], key: tuple[str, ...]) -> tuple[str, ...]:
    return (*names, *(name for name in key if name not in names))

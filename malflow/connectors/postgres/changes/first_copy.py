"""The first copy of the tables: its pages, what they show, and the changes that they already contain.

Creating a replication slot exports a snapshot: it shows exactly the transactions before the slot's stream. The tables
are read under it, one page of rows at a time, each beginning after the last key of the page before. An interrupted copy
continues under a newer snapshot, which shows some of the transactions that the stream delivers as well. The copy
therefore keeps the range of keys that was read under each snapshot, and a change is dropped if the snapshot of its
row's key showed its transaction.

An interrupted copy continues under another snapshot. A change that is streamed later may be visible in one of them and
not in the other; the key of its row decides which one counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg import sql

from malflow.connectors.postgres.changes.replication import create_slot, lsn_number
from malflow.connectors.postgres.changes.replication_slots import drop_slot
from malflow.connectors.postgres.connection import PostgresError, PostgresServer, close_after
from malflow.connectors.postgres.copy_text import fetched
from malflow.connectors.postgres.identifiers import Table, identifiers, raw_sql
from malflow.connectors.remote import Background
from malflow.connectors.tables.change import Change

__all__ = [
    "CopyReader",
    "CopyState",
    "Overlap",
    "Page",
    "Snapshot",
    "TableCopy",
    "Wanted",
    "begin_copy",
    "resume_copy",
]

_XIDS = 1 << 32
"""The number of ids before they start over: the stream has only the lower 32 bits."""


class Snapshot(NamedTuple):
    """A snapshot of the server: the transactions that it shows, and its position in the server's log."""

    xmin: int
    xmax: int
    running: frozenset[int]
    lsn: int
    time: datetime

    @classmethod
    def from_text(cls, text: str, lsn: int, time: datetime) -> Snapshot:
        """Return the snapshot that ``pg_current_snapshot()`` describes."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, running.split(","))) if running else frozenset(), lsn, time)

    def shows(self, xid: int) -> bool:
        """Whether the effects of a committed transaction are visible; `xid` is its 32-bit id in the stream."""
        behind = (xid - self.xmin) % _XIDS
        if behind >= _XIDS // 2:
            return True  # before xmin
        full = self.xmin + behind
        return full < self.xmax and full not in self.running

    def plain(self) -> tuple[Any, ...]:
        """Convert to plain values, for positions."""
        return self.xmin, self.xmax, tuple(sorted(self.running)), self.lsn, self.time.isoformat()

    @classmethod
    def of_plain(cls, plain: tuple[Any, ...]) -> Snapshot:
        """Return the snapshot that `plain` described."""
        xmin, xmax, running, lsn, time = plain
        return cls(xmin, xmax, frozenset(running), lsn, datetime.fromisoformat(time))


class TableCopy:
    """The progress of a table's copy.

    Attributes:
        files: the files of the table on the server; a truncation replaces them.
        ranges: pairs of a snapshot's index and the last key read under it, in the order of keys.
        done: whether the last range reaches the end of the table.
    """

    def __init__(
        self, files: tuple[int, ...], ranges: tuple[tuple[int, tuple[Any, ...]], ...] = (), *, done: bool = False
    ):
        self.files, self.ranges, self.done = files, list(ranges), done

    @property
    def last_key(self) -> tuple[Any, ...] | None:
        """The key of the last row copied; None if there is none."""
        return self.ranges[-1][1] if self.ranges else None

    def advance(self, snapshot: int, key: tuple[Any, ...]) -> None:
        """Note that all rows up to `key` are copied, the last of them under a snapshot."""
        if self.ranges and self.ranges[-1][0] == snapshot:
            self.ranges.pop()
        self.ranges.append((snapshot, key))

    def finish(self, snapshot: int) -> None:
        """Note that a snapshot shows no further row."""
        self.done = True
        if not self.ranges or self.ranges[-1][0] != snapshot:
            self.ranges.append((snapshot, ()))

    def plain(self) -> tuple[Any, ...]:
        """Convert to plain values, for positions."""
        return self.files, tuple(self.ranges), self.done


class CopyState:
    """The progress of the copies of all tables, by name, and their snapshots."""

    def __init__(self, tables: dict[str, TableCopy], snapshots: list[Snapshot]) -> None:
        self.tables, self.snapshots = tables, snapshots

    def check(self, tables: Iterable[str]) -> None:
        """Check that all tables are in the copy.

        Raises:
            PostgresError: if one is not.
        """
        new = [table for table in tables if table not in self.tables]
        if new:
            raise PostgresError(
                f"the copy began without {', '.join(new)}: it has {', '.join(self.tables)}. Restore the tables and "
                "their names until the copy has caught up, or drop the slot and start the job without its snapshots"
            )

    @property
    def done(self) -> bool:
        """Whether all tables are copied."""
        return all(table.done for table in self.tables.values())

    @property
    def seen_until(self) -> int:
        """The position in the log after which no transaction is visible in any snapshot.

        0 if there is only one snapshot, since the stream begins at it.
        """
        return max((snapshot.lsn for snapshot in self.snapshots), default=0) if len(self.snapshots) > 1 else 0

    def plain(self) -> tuple[Any, ...]:
        """Convert to plain values, for positions."""
        tables = tuple((name, table.plain()) for name, table in self.tables.items())
        return tables, tuple(snapshot.plain() for snapshot in self.snapshots)

    @classmethod
    def of_plain(cls, plain: tuple[Any, ...]) -> CopyState:
        """Return the state that `plain` described."""
        tables, snapshots = plain
        return cls(
            {name: TableCopy(tuple(files), ranges, done=done) for name, (files, ranges, done) in tables},
            [Snapshot.of_plain(snapshot) for snapshot in snapshots],
        )


Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_FILES = """
with tree as (select %(oid)s::oid as oid union select relid from pg_partition_tree(%(oid)s::oid::regclass))
select array_agg(c.relfilenode::bigint order by c.oid), array_agg(coalesce(pg_relation_filenode(c.oid), 0)::bigint
  order by c.oid) from pg_class c join tree on tree.oid = c.oid
"""
"""The files of a table and its partitions: as the transaction sees them, and as they are at present."""

_FILTERS = """
select attnames::text[], rowfilter from pg_publication_tables
where pubname = %s and schemaname = %s and tablename = %s
"""
_WITH_FILTERS = 150_000
"""The first server version whose publications may have column lists and row filters."""

_TRIES = 20
"""The most attempts to create the slot while tables are truncated. One suffices unless a truncation falls into the
moment before the lock; more only delay the error."""

_ABANDONED = "10min"
"""How long the server keeps the transaction of a reader that disappeared without closing it."""


class Page(NamedTuple):
    """Rows of a table in the order of their keys.

    Attributes:
        table: the name of the table, as shown.
        names: the columns of the rows.
        rows: the values of each row, followed by the values of its key.
        last: whether this is the last page.
    """

    table: str
    names: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    last: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """The scope of a copy: tables of a publication, columns left as text, the number of rows in a page."""

    tables: tuple[Table, ...]
    publication: str
    text: frozenset[str]
    rows: int


# Example: snapshot S0 shows the transactions up to 100, and the slot's stream begins with 101.
#   under S0     the keys 1 to 1000 are read, then the connection is lost
#   under S1     the copy continues with key 1001; S1 shows the transactions up to 120
#   stream       transaction 110 changes the keys 5 and 1500: 5 is emitted, as S0 did not show the change; 1500 is
#                dropped, as S1 did
# Invariant: each change of a row is in its page or is emitted from the stream, and never both.
class CopyReader:
    """Read the remaining pages of a copy, in one transaction.

    Attributes:
        state: the progress of the copy, advanced by the reader that emits rows.
        index: the index of the snapshot under which the pages are read.
        restarted: tables that were truncated while no reader locked them; they are copied from their beginning.
    """

    def __init__(self, connection: Connection, wanted: Wanted, state: CopyState) -> None:
        self._connection, self._wanted = connection, wanted
        self.state, self.index = state, len(state.snapshots) - 1
        self.restarted: list[str] = []
        self._heads = {name: (copy.last_key, copy.done) for name, copy in state.tables.items()}

    def next_page(self) -> Page | None:
        """Return the next page; None if all tables are read."""
        for table in self._wanted.tables:
            after, done = self._heads[table.shown]
            if not done:
                return self._read(table, after)
        return None

    def close(self, fetching: Background[Any] | None = None) -> None:
        """End the transaction and its locks on the tables; a page that is being fetched is abandoned."""
        close_after(fetching, self._connection)

    def _read(self, table: Table, after: tuple[Any, ...] | None) -> Page:
        columns, condition = _published(self._connection, table, self._wanted.publication)
        key = table.identity
        cells = [
            sql.SQL("{}::text" if name in self._wanted.text else "{}").format(sql.Identifier(name))
            for name in (*columns, *key)
        ]
        order = [sql.Identifier(table.schema, table.name, name) for name in key]  # not the text of a cell
        conditions = [condition] if condition else []
        if after is not None:
            conditions.append(sql.SQL("row({}) > {}").format(identifiers(key), table.literals(key, after)))
        query = sql.SQL("select {} from {} {} order by {} limit {}").format(
            sql.SQL(", ").join(cells),
            _itself(table),
            sql.SQL("where ") + sql.SQL(" and ").join(conditions) if conditions else sql.SQL(""),
            sql.SQL(", ").join(order),
            sql.Literal(self._wanted.rows),
        )
        rows = fetched(self._connection.execute(query), f"table {table.shown}", "pass text=[{column!r}]")
        last = len(rows) < self._wanted.rows
        self._heads[table.shown] = (rows[-1][len(columns) :] if rows else after, last)
        return Page(table.shown, columns, rows, last)


def begin_copy(server: PostgresServer, slot: str, wanted: Wanted) -> tuple[int, CopyReader]:
    """Create the slot, and a reader of the tables as of that moment; return the start of the slot's stream.

    The tables are locked against truncation while they are read, as by pg_dump: a truncated table looks empty to older
    snapshots too. If a table was truncated before it was locked, the slot is created again.
    """
    for _ in range(_TRIES):
        drop_slot(server, slot, server.application)
        connection = server.connect()
        try:
            with server.connect(replication="database") as replication:
                lsn, name = create_slot(replication, slot)
                _begin(connection)
                _take_snapshot(connection, name)
                _lock(connection, wanted.tables)
            files = {table.shown: _files(connection, table) for table in wanted.tables}
            if all(then == now for then, now in files.values()):
                snapshot = _snapshot(connection, lsn)
                copies = {name: TableCopy(now) for name, (_, now) in files.items()}
                return lsn, CopyReader(connection, wanted, CopyState(copies, [snapshot]))
        except BaseException:
            connection.close()
            raise
        connection.close()
    raise PostgresError(
        f"slot '{slot}': its tables were truncated or rewritten at each of {_TRIES} attempts to copy them"
    )


def resume_copy(server: PostgresServer, wanted: Wanted, state: CopyState) -> CopyReader:
    """Return a reader that continues a copy under a new snapshot.

    Raises:
        PostgresError: if the tables have changed since the copy began.
    """
    state.check(table.shown for table in wanted.tables)
    connection = server.connect()
    try:
        snapshot = _later_snapshot(connection, wanted.tables, state.snapshots)
        state.snapshots.append(snapshot)
        restarted = [table.shown for table in wanted.tables if _restart_if_truncated(connection, table, state)]
        reader = CopyReader(connection, wanted, state)
        reader.restarted = restarted
    except BaseException:
        connection.close()
        raise
    return reader


def _later_snapshot(connection: Connection, tables: Sequence[Table], earlier: Sequence[Snapshot]) -> Snapshot:
    """Begin a transaction that shows at least everything that the first snapshot shows.

    A commit is in the log a moment before other sessions see it. The first snapshot is made from the log, so it may
    contain a transaction that a new one does not show yet.
    """
    while True:
        _begin(connection)
        _lock(connection, tables)
        snapshot = _snapshot(connection, None)
        if not any(earlier[0].shows(xid) for xid in snapshot.running):
            return snapshot
        connection.execute("rollback")
        time.sleep(0.05)


def _restart_if_truncated(connection: Connection, table: Table, state: CopyState) -> bool:
    copy = state.tables[table.shown]
    _, now = _files(connection, table)
    if now == copy.files:
        return False
    had_rows = bool(copy.ranges)
    state.tables[table.shown] = TableCopy(now)
    return had_rows


def _take_snapshot(connection: Connection, name: str) -> None:
    try:
        connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(name)))
    except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject):
        raise psycopg.OperationalError("the connection that made the slot is lost, and its snapshot with it") from None


def _itself(table: Table) -> sql.Composed:
    """Return a table without its inheritance children. The children's changes have their own table names."""
    return sql.SQL("{}" if table.is_partitioned else "only {}").format(table.identifier)


def _begin(connection: Connection) -> None:
    connection.execute(f"set idle_in_transaction_session_timeout to '{_ABANDONED}'; set row_security to off")
    connection.execute("begin isolation level repeatable read, read only")


def _lock(connection: Connection, tables: Sequence[Table]) -> None:
    names = sql.SQL(", ").join(table.identifier for table in tables)
    connection.execute(sql.SQL("lock table {} in access share mode").format(names))


def _files(connection: Connection, table: Table) -> tuple[tuple[int, ...], tuple[int, ...]]:
    row = connection.execute(_FILES, {"oid": table.oid}).fetchone()
    return (tuple(row[0]), tuple(row[1])) if row else ((), ())


def _snapshot(connection: Connection, lsn: int | None) -> Snapshot:
    row = connection.execute("select pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, now()").fetchone()
    if row is None:
        raise PostgresError("the server did not describe its snapshot")
    text, end, now = row
    return Snapshot.from_text(text, lsn_number(end) if lsn is None else lsn, now)


def _published(connection: Connection, table: Table, publication: str) -> tuple[tuple[str, ...], sql.Composable | None]:
    """Return the column list and the row filter that a publication has for a table."""
    if connection.info.server_version < _WITH_FILTERS:
        return table.columns, None
    row = connection.execute(_FILTERS, (publication, table.schema, table.name)).fetchone()
    if row is None:
        return table.columns, None
    return tuple(name for name in table.columns if name in row[0]), row[1] and raw_sql(row[1])


class Overlap:
    """Drop changes, or parts of them, that are in a table's copy. Its rows were read under several snapshots.

    A row's key decides which snapshot counts. The server compares keys, since order and equality are its own.

    Attributes:
        until: the position in the log of the last snapshot; no snapshot shows a later transaction.
    """

    def __init__(self, server: PostgresServer, tables: Sequence[Table], state: CopyState) -> None:
        self._server, self._state = server, state
        state.check(table.shown for table in tables)
        self._tables = {table.oid: table for table in tables}
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self.until = state.seen_until

    def __call__(self, oid: int, xid: int, change: Change) -> list[Change]:
        """Return the change, a part of it, or nothing."""
        table = self._tables.get(oid)
        if table is None:
            return [change]
        before, after = change.old or change.new, change.new
        if change.kind == "truncate" or before is None:
            first = self._state.tables[table.shown].ranges[0][0]
            return [] if self._state.snapshots[first].shows(xid) else [change]
        if after is None or change.kind == "insert":
            return [] if self._shows(table, xid, before) else [change]
        shows_before, shows_after = self._shows(table, xid, before), self._shows(table, xid, after)
        if shows_before == shows_after:
            return [] if shows_before else [change]
        if shows_before:
            return [change._replace(kind="insert", old=None)]
        key = {name: before[name] for name in table.identity}
        return [change._replace(kind="delete", old=key, new=None)]

    def close(self) -> None:
        """Close the connection on which keys are compared."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _shows(self, table: Table, xid: int, row: Mapping[str, Any]) -> bool:
        copy = self._state.tables[table.shown]
        answers = {index: self._state.snapshots[index].shows(xid) for index, _ in copy.ranges}
        if len(set(answers.values())) == 1:
            return next(iter(answers.values()))
        return answers[self._range_of(table, copy, tuple(row[name] for name in table.identity))]

    def _range_of(self, table: Table, copy: TableCopy, key: tuple[Any, ...]) -> int:
        *earlier, last = copy.ranges
        value = table.literals(table.identity, key)
        tests = [
            sql.SQL("when {} <= {} then {}").format(value, table.literals(table.identity, upper), sql.Literal(index))
            for index, upper in earlier
        ]
        query = sql.SQL("select case {} else {} end").format(sql.SQL(" ").join(tests), sql.Literal(last[0]))
        return int(self._server.retry(lambda: self._ask(query), f"comparing keys of {table.shown}"))

    def _ask(self, query: sql.Composed) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = self._server.connect()
        row = self._connection.execute(query).fetchone()
        return row[0] if row else None

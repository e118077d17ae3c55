"""Changes that an interrupted copy may already contain: each is emitted once, as a change or within a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from malflow.connectors.postgres.connection import PostgresServer
from malflow.connectors.postgres.names import Table
from malflow.connectors.postgres.visibility import CopyState, TableCopy
from malflow.connectors.tables.change import Change

__all__ = ["Overlap"]


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

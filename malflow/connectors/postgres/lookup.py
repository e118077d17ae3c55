"""Rows of a table of Postgres for look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
from psycopg import sql
from psycopg.adapt import PyFormat, Transformer

from malflow.connectors.postgres.connection import PostgresServer
from malflow.connectors.postgres.errors import PostgresError
from malflow.connectors.postgres.names import describe, raw_sql, type_names
from malflow.connectors.tables.lookup_rows import LookupRows, Wanted
from malflow.lookups.contract import LookupTable

__all__ = ["PostgresLookup"]

Connection = psycopg.Connection[tuple[Any, ...]]

_AT_ONCE = 10_000
_PADDED = 1042
"""The oid of `char(n)`, whose name without a length means a length of 1."""


class PostgresLookup(LookupTable[Any, Any]):
    """Look up the rows of a table or view by a key, in one statement for a batch of records.

    Args:
        dsn: a libpq connection string or URL; every setting of libpq is passed through.
        table: the table's name as in SQL, such as ``public.users``; or that of a view.
        key: the columns to look up by: at most one row for each key. None: the primary key. With several columns, the
            keys of records are tuples.
        columns: the columns of a row; None: all.
        row: the type of the rows: ``dict``, ``tuple``, or a class or function that is called with the columns as
            keywords.
        retry_for: how long to retry a lost connection before the run fails.

    Raises:
        GraphError: if an argument is invalid.

    >>> PostgresLookup("host=db dbname=shop password=hush", "users", columns=["name", "city"])
    PostgresLookup(host=db dbname=shop, 'users')
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        key: Iterable[str] | None = None,
        columns: Iterable[str] | None = None,
        row: Callable[..., Any] = dict,
        retry_for: timedelta = timedelta(minutes=1),
    ) -> None:
        self._wanted = Wanted("PostgresLookup", table, key, columns, row)
        self._server = PostgresServer(dsn, retry_for, "PostgresLookup")
        self._connection: Connection | None = None
        self._rows: LookupRows | None = None
        self._query: sql.Composed | None = None

    def get_many(self, keys: Sequence[Any], /) -> Mapping[Any, Any]:
        """Return the rows of some keys, by one statement for each ten thousand of them.

        Raises:
            PostgresError: if the table lacks a column, a key has several rows, or the server reports an error or can't
                be reached for longer than `retry_for`.
        """
        found: dict[Any, Any] = {}
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            answer, rows = self._server.retry(partial(self._asked, some), f"looking up rows of {self._wanted.table}")
            found |= rows.by_key(some, answer)
        return found

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _asked(self, keys: Sequence[Any]) -> tuple[list[tuple[Any, ...]], LookupRows]:
        """Return the rows, each after the index of its key from 1."""
        connection = self._connection
        if connection is None or connection.closed or self._rows is None or self._query is None:
            connection = self._connection = self._server.connect()
            self._rows, self._query = self._described(connection)
        try:
            columns = [_of_one_type(column) for column in self._rows.columns_of(keys)]
            return connection.execute(self._query, columns).fetchall(), self._rows
        except psycopg.Error:
            self.close()
            raise

    def _described(self, connection: Connection) -> tuple[LookupRows, sql.Composed]:
        table = describe(connection, self._wanted.table, "PostgresLookup")
        rows = LookupRows(table.shown, table.columns, table.primary_key, self._wanted, PostgresError)
        oids = [table.type_of(name) for name in rows.key]
        types = ["bpchar" if oid == _PADDED else it for oid, it in zip(oids, type_names(connection, oids), strict=True)]
        given = sql.SQL(", ").join(sql.SQL("%s::{}[]").format(raw_sql(it)) for it in types)
        names = [sql.Identifier(f"c{place}") for place in range(len(rows.key))]
        same = sql.SQL(" and ").join(
            sql.SQL("t.{} = k.{}").format(sql.Identifier(name), it) for name, it in zip(rows.key, names, strict=True)
        )
        cells = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(name)) for name in rows.columns)
        query = "select k.at, {} from unnest({}) with ordinality as k({}, at) join {} as t on {}"
        return rows, sql.SQL(query).format(cells, given, sql.SQL(", ").join(names), table.identifier, same)

    def __repr__(self) -> str:
        return f"PostgresLookup({self._server!r}, {self._wanted.table!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None, "_rows": None, "_query": None}


def _of_one_type(column: list[Any]) -> list[Any]:
    """Return values that fit in one array: as the text that the server reads, if their types differ."""
    if len(set(map(type, column))) == 1:
        return column
    transformer = Transformer()
    dumped = [transformer.get_dumper(value, PyFormat.TEXT).dump(value) for value in column]
    return [None if it is None else bytes(it).decode() for it in dumped]

"""Rows of a table of Postgres for look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
from psycopg import sql

from malflow.checks import checked_names
from malflow.connectors.postgres.connection import PostgresError, PostgresServer
from malflow.connectors.postgres.copy_text import fetched
from malflow.connectors.postgres.identifiers import describe, raw_sql, type_names
from malflow.connectors.postgres.lookup_keys import KeyText, key_texts
from malflow.connectors.tables.rows import LookupRows, Wanted
from malflow.durations import Duration
from malflow.lookups.contract import LookupTable
from malflow.words import short_repr

__all__ = ["PostgresLookup"]

Connection = psycopg.Connection[tuple[Any, ...]]

_AT_ONCE = 10_000
"""The most keys of a statement. Half of it doubles the round trips of large batches, double holds twice as many keys
and rows in memory."""

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
        text: columns to return as Postgres writes them, such as dates that may be ``infinity``.
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
        text: Iterable[str] = (),
        row: Callable[..., Any] = dict,
        retry_for: Duration = timedelta(minutes=1),
    ) -> None:
        self._wanted = Wanted("PostgresLookup", table, key, columns, row)
        self._text = frozenset(checked_names("PostgresLookup", "text", text, what="columns"))
        self._server = PostgresServer(dsn, retry_for, "PostgresLookup")
        self._connection: Connection | None = None
        self._rows: LookupRows | None = None
        self._query: sql.Composed | None = None
        self._texts: list[KeyText] = []

    def get_many(self, keys: Sequence[Any], /) -> Mapping[Any, Any]:
        """Return the rows of some keys, by one statement for each ten thousand of them.

        Raises:
            PostgresError: if the table lacks a column, a key has several rows or is of a type that the column does not
                compare, a value needs `text`, or the server reports an error or can't be reached for longer than
                `retry_for`.
        """
        found: dict[Any, Any] = {}
        for start in range(0, len(keys), _AT_ONCE):
            asked = partial(self._asked, keys[start : start + _AT_ONCE])
            some, answer, rows = self._server.retry(asked, f"looking up rows of {self._wanted.table}")
            found |= rows.by_key(some, answer)
        return found

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _asked(self, keys: Sequence[Any]) -> tuple[list[Any], list[tuple[Any, ...]], LookupRows]:
        """Return the keys that a row may have, and the rows, each after the index of its key from 1."""
        connection = self._connection
        if connection is None or connection.closed or self._rows is None or self._query is None:
            connection = self._connection = self._server.connect()
            self._rows, self._query = self._described(connection)
        try:
            columns = self._rows.columns_of(keys)
            texts = list(zip(*(map(*it) for it in zip(self._texts, columns, strict=True)), strict=True))
            places = [at for at, key in enumerate(texts) if None not in key]
            some = [keys[at] for at in places]
            if not some:
                return [], [], self._rows
            cursor = connection.execute(self._query, self._parameters(texts, places))
            return some, fetched(cursor, f"table {self._wanted.table}", "pass text=[{column!r}]"), self._rows
        except psycopg.DataError as error:
            self.close()
            refusal = error
        except psycopg.Error:
            self.close()
            raise
        if len(keys) == 1:
            said = f"the key {short_repr(keys[0])} can't be looked up: {' '.join(str(refusal).split())}"
            raise PostgresError(f"looking up rows of {self._wanted.table} failed at {self._server!r}: {said}")
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
            self._asked(half)
        raise refusal

    @staticmethod
    def _parameters(texts: Sequence[tuple[str | None, ...]], places: Sequence[int]) -> list[list[str | None]]:
        return [list(column) for column in zip(*(texts[at] for at in places), strict=True)]

    def _described(self, connection: Connection) -> tuple[LookupRows, sql.Composed]:
        table = describe(connection, self._wanted.table, "PostgresLookup")
        rows = LookupRows(table.shown, table.columns, table.primary_key, self._wanted, PostgresError)
        self._texts = [key_texts(table.kind_of(name), f"table {table.shown}, column {name!r}") for name in rows.key]
        oids = [table.type_of(name) for name in rows.key]
        types = ["bpchar" if oid == _PADDED else it for oid, it in zip(oids, type_names(connection, oids), strict=True)]
        given = sql.SQL(", ").join(sql.SQL("%s::{}[]").format(raw_sql(it)) for it in types)
        names = [sql.Identifier(f"c{place}") for place in range(len(rows.key))]
        same = sql.SQL(" and ").join(
            sql.SQL("t.{} = k.{}").format(sql.Identifier(name), it) for name, it in zip(rows.key, names, strict=True)
        )
        missing = sorted(self._text.difference(rows.columns))
        if missing:
            raise PostgresError(f"table {table.shown}: text={missing!r} are not columns of a row; remove them")
        cells = sql.SQL(", ").join(
            sql.SQL("t.{}::text" if name in self._text else "t.{}").format(sql.Identifier(name))
            for name in rows.columns
        )
        query = "select k.at, {} from unnest({}) with ordinality as k({}, at) join {} as t on {}"
        return rows, sql.SQL(query).format(cells, given, sql.SQL(", ").join(names), table.identifier, same)

    def __repr__(self) -> str:
        return f"PostgresLookup({self._server!r}, {self._wanted.table!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None, "_rows": None, "_query": None, "_texts": []}

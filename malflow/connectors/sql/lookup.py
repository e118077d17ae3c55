"""Rows of a table of a SQL database for look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from malflow.connectors.sql.database import Database
from malflow.connectors.sql.described import described
from malflow.connectors.sql.errors import SqlError
from malflow.connectors.tables.lookup_rows import LookupRows, Wanted
from malflow.durations import Duration
from malflow.errors import short_repr
from malflow.lookups.contract import LookupTable

__all__ = ["SqlLookup"]

_MOST_PARAMETERS = 900
"""Of a statement; SQLite accepted 999 for long."""


class SqlLookup(LookupTable[Any, Any]):
    """Look up the rows of a table by a key, in any database for which SQLAlchemy has a dialect.

    The keys of the rows must be equal to those of the records in Python: a database that ignores the case of text, or
    rounds numbers, may find another row, which is an error.

    Args:
        url: an SQLAlchemy URL, such as ``mysql+pymysql://user@host/database`` or ``sqlite:///file.db``.
        table: the table's name, in the database's spelling, with a schema if needed.
        key: the columns to look up by: at most one row for each key. None: the primary key. With several columns, the
            keys of records are tuples.
        columns: the columns of a row; None: all.
        row: the type of the rows: ``dict``, ``tuple``, or a class or function that is called with the columns as
            keywords.
        retry_for: how long to retry a lost connection before the run fails.
        settings: arguments of `sqlalchemy.create_engine`. Never shown.

    Raises:
        GraphError: if an argument is invalid.
        MissingDependency: if the driver of the database is not installed.

    >>> SqlLookup("sqlite:///shop.db", "users")
    SqlLookup(sqlite:///shop.db, 'users')
    """

    def __init__(
        self,
        url: str | sa.URL,
        table: str,
        *,
        key: Iterable[str] | None = None,
        columns: Iterable[str] | None = None,
        row: Callable[..., Any] = dict,
        retry_for: Duration = timedelta(minutes=1),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._wanted = Wanted("SqlLookup", table, key, columns, row)
        self._made_of = url, settings, retry_for
        self._database = Database(url, settings, retry_for, "SqlLookup")
        self._rows: LookupRows | None = None
        self._query: Any = None

    def get_many(self, keys: Sequence[Any], /) -> Mapping[Any, Any]:
        """Return the rows of some keys, by a statement for some hundred of them.

        Raises:
            SqlError: if the table lacks a column, a key has several rows or finds a row of another one, or the database
                reports an error or can't be reached for longer than `retry_for`.
        """
        rows = self._rows or self._database.retry(self._described, f"describing table {self._wanted.table}")
        rows.columns_of(keys)
        found: dict[Any, Any] = {}
        size = max(1, _MOST_PARAMETERS // len(rows.key))
        for start in range(0, len(keys), size):
            some = keys[start : start + size]
            answer = self._database.retry(partial(self._asked, some), f"looking up rows of {self._wanted.table}")
            found |= rows.by_key(some, self._numbered(answer, some, rows))
        return found

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def _asked(self, keys: Sequence[Any]) -> list[Any]:
        with self._database.transaction() as connection:
            return list(connection.execute(self._query, {"keys": list(keys)}))

    def _numbered(self, answer: Iterable[Any], keys: Sequence[Any], rows: LookupRows) -> Iterable[Sequence[Any]]:
        """Yield rows after the indices of their keys."""
        width = len(rows.key)
        places = {key: at for at, key in enumerate(keys, 1)}
        found: set[Any] = set()
        for row in answer:
            key = row[0] if width == 1 else tuple(row[:width])
            if key not in places:
                raise self._compares_otherwise(key)
            found.add(key)
            yield (places[key], *row[width:])
        spellings = {_folded(key) for key in found}
        for key in keys:
            if key not in found and _folded(key) in spellings:
                raise self._compares_otherwise(key)

    def _compares_otherwise(self, key: Any) -> SqlError:
        return SqlError(
            f"table {self._wanted.table} in {self._database!r} has found a row for another spelling of "
            f"{short_repr(key)}: it compares keys otherwise than Python; look up by keys in the spelling of the table"
        )

    def _described(self) -> LookupRows:
        with self._database.transaction() as connection:
            found = described(connection, self._wanted.table, "SqlLookup", self._database, needs_undo=False)
        names = tuple(column.name for column in found.table.columns)
        rows = LookupRows(self._wanted.table, names, found.primary_key, self._wanted, SqlError)
        columns = [found.table.c[name] for name in rows.key]
        asked = columns[0] if len(columns) == 1 else sa.tuple_(*columns)
        cells = [found.table.c[name].label(f"c{at}") for at, name in enumerate((*rows.key, *rows.columns))]
        self._query = sa.select(*cells).where(asked.in_(sa.bindparam("keys", expanding=True)))
        self._rows = rows
        return rows

    def __repr__(self) -> str:
        return f"SqlLookup({self._database!r}, {self._wanted.table!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the description of the table; unlike a sink's copy, this one connects, so it has all settings."""
        return {**self.__dict__, "_database": None, "_rows": None, "_query": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._database = Database(*self._made_of, "SqlLookup")


def _folded(key: Any) -> Any:
    """Return a form that is equal for texts that a collation may find equal."""
    if isinstance(key, tuple):
        return tuple(map(_folded, key))
    return key.casefold().rstrip() if isinstance(key, str) else key

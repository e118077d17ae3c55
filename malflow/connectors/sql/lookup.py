"""Rows of a table of a SQL database for look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import exc

from malflow.connectors.sql.database import Database, SqlError
from malflow.connectors.sql.described import described
from malflow.connectors.sql.exact_cells import exact_cell, is_any_of
from malflow.connectors.sql.lookup_keys import LookupKeys
from malflow.connectors.tables.rows import LookupRows, Wanted
from malflow.durations import Duration
from malflow.lookups.contract import LookupTable
from malflow.words import plural, short_repr

__all__ = ["SqlLookup"]

_MOST_PARAMETERS = 900
"""Of a statement; SQLite accepted 999 for long."""


class _Table(NamedTuple):
    """A table that is known: its rows, its keys, and the statement for some keys."""

    rows: LookupRows
    keys: LookupKeys
    query: Any


class SqlLookup(LookupTable[Any, Any]):
    """Look up the rows of a table by a key, in any database for which SQLAlchemy has a dialect.

    The keys of the rows must be equal to the records' keys in Python: a database that ignores the case of text, or
    rounds numbers, may find another row. That is an error.

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
        self._table: _Table | None = None

    def get_many(self, keys: Sequence[Any], /) -> Mapping[Any, Any]:
        """Return the rows of some keys, by a statement for some hundred of them.

        Raises:
            SqlError: if the table lacks a column, a key has several rows, finds a row of another one or is of a type
                that the driver does not know, or the database reports an error or can't be reached for longer than
                `retry_for`.
        """
        table = self._table or self._database.retry(self._described, f"describing table {self._wanted.table}")
        table.rows.columns_of(keys)
        found: dict[Any, Any] = {}
        size = max(1, _MOST_PARAMETERS // len(table.rows.key))
        for start in range(0, len(keys), size):
            some = keys[start : start + size]
            plain = list(map(table.keys.plain, some))
            pairs = [pair for pair in zip(some, plain, strict=True) if pair[1] is not None]
            asked = partial(self._asked, pairs, table)
            answer = self._database.retry(asked, f"looking up rows of {self._wanted.table}")
            found |= table.rows.by_key(some, self._numbered(answer, plain, table.rows))
        return found

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def _asked(self, keys: Sequence[tuple[Any, Any]], table: _Table) -> list[Any]:
        """Return the rows of keys, each given with its plain value.

        Raises:
            SqlError: if the driver or the database refuses one of them; the error names it.
        """
        if not keys:
            return []
        try:
            with self._database.transaction() as connection:
                return list(connection.execute(table.query, {"keys": [plain for _, plain in keys]}))
        except (exc.SQLAlchemyError, ValueError, TypeError, OverflowError) as error:
            if self._database.is_lost(error):
                raise
            refusal = error
        half = len(keys) // 2
        if half:
            self._asked(keys[:half], table)
            self._asked(keys[half:], table)
        shown = f"{plural(len(keys), 'key')} together" if half else f"the key {short_repr(keys[0][0])}"
        said = self._database.without_secrets(self._database.reason(refusal)).removesuffix(".")
        raise SqlError(
            f"table {self._wanted.table} in {self._database!r}: {shown} can't be looked up: {said}; convert it to the "
            f"type of {', '.join(table.rows.key)}"
        ) from refusal

    def _numbered(self, answer: Iterable[Any], keys: Sequence[Any], rows: LookupRows) -> Iterable[Sequence[Any]]:
        """Yield rows after the indices of their keys; None is a key that no row has."""
        width = len(rows.key)
        places = {key: at for at, key in enumerate(keys, 1) if key is not None}
        found: set[Any] = set()
        for row in answer:
            key = row[0] if width == 1 else tuple(row[:width])
            if key not in places:
                raise self._compares_otherwise(key)
            found.add(key)
            yield (places[key], *row[width:])
        spellings = {_folded(key) for key in found}
        for key in places:
            if key not in found and _folded(key) in spellings:
                raise self._compares_otherwise(key)

    def _compares_otherwise(self, key: Any) -> SqlError:
        return SqlError(
            f"table {self._wanted.table} in {self._database!r} has found a row for another spelling of "
            f"{short_repr(key)}: it compares keys otherwise than Python; look up by keys in the spelling of the table"
        )

    def _described(self) -> _Table:
        with self._database.transaction() as connection:
            found = described(connection, self._wanted.table, "SqlLookup", self._database, needs_undo=False)
        names = tuple(column.name for column in found.table.columns)
        rows = LookupRows(self._wanted.table, names, found.primary_key, self._wanted, SqlError)
        columns = [found.table.c[name] for name in rows.key]
        asked = columns[0] if len(columns) == 1 else sa.tuple_(*columns)
        dialect = self._database.dialect.name
        cells = [exact_cell(found.table.c[name], dialect) for name in (*rows.key, *rows.columns)]
        labelled = [cell.label(f"c{at}") for at, cell in enumerate(cells)]
        query = sa.select(*labelled).where(is_any_of(asked, "keys"))
        self._table = _Table(rows, LookupKeys(found, rows.key, dialect), query)
        return self._table

    def __repr__(self) -> str:
        return f"SqlLookup({self._database!r}, {self._wanted.table!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the description of the table; unlike a sink's copy, this one connects, so it has all settings."""
        return {**self.__dict__, "_database": None, "_table": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._database = Database(*self._made_of, "SqlLookup")


def _folded(key: Any) -> Any:
    """Return a form that is equal for texts that a collation may find equal."""
    if isinstance(key, tuple):
        return tuple(map(_folded, key))
    return key.casefold().rstrip() if isinstance(key, str) else key

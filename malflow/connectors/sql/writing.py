"""Write batches of rows to a table: by the dialect's upsert, or by an update and an insert."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from malflow.connectors.sql.database import SqlError
from malflow.connectors.sql.described import SqlTable
from malflow.connectors.tables.transaction_rows import Row, RowBatch

__all__ = ["TableWriter"]


class TableWriter:
    """Write to one table, within the caller's transactions.

    Args:
        table: the table.
        key: the columns that make a row unique.
        dialect: the name of the dialect.
        portable: whether to avoid the dialect's upsert.
    """

    def __init__(self, table: SqlTable, key: tuple[str, ...], dialect: str, *, portable: bool = False) -> None:
        self._facts, self._table, self._key = table, table.table, key
        self._dialect = "" if portable else dialect
        self._one_by_one = any("%" in name for name in table.columns)

    def clear(self, connection: sa.Connection) -> None:
        """Delete all rows."""
        connection.execute(self._table.delete())

    def write(self, connection: sa.Connection, batch: RowBatch, *, strict: bool) -> None:
        """Write a batch.

        Args:
            connection: a connection within a transaction.
            batch: the rows.
            strict: whether an update of a missing row is an error.

        Raises:
            SqlError: if a row to be updated is missing.
        """
        if not batch.rows:
            return
        match batch.operation:
            case "insert":
                self._execute(connection, self._insert(batch.columns), batch.rows)
            case "delete":
                self._execute(connection, self._table.delete().where(self._matches()), self._sorted(batch))
            case "merge":
                self._merge(connection, batch)
            case "upsert":
                self._upsert(connection, batch)
            case "update":
                missing = sum(not self._update_one(connection, batch.columns, row) for row in batch.rows)
                if missing and strict:
                    raise SqlError(
                        f"table {self._facts.shown}: {missing} rows to be updated are missing, and their unchanged "
                        "values are not known; copy the table again"
                    )

    def _execute(self, connection: sa.Connection, statement: sa.Executable, rows: Sequence[Row]) -> None:
        """Execute a statement for each row; drivers that combine statements may mistake a % in a name for a value."""
        parameters = _parameters(rows)
        for some in [[it] for it in parameters] if self._one_by_one else [parameters]:
            connection.execute(statement, some)

    def _merge(self, connection: sa.Connection, batch: RowBatch) -> None:
        """Write rows one after the other. Of keys that are equal for the database, the last one counts."""
        places = [batch.columns.index(name) + 1 for name in self._key]
        native = self._native(batch.columns, sets_key=True)
        for is_deleted, run in groupby(batch.rows, itemgetter(0)):
            if is_deleted:
                keys = [tuple(row[place] for place in places) for row in run]
                self._execute(connection, self._table.delete().where(self._matches()), keys)
            elif native is None:
                self._upsert(connection, RowBatch("upsert", batch.columns, [row[1:] for row in run]), in_order=True)
            elif self._dialect == "postgresql":  # rejects equal keys in one statement, and drivers combine statements
                for row in run:
                    connection.execute(native, _parameters([row[1:]]))
            else:
                self._execute(connection, native, [row[1:] for row in run])

    def _upsert(self, connection: sa.Connection, batch: RowBatch, *, in_order: bool = False) -> None:
        native = None if in_order else self._native(batch.columns)
        if native is not None:
            self._execute(connection, native, self._sorted(batch))
            return
        rest = tuple(name for name in batch.columns if name not in self._key)
        places = [batch.columns.index(name) for name in (*self._key, *rest)]
        insert = self._insert(batch.columns)
        for row in batch.rows if in_order else self._sorted(batch):
            if not self._update_one(connection, (*self._key, *rest), tuple(row[place] for place in places)):
                connection.execute(insert, _parameters([row]))

    def _update_one(self, connection: sa.Connection, columns: tuple[str, ...], row: Row) -> bool:
        """Update the row at the key that comes first; return whether it exists."""
        [values] = _parameters([row])
        width = len(self._key)
        sets: dict[str, Any] = {name: sa.bindparam(f"c{place}") for place, name in enumerate(columns) if place >= width}
        if sets:
            done = connection.execute(self._table.update().where(self._matches()).values(sets), values).rowcount
            if connection.dialect.supports_sane_rowcount:
                return done > 0
        find = sa.select(sa.literal(1)).select_from(self._table).where(self._matches())
        return connection.execute(find, values).first() is not None

    def _native(self, columns: tuple[str, ...], *, sets_key: bool = False) -> sa.Insert | None:
        """Return the dialect's upsert; None if it has none that is sure to find rows by the key.

        Args:
            columns: the columns of the rows.
            sets_key: whether to overwrite the key of an existing row too: the database may consider other keys equal.
        """
        names: dict[str, Any] = {name: sa.bindparam(f"c{place}") for place, name in enumerate(columns)}
        rest = [name for name in columns if sets_key or name not in self._key]
        if self._dialect in ("mysql", "mariadb"):
            if set(self._facts.uniques) != {frozenset(self._key)}:
                return None  # it would also update a row that is equal in another unique index
            insert = mysql.insert(self._table).values(names)
            return insert.on_duplicate_key_update({name: _inserted(insert, name) for name in rest or self._key})
        if self._dialect not in ("sqlite", "postgresql"):
            return None
        make = sqlite.insert if self._dialect == "sqlite" else postgresql.insert
        statement = make(self._table).values(names)
        if not rest:
            return statement.on_conflict_do_nothing(index_elements=list(self._key))
        sets = {name: statement.excluded[name] for name in rest}
        return statement.on_conflict_do_update(index_elements=list(self._key), set_=sets)

    def _insert(self, columns: tuple[str, ...]) -> sa.Insert:
        return self._table.insert().values({name: sa.bindparam(f"c{place}") for place, name in enumerate(columns)})

    def _matches(self) -> sa.ColumnElement[bool]:
        """Return the condition on the key. Its values are the first parameters."""
        columns = [self._table.c[name] for name in self._key]
        pairs = [column == sa.bindparam(f"c{place}", type_=column.type) for place, column in enumerate(columns)]
        return sa.and_(*pairs)

    def _sorted(self, batch: RowBatch) -> Sequence[Row]:
        """Return the rows in the order of their keys. Two writers thus lock them in the same order."""
        places = [batch.columns.index(name) for name in self._key]
        try:
            return sorted(batch.rows, key=lambda row: [row[place] for place in places])
        except TypeError:
            return batch.rows


def _inserted(insert: mysql.Insert, name: str) -> Any:
    """Return the value of a column in the row that was to be inserted."""
    if "%" not in name:
        return insert.inserted[name]
    quoted = name.replace("`", "``")
    return sa.literal_column(f"VALUES(`{quoted}`)")  # SQLAlchemy would double the per cent sign twice


def _parameters(rows: Sequence[Row]) -> list[dict[str, Any]]:
    names = [f"c{place}" for place in range(len(rows[0]))]
    return [dict(zip(names, row, strict=True)) for row in rows]

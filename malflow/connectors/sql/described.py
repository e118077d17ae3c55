"""The description of a table by its database."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import mysql

from malflow.connectors.sql.catalog import Zone, character_sets, check_engine, has_conditions, zone_of_session
from malflow.connectors.sql.database import SqlError

__all__ = ["SqlTable", "described"]


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table: its columns and unique keys.

    Attributes:
        shown: its name, with its schema if that was given.
        table: the table, for statements.
        columns: the columns that can be written.
        counted: the columns that the database numbers if they are NULL.
        has_conditions: whether it may refuse a row whose values fit: by checks, triggers or unique indexes of parts of
            rows.
        character_sets: the character sets of columns of text that are not the database's own.
        zone: the kind of the session's time zone.
    """

    shown: str
    table: sa.Table
    columns: tuple[str, ...]
    counted: frozenset[str]
    primary_key: tuple[str, ...]
    uniques: tuple[frozenset[str], ...]
    has_conditions: bool = False
    character_sets: Mapping[str, str] = field(default_factory=dict)
    zone: Zone = "utc"

    def exact_types(self, column: str) -> frozenset[type]:
        """Return the Python types with values that are equal if, and only if, the database's are, in this column.

        Text is not among them, since a collation may ignore case or trailing spaces.
        """
        return frozenset({int}) if isinstance(self.table.c[column].type, sa.Integer) else frozenset()

    @property
    def without_zone(self) -> frozenset[str]:
        """The columns of dates and times that keep no zone."""
        found = {it.name: it.type for it in self.table.columns}
        return frozenset(
            name
            for name, kind in found.items()
            if isinstance(kind, (sa.DateTime, sa.Date))
            and not getattr(kind, "timezone", False)
            and not (isinstance(kind, mysql.TIMESTAMP) and self.zone != "utc")
        )


def described(connection: sa.Connection, name: str, asked_by: str, where: object, *, needs_undo: bool) -> SqlTable:
    """Return the table of a name. The name may begin with a schema.

    Args:
        connection: an open connection.
        name: the name, in the database's spelling.
        asked_by: the class that uses the table, for messages.
        where: the database, for messages.
        needs_undo: whether the table must support transactions.

    Raises:
        SqlError: if the table does not exist, or its engine has no transactions.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Did not recognize type", exc.SAWarning)  # the database judges its values
        return _described(connection, name, asked_by, where, needs_undo=needs_undo)


def _described(connection: sa.Connection, name: str, asked_by: str, where: object, *, needs_undo: bool) -> SqlTable:
    inspector = sa.inspect(connection)
    schema, _, plain = name.rpartition(".")
    try:
        found = inspector.get_columns(plain, schema or None)
    except exc.NoSuchTableError:
        found = []
    if not found:
        raise SqlError(f"{asked_by}: table {name!r} does not exist in {where!r}; create it first")
    table = sa.Table(plain, sa.MetaData(), *(_column(it) for it in found), schema=schema or None)
    if needs_undo:
        check_engine(connection, table, name)
    primary = tuple(inspector.get_pk_constraint(plain, schema or None)["constrained_columns"])
    whole = set(_uniques(inspector, plain, schema or None))
    uniques = {frozenset(primary), *whole} - {frozenset()}
    names = tuple(it["name"] for it in found if not _is_generated(it))
    counted = frozenset(it["name"] for it in found if _is_counted(it, primary, connection.dialect.name))
    conditions = _has_partial_index(inspector, table, whole) or has_conditions(connection, inspector, table, found)
    charsets, zone = character_sets(connection, table), zone_of_session(connection)
    return SqlTable(name, table, names, counted, primary, tuple(uniques), conditions, charsets, zone)


def _has_partial_index(inspector: sa.Inspector, table: sa.Table, whole: set[frozenset[str]]) -> bool:
    """Whether there is a unique index of parts of rows, or of some rows."""
    with suppress(NotImplementedError):
        indexes = [it for it in inspector.get_indexes(table.name, table.schema) if it["unique"]]
        return len(indexes) > len(whole)
    return False


def _column(found: Any) -> sa.Column[Any]:
    if isinstance(found["type"], sa.JSON):
        found["type"].none_as_null = True  # None is NULL, as in other columns
    return sa.Column(found["name"], found["type"], nullable=found["nullable"], autoincrement=False)


def _is_generated(found: Mapping[str, Any]) -> bool:
    identity = found.get("identity") or {}
    return bool(found.get("computed") or identity.get("always"))


def _is_counted(found: Mapping[str, Any], primary: tuple[str, ...], dialect: str) -> bool:
    if dialect == "sqlite":
        return primary == (found["name"],) and isinstance(found["type"], sa.Integer)
    return dialect in ("mysql", "mariadb") and found.get("autoincrement") is True


def _uniques(inspector: sa.Inspector, table: str, schema: str | None) -> Iterator[frozenset[str]]:
    """Yield the columns of each unique index of whole columns and all rows."""
    with suppress(NotImplementedError):
        for constraint in inspector.get_unique_constraints(table, schema):
            yield frozenset(constraint["column_names"])
    with suppress(NotImplementedError):
        for index in inspector.get_indexes(table, schema):
            options = index.get("dialect_options", {})
            partial = any(it.endswith(("_where", "_length")) and options[it] not in (None, {}) for it in options)
            columns = index["column_names"]
            if index["unique"] and not partial and None not in columns and "expressions" not in index:
                yield frozenset(name for name in columns if name is not None)

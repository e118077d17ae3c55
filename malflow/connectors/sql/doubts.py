"""Which values only the database can judge: their types fit the column, and it may refuse them all the same.

A transaction with such a value is written and rolled back before the snapshot. All others are judged by their types,
which costs no statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from malflow.connectors.sql.described import SqlTable
from malflow.connectors.tables.transaction_rows import RowBatch

__all__ = ["Doubts"]

Doubt: TypeAlias = Callable[[Any], bool]
"""Whether only the database knows if it takes a value that is not None."""

_SURE = (sa.Boolean, sa.Integer, sa.Numeric, sa.Float, sa.Date, sa.LargeBinary, sa.BINARY, sa.VARBINARY)
"""Types of columns whose values are judged by type and size, in all of `_KNOWN`."""
_KNOWN = ("sqlite", "mysql", "mariadb", "postgresql")
_SUPERSETS_OF_ASCII = frozenset(("utf8mb3", "utf8", "latin1", "latin2", "latin5", "ascii", "cp1250", "cp1251"))
_FIRST_TIMESTAMP, _LAST_TIMESTAMP = date(1970, 1, 3), date(2038, 1, 17)
"""In any zone, a timestamp of MariaDB begins before, and ends after."""
_LONGEST_TIME = timedelta(hours=838, minutes=59, seconds=59)
_FIRST_YEAR, _LAST_YEAR = 1901, 2155


class Doubts:
    """The columns of a table that may refuse a value of the right type.

    Args:
        table: the description of the table.
        dialect: the name of its database's dialect.
    """

    def __init__(self, table: SqlTable, dialect: str) -> None:
        found = {name: _doubt_of(table, name, dialect) for name in table.columns}
        self._doubts = {name: doubt for name, doubt in found.items() if doubt is not None}

    def __bool__(self) -> bool:
        """Whether there is such a column."""
        return bool(self._doubts)

    def are_in(self, batches: Sequence[Sequence[Any]]) -> bool:
        """Whether a batch of plain values has a value that only the database can judge."""
        return bool(self._doubts) and any(self._has_one(RowBatch(*batch)) for batch in batches)

    def _has_one(self, batch: RowBatch) -> bool:
        before = int(batch.operation == "merge")
        for place, name in enumerate(batch.columns, before):
            doubt = self._doubts.get(name)
            if doubt is not None and any(row[place] is not None and doubt(row[place]) for row in batch.rows):
                return True
        return False


def _doubt_of(table: SqlTable, name: str, dialect: str) -> Doubt | None:
    column = table.table.c[name].type
    if dialect not in _KNOWN:
        return _always
    if isinstance(column, mysql.TIMESTAMP):
        return _always if table.zone == "changing" else _unlike_timestamp
    if isinstance(column, mysql.YEAR):
        return _unlike_year
    if isinstance(column, mysql.BIT):
        return _unlike_bits(int(column.length or 1))
    if isinstance(column, mysql.SET):
        return _unlike_members(frozenset(column.values))
    if isinstance(column, sa.Enum):
        members = frozenset(column.enums)
        return lambda value: value not in members
    if isinstance(column, sa.Time):
        return _unlike_time
    if isinstance(column, sa.String):
        return _beyond(table.character_sets.get(name, "utf8mb4"))
    if isinstance(column, (*_SURE, sa.DateTime)) or (dialect == "sqlite" and isinstance(column, sa.JSON)):
        return None
    return _always


def _always(_: Any) -> bool:
    return True


def _beyond(charset: str) -> Doubt | None:
    """Return the doubt about text in a character set."""
    if charset == "utf8mb4":
        return None
    return _unlike_ascii if charset in _SUPERSETS_OF_ASCII else _always


def _unlike_ascii(value: Any) -> bool:
    return not isinstance(value, str) or not value.isascii()


def _unlike_timestamp(value: Any) -> bool:
    if not isinstance(value, datetime):
        return True
    return not _FIRST_TIMESTAMP < value.date() < _LAST_TIMESTAMP


def _unlike_time(value: Any) -> bool:
    return not (isinstance(value, time) or (isinstance(value, timedelta) and abs(value) <= _LONGEST_TIME))


def _unlike_year(value: Any) -> bool:
    return type(value) is not int or not (value == 0 or _FIRST_YEAR <= value <= _LAST_YEAR)


def _unlike_bits(width: int) -> Doubt:
    return lambda value: not (isinstance(value, int) and 0 <= value < 2**width)


def _unlike_members(known: frozenset[str]) -> Doubt:
    return lambda value: not (isinstance(value, str) and known.issuperset(value.split(",")))

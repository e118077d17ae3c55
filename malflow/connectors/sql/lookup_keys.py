"""Keys of look-ups as a driver gets them: equal keys alike, and no key that the database compares otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from math import isnan
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from malflow.connectors.sql.database import SqlError
from malflow.connectors.sql.described import SqlTable
from malflow.connectors.sql.values import plain_value
from malflow.words import short_repr

__all__ = ["LookupKeys"]

_LARGEST: Final = 2**63
"""SQLite's integers are below it; larger ones are floats."""

_OF_OTHERS: Final = ("numpy", "pandas")
"""Packages whose values have no equal in Python; the driver of SQLite would take some for their bytes."""

_MOST_DIGITS: Final = 400
"""A number with more digits before the point does not fit a float."""

_WHOLE: Final = 2**53
"""From here on, SQLite compares a float with integers otherwise than Python."""


class LookupKeys:
    """The keys of a table for look-ups.

    Args:
        table: the table.
        key: the columns of the key.
        dialect: SQLAlchemy's name of the dialect.

    Raises:
        SqlError: if a column of the key is of a type that shows other numbers than it compares.
    """

    def __init__(self, table: SqlTable, key: Sequence[str], dialect: str) -> None:
        self._table = table.shown
        kinds = {name: table.table.c[name].type for name in key}
        self._columns = [(name, _converter(kinds[name], dialect), name in table.without_zone) for name in key]
        for name in key:
            if _is_single(kinds[name], dialect):
                raise SqlError(
                    f"table {table.shown}, column {name!r} can't be a key of look-ups: it has numbers of single "
                    "precision, which the database compares otherwise than it shows; use another column, or one of "
                    "double precision"
                )

    def plain(self, key: Any) -> Any:
        """Return a key as the driver gets it; None if no row can have it.

        Raises:
            SqlError: if a time has a zone, and its column has none; or no value of Python equals it.
        """
        parts = (key,) if len(self._columns) == 1 else key
        given = tuple(self._part(part, *column) for part, column in zip(parts, self._columns, strict=True))
        if None in given:
            return None
        return given[0] if len(given) == 1 else given

    def _part(self, part: Any, column: str, convert: Callable[[Any], Any], without_zone: bool) -> Any:
        value = convert(plain_value(part))
        if type(value).__module__.partition(".")[0] in _OF_OTHERS:
            raise SqlError(
                f"table {self._table}, column {column!r}: the key {short_repr(part)} can't be looked up: it has no "
                "equal value of Python; convert it"
            )
        if without_zone and isinstance(value, datetime) and value.tzinfo is not None:
            raise SqlError(
                f"table {self._table}, column {column!r} has times without a zone; got the key {short_repr(part)}; "
                "convert it to the zone of the table, without tzinfo"
            )
        return value


def _is_single(kind: Any, dialect: str) -> bool:
    if dialect in ("mysql", "mariadb"):
        return isinstance(kind, mysql.FLOAT)
    return dialect == "postgresql" and isinstance(kind, sa.REAL)


def _converter(kind: Any, dialect: str) -> Callable[[Any], Any]:
    has_decimals = isinstance(kind, sa.Numeric) and kind.asdecimal  # which SQLAlchemy converts itself
    return _of_sqlite if dialect == "sqlite" and not has_decimals else _of_all


def _of_all(value: Any) -> Any:
    """Return a value as every driver takes it; None if no column has it."""
    if isinstance(value, Fraction):
        return _number(value)
    if isinstance(value, str):
        return value if _has_bytes(value) else None
    if isinstance(value, Decimal) and value.is_nan():
        return None
    return None if isinstance(value, float) and isnan(value) else value


def _of_sqlite(value: Any) -> Any:
    """Return a value as the driver of SQLite takes it. SQLite knows integers of 64 bits and floats."""
    return _number(value) if isinstance(value, (int, float, Decimal)) else _of_all(value)


def _number(value: Any) -> Any:
    """Return the integer or float that equals a number; None if there is none."""
    if isinstance(value, float) and abs(value) < _WHOLE:
        return value
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() > _MOST_DIGITS:
        return None
    try:
        if value == (whole := int(value)) and -_LARGEST <= whole < _LARGEST:
            return whole
        near = float(value)
    except (ValueError, OverflowError):
        return None
    return near if near == value else None


def _has_bytes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

"""Cells that SQLAlchemy or the server would round, cut or wrap when they are read."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import mysql
from sqlalchemy.types import NullType, TypeDecorator

from malflow.connectors.single_precision import shortest_single

__all__ = ["exact_cell", "is_any_of"]

_DAY = timedelta(days=1)


def exact_cell(column: sa.Column[Any], dialect: str) -> sa.ColumnElement[Any]:
    """Return the expression that selects the values of a column without loss."""
    kind = column.type
    if dialect in ("mysql", "mariadb"):
        if isinstance(kind, mysql.TIME):
            return sa.type_coerce(column, _TimeOrSpan())
        if isinstance(kind, mysql.FLOAT) and kind.scale is None:
            return sa.type_coerce(sa.cast(column, mysql.DOUBLE()), _Single())
    if dialect == "sqlite" and isinstance(kind, sa.Numeric) and kind.asdecimal:
        return sa.type_coerce(column, _Digits())
    return column


def is_any_of(asked: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """Return the condition that columns have one of the values of a parameter."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not refer to an OperatorClass", exc.SADeprecationWarning)
        return asked.in_(sa.bindparam(name, expanding=True))


class _TimeOrSpan(TypeDecorator[Any]):
    """A time of day, or a `timedelta` below zero or from a day on. SQLAlchemy would drop the days."""

    impl = NullType
    cache_ok = True

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        del dialect
        is_time = isinstance(value, timedelta) and timedelta(0) <= value < _DAY
        return (datetime.min + value).time() if is_time else value  # noqa: DTZ901 - a time of day


class _Single(TypeDecorator[Any]):
    """The shortest number that is this one in single precision; MySQL shows six digits."""

    impl = NullType
    cache_ok = True

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        del dialect
        return shortest_single(value) if isinstance(value, float) else value


class _Digits(TypeDecorator[Any]):
    """The decimal digits of a number of SQLite. SQLAlchemy would keep ten after the point."""

    impl = NullType
    cache_ok = True

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        del dialect
        return Decimal(repr(value)) if isinstance(value, (int, float)) else value

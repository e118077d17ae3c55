"""Whether a column keeps a value as it is: what the database would round, cut, pad or take for something else."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

__all__ = ["Check", "unkept"]

Check: TypeAlias = Callable[[Any], str | None]
"""Returns the problem with a value that is not None, or None."""

_MYSQL = ("mysql", "mariadb")
_INSTEAD = "; round it, or pass round=True"
_OF_KEY = ", so the key could not be found again"
_MICROSECOND = timedelta(microseconds=1)
_LARGEST_SINGLE = 3.4028234663852886e38
"""The largest finite float of 32 bits, by IEEE 754."""

_FIRST_YEAR, _LAST_YEAR = 1901, 2155


def unkept(column: Any, dialect: str, *, rounds: bool, is_key: bool) -> list[Check]:
    """Return the checks of a column of this type.

    Args:
        column: the type of the column.
        dialect: the name of the dialect.
        rounds: whether the database may round digits and fractions of a second, and cut the time of day of a date.
        is_key: whether the column is looked up by its values; then they are never rounded.
    """
    checks: list[Check] = []
    if not rounds or is_key:
        checks += _digits(column, dialect, _OF_KEY if is_key else _INSTEAD)
    if isinstance(column, sa.Time):
        checks += [_without_nanoseconds, _unlike_time]
    if dialect in _MYSQL:
        checks += [_unlike_cell, *_of_mysql(column)]
    return checks


def _digits(column: Any, dialect: str, instead: str) -> list[Check]:
    if isinstance(column, (sa.Numeric, sa.Float)):
        return _of_numbers(column, dialect, instead)
    if isinstance(column, sa.Date):
        return [lambda value: f"has a time of day, which a date does not keep{instead}" if _has_clock(value) else None]
    if isinstance(column, (sa.DateTime, sa.Time)) and dialect != "sqlite":
        digits = _digits_of_seconds(column, dialect)
        unit = 10 ** (6 - digits)
        more = f"has more than {digits} decimals of a second, which the column keeps{instead}"
        return [lambda value: more if _microseconds(value) % unit else None]
    return []


def _of_numbers(column: Any, dialect: str, instead: str) -> list[Check]:
    checks: list[Check] = []
    is_float = isinstance(column, sa.Float)
    scale = None if dialect == "sqlite" else column.scale if not is_float else getattr(column, "scale", None)
    if scale is None and not is_float and dialect in _MYSQL:
        scale = 0
    if scale is not None:
        more = f"has more than {scale} decimals, which the column keeps{instead}"
        checks.append(lambda value: more if _has_decimals(value, int(scale)) else None)
    if is_float and dialect != "sqlite":
        shorten = _shortest_single if _is_single(column, dialect) else repr
        digits = f"has more digits than the column keeps{instead}"
        checks.append(lambda value: None if _is_exact(value, shorten) else digits)
    return checks


def _digits_of_seconds(column: Any, dialect: str) -> int:
    if dialect in _MYSQL:
        return int(getattr(column, "fsp", None) or 0)
    precision = getattr(column, "precision", None)
    return 6 if precision is None else int(precision)


def _microseconds(value: Any) -> int:
    return value // _MICROSECOND if isinstance(value, timedelta) else int(getattr(value, "microsecond", 0))


def _has_decimals(value: Any, most: int) -> bool:
    """Whether a number has more decimals; a float has the decimals of its shortest text."""
    if isinstance(value, Fraction):
        return bool((value * 10**most).denominator > 1)
    try:
        number = Decimal(repr(float(value))) if isinstance(value, float) else Decimal(value)
    except (ArithmeticError, TypeError, ValueError):
        return False  # it is no number
    _, digits, exponent = number.as_tuple()
    return isinstance(exponent, int) and -exponent > most and any(digits[exponent + most :])


def _is_single(column: Any, dialect: str) -> bool:
    if dialect in _MYSQL:
        return isinstance(column, mysql.FLOAT) and not (column.scale is None and (column.precision or 0) > 24)  # noqa: PLR2004 - digits of a single
    return isinstance(column, sa.REAL)


def _is_exact(value: Any, shorten: Callable[[float], str]) -> bool:
    """Whether a number, if not a float, equals its nearest float in all digits."""
    if isinstance(value, float) or not isinstance(value, (int, Decimal)):
        return True
    try:
        return not math.isfinite(value) or Decimal(shorten(float(value))) == value
    except (OverflowError, struct.error):
        return True  # it is out of range, which is another check


def _shortest_single(number: float) -> str:
    """Return the shortest text of the next number of 32 bits."""
    raw = struct.pack("f", number)
    [stored] = struct.unpack("f", raw)
    texts = (f"{stored:.{digits}g}" for digits in range(1, 9))
    return next((it for it in texts if struct.pack("f", float(it)) == raw), f"{stored:.9g}")


def _has_clock(value: Any) -> bool:
    if not isinstance(value, datetime):
        return False
    return (value if value.tzinfo is None else value.astimezone(UTC)).time() != time(0)


def _without_nanoseconds(value: Any) -> str | None:
    """Return the problem with a duration of pandas, or None."""
    return "has nanoseconds, which the database does not keep" if getattr(value, "nanoseconds", 0) else None


def _unlike_time(value: Any) -> str | None:
    if isinstance(value, time) and value.tzinfo is not None:
        return "has a zone, which the column does not keep; convert it to UTC, and write it without a zone"
    if isinstance(value, (time, timedelta)):
        return None
    return f"is {type(value).__name__}, not a time; write a time or a timedelta"


def _of_mysql(column: Any) -> list[Check]:
    if isinstance(column, mysql.YEAR):
        return [_unlike_year]
    if isinstance(column, mysql.BIT):
        return [lambda value: f"is {type(value).__name__}, not bits; write an int" if _is_text(value) else None]
    if isinstance(column, mysql.FLOAT) and _is_single(column, "mysql"):
        return [_beyond_single]
    if isinstance(column, sa.BINARY) and column.length:
        length = int(column.length)
        return [lambda value: _shorter(value, length)]
    return []


def _unlike_cell(value: Any) -> str | None:
    """Return the problem with a value that drivers would write as several."""
    is_many = isinstance(value, (list, tuple, dict, set, frozenset))
    return f"is {type(value).__name__}, not a cell; write text, as by json.dumps" if is_many else None


def _is_text(value: Any) -> bool:
    return not isinstance(value, (int, bytes, bytearray, memoryview))


def _unlike_year(value: Any) -> str | None:
    """Return the problem with a year: the server takes 1 to 99 for years of this century and the last."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return f"is {type(value).__name__}, not a year; write an int"
    if isinstance(value, str) and not (len(value) == 4 and value.isascii() and value.isdecimal()):  # noqa: PLR2004 - digits
        return "is not a year of four digits; write an int"
    year = int(value)
    if year in range(1, 100) or (isinstance(value, str) and not year):
        return f"would be another year; the column takes 0 and {_FIRST_YEAR} to {_LAST_YEAR}"
    return None


def _beyond_single(value: Any) -> str | None:
    return "is out of the column's range" if abs(value) > _LARGEST_SINGLE else None


def _shorter(value: Any, length: int) -> str | None:
    found = len(value) if isinstance(value, (bytes, bytearray)) else memoryview(value).nbytes
    if found < length:
        return f"has {found} bytes; the column would add zeros up to {length}: add them, or make it varbinary"
    return None

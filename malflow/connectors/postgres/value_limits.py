"""Whether a column keeps a value as it is: what the server would round, cut, pad or take for something else."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from numbers import Number
from typing import Any, Final, TypeAlias
from uuid import UUID

from malflow.connectors.postgres.column_kinds import Kind

__all__ = [
    "DATE",
    "FLOAT4",
    "FLOATS",
    "INTERVAL",
    "JSON",
    "NUMERIC",
    "TIMES",
    "Check",
    "check_of",
    "in_utc",
    "kept_types",
    "plain_number",
]

Check: TypeAlias = Callable[[Any], str | None]
"""Returns the problem with a value, or None."""

JSON: Final = frozenset({114, 3802})
BYTEA, DATE, INTERVAL = 17, 1082, 1186
TIMES: Final = frozenset({1114, 1184})
_TIME, _TIME_WITH_ZONE, _TIMESTAMP = 1083, 1266, 1114
NUMERIC, FLOAT4, _FLOAT8, _MONEY = 1700, 700, 701, 790
FLOATS: Final = frozenset({FLOAT4, _FLOAT8})
_VARCHAR, _CHAR, _ONE_BYTE, _NAME, _UUID, _OID = 1043, 1042, 18, 19, 2950, 26

_KEPT: dict[int, frozenset[type]] = {
    16: frozenset({bool}),
    20: frozenset({int}),
    21: frozenset({int}),
    23: frozenset({int}),
    BYTEA: frozenset({bytes}),
    DATE: frozenset({date}),
    FLOAT4: frozenset({float}),
    _FLOAT8: frozenset({float}),
    _UUID: frozenset({UUID}),
}
"""The Python types whose values a type keeps as they are, or the server refuses."""

_WITHOUT_LIMITS: dict[int, frozenset[type]] = {
    NUMERIC: frozenset({Decimal, int, float}),
    INTERVAL: frozenset({timedelta}),
    **dict.fromkeys(TIMES, frozenset({datetime, date})),
}
"""The same for types that may have limits, but have none."""

_BYTES = (bytes, bytearray, memoryview)
_ADDRESSES = (IPv4Address, IPv6Address, IPv4Interface, IPv6Interface, IPv4Network, IPv6Network)
_TAKES: dict[int, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys((20, 21, 23, 26, NUMERIC, FLOAT4, _FLOAT8, _MONEY), ((Number,), "a number")),
    16: ((Number,), "a boolean"),
    BYTEA: (_BYTES, "bytes"),
    DATE: ((date,), "a date"),
    **dict.fromkeys((_TIME, _TIME_WITH_ZONE), ((time, date), "a time")),
    **dict.fromkeys(TIMES, ((date,), "a datetime")),
    INTERVAL: ((timedelta,), "a timedelta"),
    _UUID: ((UUID,), "a UUID"),
    **dict.fromkeys((650, 869), (_ADDRESSES, "an address")),
    **dict.fromkeys((_ONE_BYTE, 1560, 1562), ((), "text")),
}
"""The Python types that a type takes, besides text: it would read the text of another as something else."""

_ANY = ((object,), "")

_HEADER, _NAME_BYTES = 4, 63
_ALL_FIELDS, _ALL_DIGITS = 0x7FFF, 0xFFFF
_SMALLEST = ((12, 1), (11, 60_000_000), (10, 3_600_000_000), (3, 86_400_000_000))
"""Bits of the fields of an interval type, and the microseconds of each, the smallest first."""

_MICROSECOND = timedelta(microseconds=1)
_OCTAL = re.compile(r"\\[0-3][0-7]{2}")
_FRACTION = re.compile(r":\d\d[.,](\d+)")
_ZONE = re.compile(r":\d\d.*(?:[zZ]|[+-]\d\d(?::?\d\d)*)\s*$")
_CLOCK = re.compile(r"[T ](\d\d:\d\d.*)")


def _is_none_like(value: Any) -> bool:
    """Whether a value of pandas stands for a missing one."""
    return type(value).__name__ in ("NaTType", "NAType")


def kept_types(kind: Kind) -> frozenset[type]:
    """Return the Python types that need no check."""
    if kind.modifier == -1 and kind.oid in _WITHOUT_LIMITS:
        return _WITHOUT_LIMITS[kind.oid]
    if kind.category == "S" and kind.oid != _NAME and (kind.modifier == -1 or kind.oid == _CHAR):
        return frozenset({str})
    return _KEPT.get(kind.oid, frozenset())


def check_of(kind: Kind, *, rounds: bool, is_text: bool = False) -> Check:
    """Return the check of a cell of a column, or of an array's elements; None needs none.

    Args:
        kind: the type of the column.
        rounds: whether the server may round digits and fractions of a second, and cut the time of day of a date.
        is_text: whether texts are Postgres's own, of a session in UTC; a zone in them may then be ignored.
    """
    of_kind = _check_of_kind(kind, rounds=rounds, is_text=is_text)
    types, called = _TAKES.get(kind.oid, _ANY)

    def check(value: Any) -> str | None:
        if _is_none_like(value):
            return "is not a value; write None"
        if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
            return "has nanoseconds, which Postgres does not keep; write .floor('us')"
        if not isinstance(value, (str, *types)) and (not isinstance(value, Enum) or isinstance(value, Number)):
            return f"is {type(value).__name__}, not {called}, and {kind.name} might misread it; convert it first"
        return None if of_kind is None else of_kind(value)

    return check


def _check_of_kind(kind: Kind, *, rounds: bool, is_text: bool) -> Check | None:
    digits = _digits_of(kind)
    more = f"has more digits than {kind.name} keeps; round it, or pass round=True"
    if kind.oid in (NUMERIC, _MONEY) and digits is not None and not rounds:
        return lambda value: more if _has_decimals(value, digits) else None
    if kind.oid in FLOATS and not rounds:
        shorten = _shortest_float4 if kind.oid == FLOAT4 else repr
        return lambda value: None if _is_exact_float(value, shorten) else more
    if kind.oid == _OID:
        return lambda value: "is below 0" if isinstance(value, int) and value < 0 else None
    if kind.category == "S" or kind.oid == _ONE_BYTE:
        return _check_of_text(kind)
    if kind.oid == INTERVAL:
        unit = 1 if rounds else _unit_of_interval(kind.modifier)
        return lambda value: more if isinstance(value, timedelta) and value // _MICROSECOND % unit else None
    if kind.category == "D":
        fraction = 6 if rounds or digits is None else digits
        return _check_of_time(kind, fraction, more, cuts=rounds, takes_zone=is_text)
    return None


def _digits_of(kind: Kind) -> int | None:
    """Return the number of decimals that a type keeps; None if there is no limit."""
    if kind.oid == _MONEY:
        return 2
    if kind.modifier == -1:
        return None
    if kind.oid == NUMERIC:
        return (kind.modifier - _HEADER & 0x7FF ^ 0x400) - 0x400
    return kind.modifier


def _has_decimals(value: Any, most: int) -> bool:
    """Whether a number, or the text of one, has more decimals; negative ones are zeros before the point."""
    try:
        number = value if isinstance(value, Decimal) else Decimal(value if isinstance(value, str) else repr(value))
    except ArithmeticError:
        return False  # it is no number: the server says so
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or -exponent <= most:
        return False
    return any(digits[exponent + most :])


def _is_exact_float(value: Any, shorten: Callable[[float], str]) -> bool:
    """Whether a float is a number's next one in all its digits; a float is rounded as the type does."""
    if isinstance(value, float) or not isinstance(value, (int, Decimal)):
        return True
    try:
        return not Decimal(value).is_finite() or Decimal(shorten(float(value))) == value
    except OverflowError:
        return True  # the server refuses it


def _shortest_float4(number: float) -> str:
    """Return the shortest text of the next number with 32 bits."""
    stored = struct.unpack("f", struct.pack("f", number))[0]
    texts = (f"{stored:.{digits}g}" for digits in range(1, 9))
    return next((it for it in texts if struct.pack("f", float(it)) == struct.pack("f", stored)), f"{stored:.9g}")


def _check_of_text(kind: Kind) -> Check:
    length = kind.modifier - _HEADER if kind.oid in (_VARCHAR, _CHAR) and kind.modifier != -1 else None

    def check(value: Any) -> str | None:
        if not isinstance(value, str):
            wrong = isinstance(value, (*_BYTES, list, tuple)) or type(value) is bool
            return f"is {type(value).__name__}, not text; convert it first" if wrong else None
        if kind.oid == _ONE_BYTE and len(value.encode(errors="replace")) > 1 and not _OCTAL.fullmatch(value):
            return 'is longer than the one byte that "char" keeps'
        if kind.oid == _NAME and len(value.encode(errors="replace")) > _NAME_BYTES:
            return f"is longer than the {_NAME_BYTES} bytes that the type name keeps"
        if length is not None and kind.oid == _VARCHAR and len(value) > length:
            return f"has {len(value)} characters; {kind.name} keeps {length}"
        return None

    return check


def _unit_of_interval(modifier: int) -> int:
    """Return the microseconds of the smallest step of an interval type."""
    if modifier == -1:
        return 1
    fields, digits = modifier >> 16 & _ALL_FIELDS, modifier & _ALL_DIGITS
    smallest = next((unit for bit, unit in _SMALLEST if fields >> bit & 1), 0)
    if not smallest:
        return timedelta.max // _MICROSECOND + 1  # years and months only
    return int(10 ** (6 - digits)) if smallest == 1 and digits != _ALL_DIGITS else smallest


def _check_of_time(kind: Kind, digits: int, more: str, *, cuts: bool, takes_zone: bool) -> Check:
    unit = 10 ** (6 - digits)

    def check(value: Any) -> str | None:
        if isinstance(value, str):
            found = _FRACTION.search(value)
            if kind.oid != DATE and found is not None and found[1][digits:].strip("0"):
                return more
        elif getattr(value, "microsecond", 0) % unit:
            return more
        if kind.oid == DATE and not cuts and _has_clock(value):
            return "has a time of day, which a date does not keep; write .date(), or pass round=True"
        return None if takes_zone else _unkept_part(value, kind)

    return check


def _unkept_part(value: Any, kind: Kind) -> str | None:
    """Return which part of a point in time the type drops, or None."""
    if kind.oid in (_TIME, _TIME_WITH_ZONE) and isinstance(value, date):
        return f"has a date, which {kind.name} does not keep; write .timetz()"
    if kind.oid == _TIME and isinstance(value, time) and value.tzinfo is not None:
        return f"has a zone, which {kind.name} does not keep; convert it to UTC, and write it without a zone"
    if kind.oid in (_TIME, _TIMESTAMP) and isinstance(value, str) and _ZONE.search(value):
        return f"has a zone, which {kind.name} ignores in a text; write a datetime"
    return None


def _has_clock(value: Any) -> bool:
    """Whether a time of day is not midnight."""
    if isinstance(value, str):
        found = _CLOCK.search(value)
        return found is not None and bool(re.search("[1-9]", found[1]))
    return isinstance(value, datetime) and in_utc(value).time() != time(0)


def in_utc(value: datetime) -> datetime:
    """Return a point in time with a zone in UTC; others as they are.

    Raises:
        OverflowError: if UTC has a year that Python does not have.
    """
    return value if value.tzinfo is None else value.astimezone(UTC)


def plain_number(value: Any) -> Any:
    """Return the number of a scalar of numpy, exactly; other values as they are."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return value.item() if kind and kind in "biuf" and not getattr(value, "ndim", 1) else value

"""Literals: their values and types."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from malflow.sql.functions.times import date_of_text, instant_of_text, time_of_text
from malflow.sql.syntax.expressions import Literal
from malflow.sql.typed import Value
from malflow.sql.types import BIGINT, BOOLEAN, DATE, DAYS, DOUBLE, INT, MONTHS, MOST_DIGITS, NULL, SqlType, timestamp

__all__ = ["interval_of", "literal"]

_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}

_MICROSECONDS = {
    "WEEK": 604_800_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}

_PARTS = ("DAY", "HOUR", "MINUTE", "SECOND")
_SEPARATORS = {"DAY": " ", "HOUR": ":", "MINUTE": ":"}


def literal(node: Literal) -> Value:
    """Return the value of a literal.

    Raises:
        ValueError: if its text is not of its type.
    """
    kind: SqlType
    value: Any
    match node.kind:
        case "NUMBER":
            kind, value = _number(node.text)
        case "TEXT":
            kind, value = SqlType("CHAR", size=max(1, len(node.text))), node.text
        case "BYTES":
            kind, value = SqlType("BINARY", size=max(1, len(node.text) // 2)), bytes.fromhex(node.text)
        case "NULL":
            return Value(NULL, node.span, None)
        case "TRUE" | "FALSE":
            kind, value = BOOLEAN, node.kind == "TRUE"
        case "INTERVAL":
            kind, value = (MONTHS if node.units[0] in _MONTHS else DAYS), interval_of(node)
        case "WORD":
            kind, value = SqlType("WORD"), node.text
        case _:
            kind, value = _instant(node)
    return Value(kind.as_nullable(False), node.span, value)


def _number(text: str) -> tuple[SqlType, int | float | Decimal]:
    if "e" in text.lower():
        return DOUBLE, float(text)
    whole, _, behind = text.partition(".")
    digits = len(whole) + len(behind)
    if digits > MOST_DIGITS:
        raise ValueError(f"the number has more than {MOST_DIGITS} digits")
    if behind:
        return SqlType("DECIMAL", size=digits, scale=len(behind)), Decimal(text)
    number = int(whole)
    if number < 1 << 63:
        return (INT if number < 1 << 31 else BIGINT), number
    return SqlType("DECIMAL", size=digits), Decimal(number)


def _instant(node: Literal) -> tuple[SqlType, int]:
    if node.kind == "DATE":
        return DATE, date_of_text(node.text)
    digits = min(6, len(node.text.partition(".")[2].rstrip()))
    if node.kind == "TIME":
        return SqlType("TIME", size=digits), time_of_text(node.text, digits)
    return timestamp(digits), instant_of_text(node.text, digits)


def interval_of(node: Literal) -> int:
    """Return the months of an interval of years and months, the microseconds of another.

    Raises:
        ValueError: if its text does not fit its units.
    """
    sign, text = (-1, node.text[1:]) if node.text.startswith("-") else (1, node.text.removeprefix("+"))
    first, last = node.units
    try:
        if first in _MONTHS:
            return sign * _months(text.strip(), first, last)
        return sign * _microseconds(text.strip(), first, last)
    except ValueError:
        units = first if first == last else f"{first} TO {last}"
        raise ValueError(
            f"{node.text!r} is not an interval of {units}, such as {_EXAMPLES.get(units, '5')!r}"
        ) from None


_EXAMPLES = {"YEAR TO MONTH": "1-6", "DAY TO HOUR": "1 12", "DAY TO MINUTE": "1 12:30", "DAY TO SECOND": "1 12:30:00.5"}


def _months(text: str, first: str, last: str) -> int:
    if first == last:
        return _whole(text) * _MONTHS[first]
    if (first, last) != ("YEAR", "MONTH"):
        raise ValueError(text)
    years, _, months = text.partition("-")
    return _whole(years) * _MONTHS["YEAR"] + _whole(months)


def _microseconds(text: str, first: str, last: str) -> int:
    if first == last:
        whole, _, fraction = text.partition(".")
        if fraction and first != "SECOND":
            raise ValueError(text)
        return _whole(whole) * _MICROSECONDS[first] + _fraction(fraction)
    if first not in _PARTS or last not in _PARTS or _PARTS.index(first) >= _PARTS.index(last):
        raise ValueError(text)
    total = 0
    units = _PARTS[_PARTS.index(first) : _PARTS.index(last)]
    for unit in units:
        part, _, text = text.partition(_SEPARATORS[unit])
        total += _whole(part) * _MICROSECONDS[unit]
    whole, _, fraction = text.partition(".")
    return total + _whole(whole) * _MICROSECONDS[last] + _fraction(fraction if last == "SECOND" else fraction and "x")


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


def _fraction(text: str) -> int:
    return _whole(text[:6].ljust(6, "0")) if text else 0

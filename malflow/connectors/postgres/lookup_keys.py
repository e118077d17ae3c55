"""Keys of look-ups as the text of a column's type: each as if it were asked alone, and equal keys alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from numbers import Number
from typing import Any, Final, TypeAlias

import psycopg

from malflow.connectors.postgres.adapters import text_of
from malflow.connectors.postgres.column_kinds import Kind
from malflow.connectors.postgres.connection import PostgresError
from malflow.connectors.postgres.value_limits import FLOAT4, FLOATS, NUMERIC, check_of, in_utc, plain_number
from malflow.connectors.single_precision import shortest_single
from malflow.words import short_repr

__all__ = ["KeyText", "key_texts"]

KeyText: TypeAlias = Callable[[Any], str | None]
"""Returns the text of a key, or None if no row can have it."""

_LARGE: Final = 10**300
"""A bound below the largest float, about 1.8e308: `float()` raises an error beyond that."""

_MOST_DIGITS: Final = 131_072
"""Of Postgres's numeric, before the point; it has fewer after it."""

_BOOL, _TEXTS = 16, (25, 1042, 1043)
_WHOLE: Final = {20: range(-(2**63), 2**63), 21: range(-(2**15), 2**15), 23: range(-(2**31), 2**31), 26: range(2**32)}
"""By the oid of a type of integers, those that it has."""


def key_texts(kind: Kind, place: str) -> KeyText:
    """Return a function that writes keys as texts of a column's type.

    Numbers that are equal have one text, since they are one key: 1, 1.0, Decimal(1) and True. A number that the column
    can't have finds no row.

    Args:
        kind: the type of the column; its limits do not count.
        place: the table and the column, for the error.

    Raises:
        PostgresError: from the function, if a key is of a type that the column does not compare.
    """
    check, is_inexact = check_of(kind, rounds=True), check_of(kind, rounds=False)

    is_text = kind.oid in _TEXTS

    def text(key: Any) -> str | None:
        if is_text and type(key) is str:
            return key if _may_be_text(key) else None
        key = _python_number(key)
        if key is None:
            return None
        try:
            wrong = check(key)
            if wrong is None and isinstance(key, Number):
                return None if kind.oid in FLOATS and not _is_float(key, kind.oid) else _number_text(key, kind)
            if wrong is None and is_inexact(key):
                return None
            found = text_of(in_utc(key) if isinstance(key, datetime) else key)
        except (psycopg.Error, TypeError, ValueError, OverflowError, RecursionError) as error:
            wrong, found = f"has no text in Postgres ({error})", None
        if wrong is not None:
            raise PostgresError(f"{place}: the key {short_repr(key)} can't be looked up: it {wrong}")
        return found

    return text


def _may_be_text(text: str) -> bool:
    """Whether Postgres has a text: without NUL and lone surrogates."""
    if text.isascii():
        return "\0" not in text
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _python_number(key: Any) -> Any:
    """Return a number as an int, a float or a Decimal that equals it, if there is one; other keys as they are."""
    key = plain_number(key)
    if isinstance(key, Fraction) and key.denominator == 1:
        return int(key)
    if isinstance(key, Fraction) and abs(key) < _LARGE and float(key) == key:
        return float(key)
    return int(key) if isinstance(key, bool) else key


def _is_float(key: Any, oid: int) -> bool:
    """Whether a column of floats may have a number that equals a key."""
    if isinstance(key, Decimal) and not key.is_finite():
        return True
    try:
        near = float(key)
    except OverflowError:
        return False
    return (near == key and (oid != FLOAT4 or shortest_single(near) == near)) or near != near  # noqa: PLR0124 - NaN


def _number_text(key: Any, kind: Kind) -> str | None:
    if isinstance(key, float) and math.isfinite(key):
        key = int(key) if key.is_integer() else key
    if kind.oid in FLOATS and isinstance(key, Decimal) and key.is_finite():
        key = float(key)
    if isinstance(key, (float, Decimal)) and not Decimal(key).is_finite():
        return str(key) if kind.oid in (*FLOATS, NUMERIC) else None
    if isinstance(key, Decimal):
        if key and not -_MOST_DIGITS < key.adjusted() < _MOST_DIGITS:
            return None
        plain = format(key, "f")
        key = plain.rstrip("0").rstrip(".") if "." in plain else plain
        key = int(key) if key.lstrip("-").isdigit() else key
    if kind.oid == _BOOL:
        return {0: "f", 1: "t"}.get(key)
    if kind.oid not in _WHOLE:
        return str(key)
    return str(key) if isinstance(key, int) and key in _WHOLE[kind.oid] else None

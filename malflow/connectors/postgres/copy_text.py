"""Rows as the text of a COPY, column by column."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import psycopg
from psycopg.adapt import PyFormat, Transformer

from malflow.connectors.postgres.errors import PostgresError
from malflow.errors import short_repr

__all__ = ["Column", "copy_text"]

Column: TypeAlias = tuple[str, int, bool]
"""A column's name, the oid of its type, and whether its values are already Postgres's text."""

_JSON = frozenset({114, 3802})
_WITHOUT_ZONE = frozenset({1082, 1114})
"""Date and time types for which Postgres ignores the zone in a text."""
_NULL = "\\N"
_SPECIAL = ("\\", "\n", "\r", "\t")
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


_WRITERS: dict[type, Callable[[Any], str]] = {
    int: str,
    bool: {True: "t", False: "f"}.__getitem__,
    str: _escaped,
    float: repr,
    Decimal: str,
    type(None): lambda _: _NULL,
}


def copy_text(columns: Sequence[Column], rows: Sequence[Sequence[Any]], table: str) -> bytes:
    """Return rows as the text of ``COPY ... FROM STDIN``.

    Raises:
        PostgresError: if a value can't be written; it names the column and the value.
    """
    if not rows:
        return b""
    cells = [_cells(column, values, table) for column, values in zip(columns, zip(*rows, strict=True), strict=True)]
    lines = cells[0] if len(cells) == 1 else map("\t".join, zip(*cells, strict=True))
    text = "\n".join(lines)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        raise _unwritable_text(columns, rows, table) from None


def _cells(column: Column, values: Sequence[Any], table: str) -> Iterable[str]:
    _, oid, is_text = column
    if oid in _JSON and not is_text:
        return [_NULL if value is None else _json(value, column, table) for value in values]
    if oid in _WITHOUT_ZONE and not is_text:
        values = [_in_utc(value, column, table) for value in values]
    kinds = set(map(type, values))
    if kinds == {int}:
        return map(str, values)
    if kinds == {str}:
        joined = "\0".join(values)
        return map(_escaped, values) if any(special in joined for special in _SPECIAL) else values
    if kinds <= _WRITERS.keys():
        return [_WRITERS[type(value)](value) for value in values]
    return [_any(value, column, table) for value in values]


def _in_utc(value: Any, column: Column, table: str) -> Any:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise _unwritable(value, column, table, error) from error


def _json(value: Any, column: Column, table: str) -> str:
    try:
        return _escaped(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise _unwritable(value, column, table, error) from error


def _any(value: Any, column: Column, table: str) -> str:
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    try:
        dumped = Transformer().get_dumper(value, PyFormat.TEXT).dump(value)
        return _NULL if dumped is None else _escaped(bytes(dumped).decode())
    except (psycopg.Error, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _unwritable(value, column, table, error) from error


def _unwritable(value: Any, column: Column, table: str, error: object) -> PostgresError:
    return PostgresError(
        f"table {table}, column {column[0]!r}: {short_repr(value)} can't be written ({error}); convert it first"
    )


def _unwritable_text(columns: Sequence[Column], rows: Sequence[Sequence[Any]], table: str) -> PostgresError:
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            if isinstance(value, str) and not _encodes(value):
                return _unwritable(value, column, table, "a lone surrogate can't be encoded")
    return PostgresError(f"table {table}: a value has a lone surrogate, which can't be encoded")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

"""Rows as the text of a COPY, and rows of a query as Python values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer

from malflow.connectors.postgres.adapters import interval_text, text_of
from malflow.connectors.postgres.column_kinds import Kind
from malflow.connectors.postgres.connection import PostgresError
from malflow.connectors.postgres.value_limits import DATE, JSON, TIMES, check_of, in_utc, kept_types, plain_number
from malflow.words import short_repr

__all__ = [
    "Column",
    "cells_of",
    "copy_text",
    "fetched",
    "line_of",
]


class Column(NamedTuple):
    """A column to write.

    Attributes:
        name: its name.
        kind: its type.
        is_text: whether its values are already Postgres's text.
        rounds: whether the server may round its values.
    """

    name: str
    kind: Kind
    is_text: bool = False
    rounds: bool = False


class _Unwritable(Exception):
    """A value that can't be written, and why."""

    def __init__(self, value: Any, why: str) -> None:
        super().__init__(why)
        self.value = value


_Cell = Callable[[Any], str | None]
"""Returns the text of a value that is not None, before it is escaped; or None for NULL."""

_TEXT_OR_NULL = frozenset({str, type(None)})
_NULL = "\\N"
_SPECIAL = ("\\", "\n", "\r", "\t")
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_QUOTES = str.maketrans({"\\": "\\\\", '"': '\\"'})
_ESCAPED = re.compile(r"\\[\\nrt]")
_PLAIN = {"\\\\": "\\", "\\n": "\n", "\\r": "\r", "\\t": "\t"}


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


_TEXTS: dict[type, Callable[[Any], str]] = {
    int: str,
    bool: {True: "t", False: "f"}.__getitem__,
    str: str,
    float: repr,
    Decimal: str,
    bytes: lambda value: "\\x" + value.hex(),
    date: str,
    datetime: str,
    timedelta: interval_text,
}
"""Texts of frequent types, faster than psycopg's."""

_WRITERS: dict[type, Callable[[Any], str]] = {
    **_TEXTS,
    str: _escaped,
    bytes: lambda value: "\\\\x" + value.hex(),
    type(None): lambda _: _NULL,
}
"""The same, escaped."""


def copy_text(columns: Sequence[Column], rows: Sequence[Sequence[Any]], table: str) -> bytes:
    """Return rows as the text of ``COPY ... FROM STDIN``.

    Raises:
        PostgresError: if a value can't be written, or the column would not keep it as it is; it names the column and
            the value.
    """
    if not rows:
        return b""
    cells = [_cells(column, values, table) for column, values in zip(columns, zip(*rows, strict=True), strict=True)]
    lines = cells[0] if len(cells) == 1 else map("\t".join, zip(*cells, strict=True))
    text = "\n".join(lines)
    if "\0" in text:
        _raise_unwritable_text(columns, rows, table, "\0", "Postgres can't store the character NUL")
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError as error:
        lone = text[error.start]
        _raise_unwritable_text(columns, rows, table, lone, "a lone surrogate can't be encoded")


def cells_of(line: bytes) -> list[str | None]:
    r"""Return the cells of a line of a COPY.

    >>> cells_of(b"1\ta\\nb\t\\N\n")
    ['1', 'a\nb', None]
    """
    return [None if cell == _NULL else _unescaped(cell) for cell in line.decode().rstrip("\n").split("\t")]


def line_of(cells: Iterable[str | None]) -> bytes:
    """Return a line of a COPY; the inverse of `cells_of`."""
    return ("\t".join(_NULL if cell is None else _escaped(cell) for cell in cells) + "\n").encode()


def _unescaped(cell: str) -> str:
    return _ESCAPED.sub(lambda found: _PLAIN[found[0]], cell)


def _cells(column: Column, values: Sequence[Any], table: str) -> Iterable[str]:
    kinds = set(map(type, values))
    kind = column.kind
    if not kinds <= (_TEXT_OR_NULL if column.is_text and not _has_limits(kind) else _kept(kind)):
        return _checked_cells(column, values, table)
    if kinds == {int}:
        return map(str, values)
    if kinds == {str}:
        joined = "\0".join(values)
        return map(_escaped, values) if any(special in joined for special in _SPECIAL) else values
    if kinds <= _WRITERS.keys():
        return [_WRITERS[type(value)](value) for value in values]
    return _checked_cells(column, values, table)


def _kept(kind: Kind) -> frozenset[type]:
    """Return the types that need neither a check nor another text than in other columns."""
    if kind.is_array or kind.oid in JSON or kind.oid in TIMES or kind.oid == DATE:
        return frozenset()
    return kept_types(kind) | {type(None)}


def _has_limits(kind: Kind) -> bool:
    """Whether Postgres's own text of a value may say more than a column keeps."""
    return kind.modifier != -1 and not kind.is_array


def _checked_cells(column: Column, values: Sequence[Any], table: str) -> list[str]:
    cell = _cell_of(column)
    texts = []
    for value in values:
        try:
            text = None if value is None else cell(value)
        except _Unwritable as wrong:
            of = "" if wrong.value is value else f", in {short_repr(value)},"
            raise PostgresError(
                f"table {table}, column {column.name!r}: {short_repr(wrong.value)}{of} can't be written: it {wrong}"
            ) from wrong.__cause__
        texts.append(_NULL if text is None else _escaped(text))
    return texts


def _cell_of(column: Column) -> _Cell:
    kind = column.kind
    if column.is_text and not _has_limits(kind):
        return _any
    is_json = kind.oid in JSON
    one = _json if is_json else _scalar_of(column)
    return (lambda value: _array(value, one, kind.delimiter, is_flat=is_json)) if kind.is_array else one


def _scalar_of(column: Column) -> _Cell:
    """Return the writer of a value outside of an array, after the check of the column."""
    kind, kept = column.kind, kept_types(column.kind)
    check = check_of(kind, rounds=column.rounds, is_text=column.is_text)
    has_times, is_date = kind.oid in TIMES, kind.oid == DATE

    def cell(value: Any) -> str | None:
        value = plain_number(value)
        if type(value) not in kept:
            try:
                wrong = check(value)
            except OverflowError as error:
                raise _Unwritable(value, f"has no time in UTC ({error})") from error
            if wrong is not None:
                raise _Unwritable(value, wrong)
        if has_times and isinstance(value, datetime):
            value = _at_utc(value)
        elif is_date and isinstance(value, datetime):
            value = _at_utc(value).date()
        return _any(value)

    return cell


def _at_utc(value: datetime) -> datetime:
    try:
        return in_utc(value)
    except OverflowError as error:
        raise _Unwritable(value, f"has no time in UTC ({error})") from error


def _json(value: Any) -> str:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _Unwritable(value, f"is not JSON ({error}); convert it first") from error
    _check_names(value)
    return text


def _check_names(value: Any) -> None:
    """Check that no two names of an object are one in JSON, where all are text."""
    if isinstance(value, dict):
        is_text = all(type(name) is str for name in value)
        if not is_text and len(json.loads(json.dumps(dict.fromkeys(value)))) < len(value):
            raise _Unwritable(value, "has two names that are one in JSON; convert one of them")
        for it in value.values():
            _check_names(it)
    elif isinstance(value, (list, tuple)):
        for it in value:
            _check_names(it)


def _array(values: Any, cell: _Cell, delimiter: str, *, is_flat: bool) -> str:
    """Return the text of an array: elements in quotes. Postgres reads none of them as syntax.

    Lists in it are arrays, unless it is flat: in an array of JSON, they are values.
    """
    if isinstance(values, str):
        return values
    if not isinstance(values, (list, tuple)):
        raise _Unwritable(values, "is not an array; write a list")
    parts = []
    for value in values:
        if isinstance(value, list) and not is_flat:
            if not value:
                raise _Unwritable(values, "has an empty list in it, which Postgres does not keep")
            parts.append(_array(value, cell, delimiter, is_flat=False))
            continue
        text = None if value is None else cell(value)
        parts.append("NULL" if text is None else f'"{text.translate(_QUOTES)}"')
    return "{" + delimiter.join(parts) + "}"


def _any(value: Any) -> str | None:
    writer = _TEXTS.get(type(value))
    if writer is not None:
        return writer(value)
    try:
        return text_of(value)
    except (psycopg.Error, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _Unwritable(value, f"has no text in Postgres ({error}); convert it first") from error


def _raise_unwritable_text(
    columns: Sequence[Column], rows: Sequence[Sequence[Any]], table: str, character: str, why: str
) -> NoReturn:
    """Name the value with a character that can't be written."""
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            # numpy's own text of a `np.str_` lacks NUL at its end
            if character in (str.__str__(value) if isinstance(value, str) else str(value)):
                raise PostgresError(
                    f"table {table}, column {column.name!r}: {short_repr(value)} can't be written: {why}; remove it"
                )
    raise PostgresError(f"table {table}: a value can't be written: {why}; remove it")


_SHOWN = 200
"""The most characters of a value in a message: some lines of a terminal. Dates and numbers fit as a whole."""


def fetched(cursor: psycopg.Cursor[tuple[Any, ...]], what: str, mend: str) -> list[tuple[Any, ...]]:
    """Return all rows.

    Args:
        cursor: the cursor, after the query was executed.
        what: the table or query, for the error.
        mend: how to get a column as text; it may contain ``{column!r}``.

    Raises:
        PostgresError: if Python cannot represent a value; the error names the column and the value.
    """
    try:
        return cursor.fetchall()
    except (psycopg.DataError, ValueError, OverflowError) as error:
        place = _place_of_bad_value(cursor)
        if place is None:
            raise
        column, value = place
        cure = mend.format(column=column)
        raise PostgresError(
            f"{what}, column {column!r}: Python cannot represent {value[:_SHOWN]!r} ({error}); {cure} to get the "
            "column as Postgres writes it"
        ) from None


def _place_of_bad_value(cursor: psycopg.Cursor[Any]) -> tuple[str, str] | None:
    result = cursor.pgresult
    if result is None:
        return None
    transformer = Transformer(cursor)
    for at, column in enumerate(cursor.description or ()):
        loader = transformer.get_loader(column.type_code, pq.Format.TEXT)
        for row in range(result.ntuples):
            raw = result.get_value(row, at)
            try:
                if raw is not None:
                    loader.load(raw)
            except (psycopg.DataError, ValueError, OverflowError):
                return column.name, (raw or b"").decode(errors="backslashreplace")
    return None

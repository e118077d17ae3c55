"""The columns of a file or topic, guessed from its first rows or taken from its schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

from malflow.errors import GraphError
from malflow.sql.syntax.expressions import quoted_name, quoted_text
from malflow.sql.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, MOST_DIGITS, STRING, SqlType, timestamp
from malflow.words import short_repr

__all__ = ["Guess", "create_table", "has_values", "of_rows", "of_schema", "of_texts"]

_MILLISECONDS, _MICROSECONDS = 3, 6

_WHOLE = re.compile(r"[+-]?(0|[1-9]\d*)", re.ASCII)
"""A whole number; not 007, which has lost its zeros as a number."""

_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)?(\.\d+)?([eE][+-]?\d+)?(?<=\d)", re.ASCII)
_TRUTH = re.compile("true|false", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)


class Guess(NamedTuple):
    """A column.

    Attributes:
        name: its name.
        type: its type.
        note: what should be known about it; empty if nothing.
    """

    name: str
    type: SqlType
    note: str = ""


def create_table(name: str, url: str, columns: Iterable[Guess]) -> str:
    """Return the statement that creates a table.

    >>> print(create_table("bids", "bids.csv", [Guess("id", BIGINT), Guess("a-b", STRING, "always empty")]))
    CREATE TABLE bids (
      id BIGINT,
      `a-b` STRING -- always empty
    ) WITH ('url' = 'bids.csv')
    """
    found = [(f"  {quoted_name(it.name)} {it.type}", f" -- {it.note}" if it.note else "") for it in columns]
    lines = [f"{column}{',' if at < len(found) else ''}{note}" for at, (column, note) in enumerate(found, 1)]
    return "\n".join([f"CREATE TABLE {quoted_name(name)} (", *lines, f") WITH ('url' = {quoted_text(url)})"])


def of_rows(rows: Sequence[Mapping[str, Any]]) -> list[Guess]:
    """Return the columns of some rows, in the order in which they come.

    Raises:
        GraphError: if a column has no name.

    >>> [(it.name, str(it.type)) for it in of_rows([{"id": 1, "at": "2026-03-01T10:00:00Z"}, {"id": 2.5, "at": None}])]
    [('id', 'DOUBLE'), ('at', 'TIMESTAMP(3) WITH LOCAL TIME ZONE')]
    """
    names = dict.fromkeys(name for row in rows for name in row)
    if "" in names:
        raise GraphError("a column has an empty name; read the rows in Python")
    return [_column(name, [row[name] for row in rows if name in row], len(rows)) for name in names]


def _column(name: str, values: Sequence[Any], rows: int) -> Guess:
    kind = _type_of(values)
    notes = [] if len(values) == rows else ["missing in some rows"]
    if kind is None:
        mixed = {type(it): it for it in reversed(values) if it is not None}
        some = ", ".join(short_repr(it) for it in reversed([*mixed.values()]))
        notes.append(f"values of several types ({some})" if mixed else "no value in the first rows")
    return Guess(name, STRING if kind is None else kind, "; ".join(notes))


def _type_of(values: Iterable[Any]) -> SqlType | None:
    """Return the type that holds values of Python; None if there is no one type, or no value."""
    given = [it for it in values if it is not None]
    kinds = {type(it) for it in given}
    if not kinds:
        return None
    if kinds == {str}:
        return _times(given) or STRING
    if kinds <= {int}:
        most = max(map(abs, given))
        return BIGINT if most < 1 << 63 else SqlType("DECIMAL", size=MOST_DIGITS) if most < 10**MOST_DIGITS else None
    if kinds <= {int, float}:
        return DOUBLE
    if kinds <= {int, Decimal}:
        scale = max(max(0, -int(it.as_tuple().exponent)) for it in given if isinstance(it, Decimal))
        return SqlType("DECIMAL", True, MOST_DIGITS, scale)
    if kinds == {dict}:
        return _fields(given)
    if kinds <= {list, tuple}:
        item = _type_of(one for it in given for one in it)
        return SqlType("ARRAY", items=(item or STRING,)) if item or not any(given) else None
    if kinds == {datetime}:
        zones = {it.tzinfo is None for it in given}
        kind = "TIMESTAMP" if zones == {True} else "TIMESTAMP_LTZ"
        return timestamp(_MICROSECONDS, kind) if len(zones) == 1 else None
    return _OF_CLASS.get(kinds.pop()) if len(kinds) == 1 else None


_OF_CLASS = {bool: BOOLEAN, bytes: BYTES, date: DATE, time: SqlType("TIME", size=_MICROSECONDS)}


def _fields(values: Sequence[Mapping[str, Any]]) -> SqlType | None:
    """Return the type of objects: a ROW if they have the same fields, a MAP if these have one type."""
    names = [*values[0]]
    if names and all(names) and all({*it} == {*names} for it in values):
        kinds = [_type_of(it[name] for it in values) for name in names]
        return SqlType("ROW", items=tuple(it or STRING for it in kinds), names=tuple(names)) if all(kinds) else None
    item = _type_of(one for it in values for one in it.values())
    return SqlType("MAP", items=(STRING.as_nullable(False), item)) if item else None


def _times(texts: Sequence[str], *, offsets: bool = False) -> SqlType | None:
    """Return the type of texts that are dates or instants; None if they are not. CSV may have offsets from UTC."""
    if all(map(_DATE.fullmatch, texts)):
        return DATE
    found = [_INSTANT.fullmatch(it) for it in texts]
    zones = {it[3] for it in found if it}
    has_zones = None not in zones
    if None in found or (has_zones and not (offsets or zones == {"Z"})) or not (has_zones or zones == {None}):
        return None
    digits = max(len(it[2] or ".") - 1 for it in found if it)
    size = _MILLISECONDS if digits <= _MILLISECONDS else _MICROSECONDS
    return timestamp(size, "TIMESTAMP_LTZ" if has_zones else "TIMESTAMP")


def of_texts(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Guess]:
    """Return the columns of rows of text.

    >>> [(it.name, str(it.type)) for it in of_texts(["id", "zip"], [["1", "00501"], ["", "10115"]])]
    [('id', 'BIGINT'), ('zip', 'STRING')]
    """
    found: list[Guess] = []
    for at, name in enumerate(names):
        texts = [row[at] for row in rows if row[at]]
        found.append(Guess(name, _type_of_texts(texts)) if texts else Guess(name, STRING, "no value in the first rows"))
    return found


def _type_of_texts(texts: Sequence[str]) -> SqlType:
    if all(map(_WHOLE.fullmatch, texts)):
        return _type_of(map(int, texts)) or STRING
    if all(map(_NUMBER.fullmatch, texts)):
        return DOUBLE
    return BOOLEAN if all(map(_TRUTH.fullmatch, texts)) else _times(texts, offsets=True) or STRING


def has_values(names: Sequence[str]) -> bool:
    """Whether names of columns are rather values, as in a file without a header."""
    return any(it and _type_of_texts([it]) != STRING for it in names)


# Schemas of Arrow

_ARROW: Mapping[str, SqlType] = {
    "bool": BOOLEAN,
    "int8": SqlType("TINYINT"),
    "int16": SqlType("SMALLINT"),
    "int32": SqlType("INT"),
    "int64": BIGINT,
    "uint8": SqlType("SMALLINT"),
    "uint16": SqlType("INT"),
    "uint32": BIGINT,
    "uint64": SqlType("DECIMAL", size=20),
    "halffloat": SqlType("FLOAT"),
    "float": SqlType("FLOAT"),
    "double": DOUBLE,
    "string": STRING,
    "large_string": STRING,
    "string_view": STRING,
    "binary": BYTES,
    "large_binary": BYTES,
    "date32[day]": DATE,
    "date64[ms]": DATE,
    "null": STRING,
}
"""The types of Arrow without parameters, by their text."""


def of_schema(schema: Any) -> list[Guess]:
    """Return the columns of a schema of Arrow.

    Raises:
        GraphError: if a column has no type of SQL.
    """
    return [Guess(it.name, _of_arrow(it.name, it.type)) for it in schema]


def _of_arrow(name: str, kind: Any) -> SqlType:
    text = str(kind)
    head = re.split(r"[<\[(]", text, maxsplit=1)[0]
    if text in _ARROW:
        return _ARROW[text]
    match head:
        case "timestamp":
            size = _MILLISECONDS if kind.unit in {"s", "ms"} else _MICROSECONDS
            return timestamp(size, "TIMESTAMP" if kind.tz is None else "TIMESTAMP_LTZ")
        case "time32" | "time64":
            return SqlType("TIME", size=_MILLISECONDS if head == "time32" else _MICROSECONDS)
        case "decimal32" | "decimal64" | "decimal128" if kind.scale >= 0:
            return SqlType("DECIMAL", True, kind.precision, kind.scale)
        case "fixed_size_binary":
            return BYTES
        case "dictionary":
            return _of_arrow(name, kind.value_type)
        case "list" | "large_list" | "fixed_size_list":
            return SqlType("ARRAY", items=(_of_arrow(name, kind.value_type),))
        case "map":
            return SqlType(
                "MAP", items=(_of_arrow(name, kind.key_type).as_nullable(False), _of_arrow(name, kind.item_type))
            )
        case "struct" if kind.num_fields:
            parts = [kind.field(at) for at in range(kind.num_fields)]
            items = tuple(_of_arrow(name, it.type) for it in parts)
            return SqlType("ROW", items=items, names=tuple(it.name for it in parts))
    raise GraphError(f"column {name!r} is {text}, which has no type of SQL; read the file in Python")

"""Doors: values of streams become rows that fit their schema, and rows become values again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date
from decimal import Decimal
from typing import Any

from malflow.aggregators.fields import source_of_field
from malflow.sql.bind.scope import Field
from malflow.sql.build.fitting import check, constants, fitted, json_text, read_columns
from malflow.sql.functions.numbers import within
from malflow.sql.functions.times import (
    date_text,
    instant_text,
    moment,
    time_text,
)
from malflow.sql.types import INTEGERS, TEXTS, SqlType
from malflow.words import short_repr

__all__ = ["Door", "Exit", "outer_value", "recorded"]


class Door:
    """Makes rows of the values of a stream, and checks each column.

    A value is a mapping, a tuple in the order of the columns, or an object with attributes.

    Args:
        fields: the columns.
        table: the name of the table, for messages.
        as_json: whether a text is any value of JSON, as in Flink. Other values than texts are written as JSON.
        may_lack: whether an item that a mapping lacks is NULL.
    """

    def __init__(self, fields: Sequence[Field], table: str, *, as_json: bool = False, may_lack: bool = False) -> None:
        self.fields = tuple(fields)
        self._as_json = as_json
        self._read = _found if may_lack else read_columns
        self.names = [it.name for it in fields]
        self._whats = [f"table {table!r}, column {it.name!r}" for it in fields]
        known = constants([it.type for it in fields], self._whats)
        self.constants: dict[str, object] = {**known, "read": self._read, "names": self.names}

    def clauses(self, kind: type) -> str:
        """Return the clauses of a comprehension over `rows` that name the columns of each: `c0`, `c1` and so on.

        Args:
            kind: the class of most values. Of other ones the columns are read by calls.
        """
        columns = "".join(f"c{at}, " for at in range(len(self.fields)))
        if kind is tuple or list(getattr(kind, "_fields", ())) == self.names:
            taken = "v"
        elif kind is dict and self._read is _found:
            taken = f"({''.join(f'v.get({it!r}), ' for it in self.names)})"
        elif kind is dict or not issubclass(kind, Mapping | list | tuple):
            taken = f"({''.join(f'{source_of_field(it, mapping=kind is dict)}, ' for it in self.names)})"
        else:
            taken = "read(v, names)"
        checks = "".join(check(f"c{at}", it.type, at, as_json=self._as_json) for at, it in enumerate(self.fields))
        return f"for v in rows for {columns.rstrip()} in [{taken} if type(v) is kind else read(v, names)]{checks}"

    def clauses_of_columns(self, unsure: Sequence[int]) -> str:
        """Return the clauses of a comprehension over columns, with checks of those at some places."""
        columns = "".join(f"c{at}, " for at in range(len(self.fields)))
        checks = "".join(check(f"c{at}", self.fields[at].type, at, as_json=self._as_json) for at in unsure)
        return f"for {columns.rstrip()} in zip(*rows){checks}"

    def row(self, value: Any) -> tuple[Any, ...]:
        """Return the row of a value.

        Raises:
            ValueError: if a column is missing, does not fit its type, or is NULL and must not be.
        """
        values = self._read(value, self.names)
        texts = [self._as_json and it.type.kind in TEXTS for it in self.fields]
        given = [json_text(it) if is_text else it for it, is_text in zip(values, texts, strict=True)]
        return tuple(map(fitted, given, [it.type for it in self.fields], self._whats))


def recorded(names: Sequence[str], facts: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that makes a tuple of a record of Kafka: columns of its value, then facts about it.

    Args:
        names: the columns of the value.
        facts: the names of the facts.
    """

    def columns(record: Any) -> tuple[Any, ...]:
        if not hasattr(record, "offset"):
            raise ValueError(f"a table with METADATA reads records of Kafka; got {short_repr(record)}")
        known = (dict(record.headers) if it == "headers" else getattr(record, it) for it in facts)
        return (*read_columns(record.value, names), *known)

    return columns


def _found(value: Any, names: Sequence[str]) -> Sequence[Any]:
    """Return the columns of a value; NULL for items that a mapping lacks."""
    return [*map(value.get, names)] if isinstance(value, Mapping) else read_columns(value, names)


class Exit:
    """Makes a dict, a tuple, or an instance of a class of the columns of a row.

    Whole numbers are checked to fit their types; instants become datetimes. For JSON they become texts, bytes texts of
    hexadecimal digits. A DECIMAL is a number where a float holds all of its digits, as it does up to 15, and a text
    otherwise: JSON has no other numbers here, and none is rounded.

    Args:
        fields: the columns.
        kind: ``dict``, ``tuple``, or a class that is called with the columns.
        as_json: whether the values are written as JSON.
    """

    def __init__(self, fields: Sequence[Field], kind: Any = dict, *, as_json: bool = False) -> None:
        self.fields = fields
        self._kind = kind
        self._as_json = as_json
        self.constants: dict[str, object] = {
            "made": kind,
            "types": [it.type for it in fields],
            "outer": _json_value if as_json else outer_value,
            "within": within,
        }

    def source(self, columns: Sequence[str], fitting: Sequence[str]) -> str:
        """Return the source of what leaves.

        Args:
            columns: the source of each column.
            fitting: for each the kind of type that it is known to fit; an empty text if it is to be checked.
        """
        values = [
            it if kind == of.type.kind and kind in INTEGERS else self.value(it, of.type, at)
            for at, (it, kind, of) in enumerate(zip(columns, fitting, self.fields, strict=True))
        ]
        if self._kind is dict:
            names = [it.name for it in self.fields]
            return f"{{{', '.join(f'{name!r}: {it}' for name, it in zip(names, values, strict=True))}}}"
        return f"({''.join(f'{it}, ' for it in values)})" if self._kind is tuple else f"made({', '.join(values)})"

    def value(self, source: str, kind: SqlType, at: int) -> str:
        """Return the source of a column as it leaves."""
        if kind.kind in INTEGERS:
            bits, name = INTEGERS[kind.kind], f"x{at}"
            fits = f"{name} if {{}}.bit_length() < {bits} else within({name}, {bits})"
            if kind.nullable:
                return f"(None if ({name} := {source}) is None else {fits.format(name)})"
            return f"({fits.format(f'({name} := {source})')})"
        is_plain = kind.kind in _PLAIN or (kind.kind in {"DECIMAL", "BINARY", "VARBINARY"} and not self._as_json)
        return source if is_plain else f"outer({source}, types[{at}])"


_PLAIN = frozenset({"BOOLEAN", "FLOAT", "DOUBLE", *TEXTS})
"""Types with values that leave as they are, also for JSON."""


def outer_value(value: Any, kind: SqlType) -> Any:
    """Return a value as Python has it."""
    if value is None:
        return None
    match kind.kind:
        case "TIMESTAMP":
            return moment(value, kind.size)
        case "TIMESTAMP_LTZ":
            return moment(value, kind.size).replace(tzinfo=UTC)
        case "DATE":
            return date.fromordinal(value + date(1970, 1, 1).toordinal())
        case "TIME":
            return moment(value, kind.size).time()
    return _items(value, kind, outer_value)


_FLOAT_DIGITS = 15
"""The digits that every float holds."""


def _json_value(value: Any, kind: SqlType) -> Any:
    """Return a value as JSON has it."""
    if value is None:
        return None
    match kind.kind:
        case "TIMESTAMP":
            return instant_text(value, kind.size)
        case "TIMESTAMP_LTZ":
            return f"{instant_text(value, kind.size)}Z"
        case "DATE":
            return date_text(value)
        case "TIME":
            return time_text(value, kind.size)
        case "DECIMAL":
            return _number(value, kind)
        case "BINARY" | "VARBINARY":
            return value.hex()
    return _items(value, kind, _json_value)


def _number(value: Decimal, kind: SqlType) -> float | str:
    """Return a DECIMAL as a number that has the same digits, or as a text."""
    number = float(value)
    is_same = kind.size <= _FLOAT_DIGITS or Decimal(repr(number)) == value
    return number if is_same else format(value, "f")


def _items(value: Any, kind: SqlType, outer: Callable[[Any, SqlType], Any]) -> Any:
    """Return a collection with its items as they leave."""
    match kind.kind:
        case "ARRAY":
            return [outer(it, kind.items[0]) for it in value]
        case "MAP":
            return {outer(key, kind.items[0]): outer(it, kind.items[1]) for key, it in value.items()}
        case "ROW":
            return dict(zip(kind.names, map(outer, value, kind.items), strict=True))
    return value

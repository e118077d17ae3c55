"""Doors: values of streams become rows that fit their schema, and rows become values again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn

from malflow.aggregators.fields import source_of_field
from malflow.sql.bind.scope import Field
from malflow.sql.functions.numbers import decimal_of, number_of_text, single, within
from malflow.sql.functions.times import (
    date_of_text,
    date_text,
    instant,
    instant_of_text,
    instant_text,
    moment,
    time_of_text,
    time_text,
)
from malflow.sql.types import INTEGERS, LONGEST, TEXTS, TIMES, SqlType
from malflow.words import short_repr

__all__ = ["Door", "Exit", "fitted", "outer_value", "recorded"]


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
        self.constants: dict[str, object] = {
            "read": self._read,
            "fit": fitted,
            "text": _json_text,
            "names": self.names,
            "kinds": [it.type for it in fields],
            "whats": self._whats,
        }

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
        checks = "".join(_check(f"c{at}", it.type, at, as_json=self._as_json) for at, it in enumerate(self.fields))
        return f"for v in rows for {columns.rstrip()} in [{taken} if type(v) is kind else read(v, names)]{checks}"

    def clauses_of_columns(self, unsure: Sequence[int]) -> str:
        """Return the clauses of a comprehension over columns, with checks of those at some places."""
        columns = "".join(f"c{at}, " for at in range(len(self.fields)))
        checks = "".join(_check(f"c{at}", self.fields[at].type, at, as_json=self._as_json) for at in unsure)
        return f"for {columns.rstrip()} in zip(*rows){checks}"

    def row(self, value: Any) -> tuple[Any, ...]:
        """Return the row of a value.

        Raises:
            ValueError: if a column is missing, does not fit its type, or is NULL and must not be.
        """
        values = self._read(value, self.names)
        texts = [self._as_json and it.type.kind in TEXTS for it in self.fields]
        given = [_json_text(it) if is_text else it for it, is_text in zip(values, texts, strict=True)]
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


_PLAIN_CLASSES = {"DOUBLE": "float", "BOOLEAN": "bool", "VARBINARY": "bytes", "VARCHAR": "str"}
_PLAIN_CLASSES |= dict.fromkeys((*INTEGERS, *TIMES, "DATE"), "int")
"""The usual class of the values of types. Values of another class are converted by a call."""


def _check(variable: str, kind: SqlType, at: int, *, as_json: bool) -> str:
    """Return the clause that checks a column: a value of the usual class stays as it is."""
    given = f"text({variable})" if as_json and kind.kind in TEXTS else variable
    call, plain = f"fit({given}, kinds[{at}], whats[{at}])", _PLAIN_CLASSES.get(kind.kind)
    if plain is None:
        return f" for {variable} in [{call}]"
    test = f"type({variable}) is {plain}"
    if plain == "int":
        test = f"{test} and {variable}.bit_length() < {INTEGERS.get(kind.kind, 32 if kind.kind == 'DATE' else 64)}"
    elif kind.size and kind.size != LONGEST:
        test = f"{test} and len({variable}) <= {kind.size}"
    if kind.nullable:
        test = f"{test} or {variable} is None"
    return f" for {variable} in [{variable} if {test} else {call}]"


def _json_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read_columns(value: Any, names: Sequence[str]) -> Sequence[Any]:
    """Return the columns of a value: items of a tuple or mapping, or attributes.

    Raises:
        ValueError: if one is missing.
        TypeError: if a tuple has more or fewer columns.
    """
    try:
        if isinstance(value, Mapping):
            return [value[name] for name in names]
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            if type(value) is tuple and len(value) == len(names):
                return value
            raise TypeError(f"a row has the columns {', '.join(names)}; got {short_repr(value)}")
        return [getattr(value, name) for name in names]
    except (KeyError, AttributeError) as error:
        missing = error.args[0] if isinstance(error, KeyError) else error.name
        raise ValueError(f"column {missing!r} is missing in {short_repr(value)}") from None


def _found(value: Any, names: Sequence[str]) -> Sequence[Any]:
    """Return the columns of a value; NULL for items that a mapping lacks."""
    return [*map(value.get, names)] if isinstance(value, Mapping) else read_columns(value, names)


def fitted(value: Any, kind: SqlType, what: str) -> Any:
    """Return a value as a type holds it.

    Raises:
        ValueError: if it does not fit.
    """
    try:
        return _fit(value, kind)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise ValueError(f"{what}: {error}") from None


def _fit(value: Any, kind: SqlType) -> Any:
    if value is None:
        if kind.nullable:
            return None
        raise ValueError(f"NULL in a column of {kind}")
    return _FITTING.get(kind.kind, _refuse)(value, kind)


def _refuse(value: Any, kind: SqlType) -> NoReturn:
    raise ValueError(f"{short_repr(value)} is not of type {kind.name}")


def _integer(value: Any, kind: SqlType) -> int:
    if value.__class__ is not int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            _refuse(value, kind)
        value = int(value)
    return within(value, INTEGERS[kind.kind])


def _float(value: Any, kind: SqlType) -> float:
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        _refuse(value, kind)
    if kind.kind == "DOUBLE":
        return float(value)
    found = single(float(value))
    if math.isinf(found) and not math.isinf(value):
        raise OverflowError(f"{value} does not fit into FLOAT, which has 32 bits")
    return found


def _decimal(value: Any, kind: SqlType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        _refuse(value, kind)
    number = number_of_text(value) if isinstance(value, str) else value
    found = decimal_of(number, kind.size, kind.scale)
    if found != (Decimal(repr(number)) if isinstance(number, float) else number):
        raise ValueError(f"{value} has more digits after the point than {kind.name}")
    return found


def _text(value: Any, kind: SqlType) -> str:
    if not isinstance(value, str):
        _refuse(value, kind)
    if len(value) > kind.size:
        raise ValueError(f"{short_repr(value)} is longer than {kind.name}")
    return str(value).ljust(kind.size) if kind.kind == "CHAR" else str(value)


def _bytes(value: Any, kind: SqlType) -> bytes:
    if not isinstance(value, bytes | bytearray) or len(value) > kind.size:
        _refuse(value, kind)
    return bytes(value)


def _boolean(value: Any, kind: SqlType) -> bool:
    is_numpy = getattr(getattr(value, "dtype", None), "kind", "") == "b"
    return bool(value) if isinstance(value, bool) or is_numpy else _refuse(value, kind)


_ZONE = re.compile(r"(?<=[\d.])\s*(?:Z|([+-])([01]\d):?([0-5]\d))\Z")
"""The zone at the end of the text of an instant."""

_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""The first second of the year 1, and the last one of 9999: Python has no others."""


def _instant(value: Any, kind: SqlType) -> int:
    if isinstance(value, datetime):
        if value != value:  # noqa: PLR0124 - pandas' NaT
            _refuse(value, kind)
        _check_zone(value, value.tzinfo is not None, kind)
        plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        found = instant(value, kind.size)
        if moment(found, kind.size) != plain:
            raise ValueError(f"{value} is finer than {kind.name}")
        return found
    if isinstance(value, str):
        return _instant_of_text(value, kind)
    found = _units(value, kind)
    if not _FIRST <= found // 10**kind.size <= _LAST:
        raise ValueError(f"{found} is not in the years 1 to 9999, in units of {kind.name}")
    return found


def _instant_of_text(value: str, kind: SqlType) -> int:
    zone = _ZONE.search(value) if ":" in value else None
    if zone is None:
        return instant_of_text(_exact(value, kind), kind.size)
    _check_zone(value, True, kind)
    sign, hours, minutes = zone.groups(default="0")
    offset = timedelta(hours=int(hours), minutes=int(minutes)) // timedelta(seconds=-1 if sign == "-" else 1)
    found = instant_of_text(_exact(value[: zone.start()], kind), kind.size)
    return found - instant(moment(offset, 0), kind.size)


def _check_zone(value: Any, has_zone: bool, kind: SqlType) -> None:
    """Check that an instant has a zone if its type has one. A text without one is in UTC.

    Raises:
        ValueError: if not.
    """
    wanted = kind.kind == "TIMESTAMP_LTZ"
    if has_zone is not wanted:
        given, cure = ("no zone", "use TIMESTAMP") if wanted else ("a zone", "use TIMESTAMP_LTZ")
        raise ValueError(f"{value} has {given}, other than {kind.name}; {cure}")


def _units(value: Any, kind: SqlType) -> int:
    """Return a time that is given as a number, in units of its type."""
    return _integer(value, SqlType("BIGINT")) if hasattr(value, "__index__") else _refuse(value, kind)


def _exact(text: str, kind: SqlType) -> str:
    """Return the text of an instant or a time.

    Raises:
        ValueError: if it is finer than the type.
    """
    if text.partition(".")[2][kind.size :].strip("0"):
        raise ValueError(f"{short_repr(text)} is finer than {kind.name}")
    return text


def _date(value: Any, kind: SqlType) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - date(1970, 1, 1).toordinal()
    if isinstance(value, str) and ":" in value:
        raise ValueError(f"{short_repr(value)} is finer than {kind.name}")
    if isinstance(value, str):
        return date_of_text(value)
    return _units(value, kind)


def _time(value: Any, kind: SqlType) -> int:
    if isinstance(value, time):
        value = value.isoformat()
    if isinstance(value, str):
        return time_of_text(_exact(value, kind), kind.size)
    return _units(value, kind)


def _array(value: Any, kind: SqlType) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        _refuse(value, kind)
    return tuple(_fit(it, kind.items[0]) for it in value)


def _map(value: Any, kind: SqlType) -> dict[Any, Any]:
    is_pairs = isinstance(value, list) and all(type(it) is tuple and len(it) == 2 for it in value)  # noqa: PLR2004 - Arrow's
    if not is_pairs and not isinstance(value, Mapping):
        _refuse(value, kind)
    pairs = value if is_pairs else value.items()
    return {_fit(key, kind.items[0]): _fit(it, kind.items[1]) for key, it in pairs}


def _row(value: Any, kind: SqlType) -> tuple[Any, ...]:
    parts = (
        value if isinstance(value, list | tuple) and len(value) == len(kind.items) else read_columns(value, kind.names)
    )
    return tuple(_fit(it, of) for it, of in zip(parts, kind.items, strict=True))


_FITTING: dict[str, Callable[[Any, SqlType], Any]] = {
    **dict.fromkeys(INTEGERS, _integer),
    **dict.fromkeys(("FLOAT", "DOUBLE"), _float),
    **dict.fromkeys(TEXTS, _text),
    **dict.fromkeys(TIMES, _instant),
    **dict.fromkeys(("BINARY", "VARBINARY"), _bytes),
    "BOOLEAN": _boolean,
    "DECIMAL": _decimal,
    "DATE": _date,
    "TIME": _time,
    "ARRAY": _array,
    "MAP": _map,
    "ROW": _row,
}


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
            it if kind == of.type.kind and kind in INTEGERS else self._value(it, of.type, at)
            for at, (it, kind, of) in enumerate(zip(columns, fitting, self.fields, strict=True))
        ]
        if self._kind is dict:
            names = [it.name for it in self.fields]
            return f"{{{', '.join(f'{name!r}: {it}' for name, it in zip(names, values, strict=True))}}}"
        return f"({''.join(f'{it}, ' for it in values)})" if self._kind is tuple else f"made({', '.join(values)})"

    def _value(self, source: str, kind: SqlType, at: int) -> str:
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

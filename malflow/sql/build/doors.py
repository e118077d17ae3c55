"""Doors: values of streams become rows that fit their schema, and rows become values again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, NoReturn

from malflow.sql.bind.scope import Field
from malflow.sql.build.chains import defined
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

__all__ = ["door", "exit_of", "fitted", "outer_value"]


def door(fields: Sequence[Field], *, as_json: bool = False, may_lack: bool = False) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that makes a row of a mapping, tuple or object, and checks each column.

    Args:
        fields: the columns.
        as_json: whether a text is any value of JSON, as in Flink. Other values than texts are written as JSON.
        may_lack: whether an item that a mapping lacks is NULL.

    Raises, when called:
        ValueError: if a value is missing, does not fit its type, or is NULL in a column without it.
    """
    names = [it.name for it in fields]
    kinds = [it.type for it in fields]
    whats = [f"column {it.name!r}" for it in fields]
    checked = ", ".join(_checked(f"v{at}", it.type, at, as_json=as_json) for at, it in enumerate(fields))
    values = "".join(f"v{at}, " for at in range(len(fields)))
    lines = [
        "def row(value):",
        f"    is_row = value.__class__ is tuple and len(value) == {len(fields)}",
        f"    {values.rstrip()} = value if is_row else read(value, names)",
        f"    return ({checked},)",
    ]
    return defined(  # type: ignore[no-any-return]  # a generated function
        "row",
        "\n".join(lines),
        names=names,
        kinds=kinds,
        whats=whats,
        read=_found if may_lack else _read,
        fit=fitted,
        text=_json_text,
    )


def _checked(variable: str, kind: SqlType, at: int, *, as_json: bool) -> str:
    """Return the source of a checked value: of the usual class as it is, of another by a call."""
    plain = {"BIGINT": "int", "DOUBLE": "float", "BOOLEAN": "bool", "VARBINARY": "bytes"}.get(kind.kind)
    if kind.kind == "VARCHAR" and kind.size == LONGEST:
        plain = "str"
    given = f"text({variable})" if as_json and kind.kind in TEXTS else variable
    call = f"fit({given}, kinds[{at}], whats[{at}])"
    if plain is None:
        return call
    test = f"{variable}.__class__ is {plain}"
    if plain == "int":
        test = f"{test} and -9223372036854775808 <= {variable} <= 9223372036854775807"
    return f"({variable} if {test} else {call})"


def _json_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(value: Any, names: Sequence[str]) -> list[Any]:
    """Return the columns of a value: items of a mapping, or attributes."""
    try:
        if isinstance(value, Mapping):
            return [value[name] for name in names]
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            raise TypeError(f"a row has the columns {', '.join(names)}; got {short_repr(value)}")
        return [getattr(value, name) for name in names]
    except (KeyError, AttributeError) as error:
        missing = error.args[0] if isinstance(error, KeyError) else error.name
        raise ValueError(f"column {missing!r} is missing in {short_repr(value)}") from None


def _found(value: Any, names: Sequence[str]) -> list[Any]:
    """Return the columns of a value; NULL for items that a mapping lacks."""
    return [*map(value.get, names)] if isinstance(value, Mapping) else _read(value, names)


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
    return value if isinstance(value, bool) else _refuse(value, kind)


def _instant(value: Any, kind: SqlType) -> int:
    if isinstance(value, datetime):
        if (value.tzinfo is None) is (kind.kind == "TIMESTAMP_LTZ"):
            has = "no zone" if value.tzinfo is None else "a zone"
            raise ValueError(f"{value} has {has}, and {kind.name} {'has' if value.tzinfo is None else 'has not'}")
        found = instant(value, kind.size)
        if (
            moment(found, kind.size) != value.astimezone(UTC).replace(tzinfo=None)
            if value.tzinfo
            else (moment(found, kind.size) != value)
        ):
            raise ValueError(f"{value} is finer than {kind.name}")
        return found
    if isinstance(value, str):
        return instant_of_text(value.removesuffix("Z"), kind.size)
    return _integer(value, SqlType("BIGINT"))


def _date(value: Any, kind: SqlType) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - date(1970, 1, 1).toordinal()
    return date_of_text(value) if isinstance(value, str) else _integer(value, SqlType("INT"))


def _time(value: Any, kind: SqlType) -> int:
    if isinstance(value, time):
        return time_of_text(value.isoformat(), kind.size)
    return time_of_text(value, kind.size) if isinstance(value, str) else _integer(value, SqlType("INT"))


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
    parts = value if isinstance(value, list | tuple) and len(value) == len(kind.items) else _read(value, kind.names)
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


def exit_of(fields: Sequence[Field], kind: Any, *, as_json: bool = False) -> Callable[[tuple[Any, ...]], Any]:
    """Return the function that makes a dict, a tuple, or an instance of a class, of a row.

    Whole numbers are checked to fit their types; instants become datetimes. For JSON they become texts, bytes texts of
    hexadecimal digits, and a DECIMAL a number if it has up to 15 digits, which a float holds, and a text otherwise.
    """
    names = [it.name for it in fields]
    values = [_outer(f"v{at}", it.type, f"kinds[{at}]", as_json=as_json) for at, it in enumerate(fields)]
    if kind is dict:
        made = f"{{{', '.join(f'{name!r}: {it}' for name, it in zip(names, values, strict=True))}}}"
    else:
        made = f"({''.join(f'{it}, ' for it in values)})" if kind is tuple else f"kind({', '.join(values)})"
    unpacked = "".join(f"v{at}, " for at in range(len(fields)))
    source = f"def value(row):\n    {unpacked.rstrip()} = row\n    return {made}"
    outer = _json_value if as_json else outer_value
    return defined(  # type: ignore[no-any-return]  # a generated function
        "value", source, kind=kind, kinds=[it.type for it in fields], outer=outer, within=within
    )


_PLAIN = frozenset({"BOOLEAN", "FLOAT", "DOUBLE", *TEXTS})
"""Types with values that leave as they are, also for JSON."""


def _outer(variable: str, kind: SqlType, index: str, *, as_json: bool) -> str:
    """Return the source of a value as it leaves."""
    if kind.kind in INTEGERS:
        half = 1 << (INTEGERS[kind.kind] - 1)
        fits = f"{variable} if {-half} <= {variable} < {half} else within({variable}, {INTEGERS[kind.kind]})"
        return f"(None if {variable} is None else {fits})" if kind.nullable else f"({fits})"
    is_plain = kind.kind in _PLAIN or (kind.kind in {"DECIMAL", "BINARY", "VARBINARY"} and not as_json)
    return variable if is_plain else f"outer({variable}, {index})"


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
            return float(value) if kind.size <= _FLOAT_DIGITS else format(value, "f")
        case "BINARY" | "VARBINARY":
            return value.hex()
    return _items(value, kind, _json_value)


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

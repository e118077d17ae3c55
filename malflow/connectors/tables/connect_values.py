"""The values of an event of Kafka Connect as its schema means them: logical types of Connect and of Debezium."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

from malflow.connectors.tables.change import UNCHANGED
from malflow.errors import MalflowError
from malflow.words import short_repr

__all__ = ["exact_number", "is_unavailable", "row_reader"]

Read: TypeAlias = Callable[[Any], Any]
"""Returns the value that JSON stands for; it is not None."""

_PLACEHOLDER = "__debezium_unavailable_value"
_UNAVAILABLE: Sequence[Any] = (
    _PLACEHOLDER,
    base64.b64encode(_PLACEHOLDER.encode()).decode(),
    [_PLACEHOLDER],
    list(_PLACEHOLDER.encode()),
    {_PLACEHOLDER: _PLACEHOLDER},
)
"""Debezium's words for a value that the database did not send, as text, bytes, arrays and a map."""

_BEGIN = datetime(1970, 1, 1)  # noqa: DTZ001 - columns without a zone
_DAY = timedelta(days=1)


def is_unavailable(value: Any) -> bool:
    """Whether Debezium calls a value unavailable: an update did not change it."""
    return isinstance(value, (str, list, dict)) and value in _UNAVAILABLE


def exact_number(text: str) -> float | Decimal:
    """Return the number that JSON writes with a point: a float, or a Decimal if no float has its digits."""
    number = float(text)
    return number if Decimal(repr(number)) == Decimal(text) else Decimal(text)


def row_reader(schema: Mapping[str, Any], table: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that reads the values of a row. The row is a struct of a schema.

    Its errors name the table, the column and the value.

    Args:
        schema: the schema of the struct.
        table: the table, for messages.
    """
    reads = {field["field"]: _reader(field) for field in schema.get("fields", ())}
    kinds = {field["field"]: field.get("name") or field.get("type") for field in schema.get("fields", ())}

    def read(row: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(row)
        for column, value in row.items():
            if value is None:
                continue
            if is_unavailable(value):
                found[column] = UNCHANGED
            elif (as_meant := reads.get(column)) is not None:
                try:
                    found[column] = as_meant(value)
                except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
                    raise MalflowError(
                        f"an event of table {table}, column {column!r}: {short_repr(value)} is not read as "
                        f"{kinds[column]} ({error}); pass the event without its schema, as by "
                        ".map('payload', lambda event: event['payload']), to have its values as they are"
                    ) from error
        return found

    return read


def _reader(schema: Mapping[str, Any]) -> Read | None:
    """Return how to read a value of a schema; None if it is read as it is."""
    name = str(schema.get("name"))
    if name in _LOGICAL:
        return _LOGICAL[name](schema)
    match schema.get("type"):
        case "bytes":
            return _bytes
        case "float32" | "float64" | "float" | "double":
            return float
        case "array":
            return _array(schema.get("items", {}))
        case "map":
            return _map(schema.get("keys", {}), schema.get("values", {}))
        case "struct":
            return _struct(schema)
    return None


def _bytes(value: str) -> bytes:
    return base64.b64decode(value, validate=True)


def _array(items: Mapping[str, Any]) -> Read | None:
    one = _reader(items)
    return None if one is None else lambda values: [None if it is None else one(it) for it in values]


def _map(keys: Mapping[str, Any], values: Mapping[str, Any]) -> Read:
    """Return the reader of a map: an object if its keys are text, else an array of pairs."""
    one, other = _reader(keys), _reader(values)

    def read(found: Any) -> dict[Any, Any]:
        pairs = found.items() if isinstance(found, Mapping) else found
        return {
            (one(key) if one is not None else key): other(it) if other is not None and it is not None else it
            for key, it in pairs
        }

    return read


def _struct(schema: Mapping[str, Any]) -> Read:
    reads = {field["field"]: _reader(field) for field in schema.get("fields", ())}

    def read(found: Mapping[str, Any]) -> dict[str, Any]:
        return {name: it if it is None or (one := reads.get(name)) is None else one(it) for name, it in found.items()}

    return read


def _decimal(schema: Mapping[str, Any]) -> Read:
    scale = int(schema.get("parameters", {}).get("scale", 0))

    def read(value: Any) -> Decimal:
        if isinstance(value, str):
            return _scaled(_bytes(value), scale)
        return Decimal(repr(value) if isinstance(value, float) else value)  # written as a number

    return read


def _scaled(raw: bytes, scale: int) -> Decimal:
    unscaled = int.from_bytes(raw, "big", signed=True)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _variable_decimal(value: Mapping[str, Any]) -> Decimal:
    return _scaled(_bytes(value["value"]), int(value["scale"]))


def _microseconds(value: int, per_second: int) -> timedelta:
    """Return a span of a number of units."""
    microseconds, rest = divmod(value * 1_000_000, per_second)
    if rest:
        raise ValueError("it has nanoseconds, which Python's times do not keep")
    return timedelta(microseconds=microseconds)


def _date(value: int) -> date:
    return (_BEGIN + timedelta(days=value)).date()


def _time_of(per_second: int) -> Read:
    def read(value: int) -> time | timedelta:
        """Return the time of day; a span if there is none, as MySQL has."""
        span = _microseconds(value, per_second)
        return (_BEGIN + span).time() if timedelta(0) <= span < _DAY else span

    return read


def _timestamp_of(per_second: int) -> Read:
    return lambda value: _BEGIN + _microseconds(value, per_second)


def _iso_timestamp(value: str) -> datetime:
    found: datetime = _whole(datetime.fromisoformat, value)
    return found


def _whole(read: Callable[[str], Any], text: str) -> Any:
    """Return a time of ISO 8601, unless Python's would drop digits."""
    digits = text.partition(".")[2]
    fraction = digits[: next((at for at, it in enumerate(digits) if not it.isdecimal()), len(digits))]
    if fraction[6:].strip("0"):
        raise ValueError("it has nanoseconds, which Python's times do not keep")
    return read(text.replace(f".{fraction}", f".{fraction[:6].ljust(6, '0')}") if fraction else text)


def _bits(value: Any) -> int:
    return int.from_bytes(_bytes(value), "little")


def _json(value: str) -> Any:
    return json.loads(value, parse_float=exact_number)


def _always(read: Read) -> Callable[[Mapping[str, Any]], Read]:
    return lambda _: read


_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium."
_LOGICAL: Mapping[str, Callable[[Mapping[str, Any]], Read]] = {
    f"{_CONNECT}Decimal": _decimal,
    f"{_CONNECT}Date": _always(_date),
    f"{_CONNECT}Time": _always(_time_of(1000)),
    f"{_CONNECT}Timestamp": _always(_timestamp_of(1000)),
    f"{_DEBEZIUM}time.Date": _always(_date),
    f"{_DEBEZIUM}time.Time": _always(_time_of(1000)),
    f"{_DEBEZIUM}time.MicroTime": _always(_time_of(10**6)),
    f"{_DEBEZIUM}time.NanoTime": _always(_time_of(10**9)),
    f"{_DEBEZIUM}time.Timestamp": _always(_timestamp_of(1000)),
    f"{_DEBEZIUM}time.MicroTimestamp": _always(_timestamp_of(10**6)),
    f"{_DEBEZIUM}time.NanoTimestamp": _always(_timestamp_of(10**9)),
    f"{_DEBEZIUM}time.ZonedTimestamp": _always(_iso_timestamp),
    f"{_DEBEZIUM}time.ZonedTime": _always(lambda value: _whole(time.fromisoformat, value)),
    f"{_DEBEZIUM}time.IsoDate": _always(lambda value: date.fromisoformat(value.removesuffix("Z"))),
    f"{_DEBEZIUM}time.IsoTime": _always(lambda value: _whole(time.fromisoformat, value.removesuffix("Z"))),
    f"{_DEBEZIUM}time.IsoTimestamp": _always(lambda value: _iso_timestamp(value.removesuffix("Z"))),
    f"{_DEBEZIUM}time.MicroDuration": _always(lambda value: timedelta(microseconds=value)),
    f"{_DEBEZIUM}time.NanoDuration": _always(lambda value: _microseconds(value, 10**9)),
    f"{_DEBEZIUM}data.VariableScaleDecimal": _always(_variable_decimal),
    f"{_DEBEZIUM}data.Bits": _always(_bits),
    f"{_DEBEZIUM}data.Json": _always(_json),
    f"{_DEBEZIUM}data.Uuid": _always(UUID),
}
"""How to read the values of logical types. Year, Interval, Enum, EnumSet, Xml and Ltree are as JSON has them."""

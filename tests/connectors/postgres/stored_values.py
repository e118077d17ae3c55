"""What Postgres has stored, read from the text of a COPY without psycopg's loaders, as values to compare."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_interface, ip_network
from numbers import Number
from typing import Any
from uuid import UUID

import psycopg

from malflow.testing import same_value

__all__ = ["cells", "changed", "equal"]

Parser = Callable[[str], Any]

_INTERVAL = re.compile(
    r"(?:(-?\d+) years? ?)?(?:(-?\d+) mons? ?)?(?:([-+]?\d+) days? ?)?(?:([-+]?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?)?"
)


def _interval(text: str) -> Any:
    """Return months, days and microseconds, as Postgres keeps them."""
    found = _INTERVAL.fullmatch(text)
    assert found, text
    years, months, days, sign, hours, minutes, seconds, fraction = found.groups(default="0")
    clock = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    micros = clock * 1_000_000 + int(fraction.ljust(6, "0"))
    return int(years) * 12 + int(months), int(days), -micros if sign == "-" else micros


def _zoned_time(text: str) -> time:
    return time.fromisoformat(text)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _nearest_of_32_bits(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return number  # the server refuses it


PARSERS: Mapping[str, Parser] = {
    "smallint": int,
    "integer": int,
    "bigint": int,
    "oid": int,
    "numeric": Decimal,
    "real": lambda text: _nearest_of_32_bits(float(text)),
    "double precision": float,
    "money": lambda text: Decimal(text.replace("$", "").replace(",", "")),
    "boolean": {"true": True, "false": False}.__getitem__,
    "bytea": lambda text: bytes.fromhex(text.removeprefix("\\x")),
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timetz": _zoned_time,
    "timestamp": _moment,
    "timestamptz": _moment,
    "interval": _interval,
    "uuid": UUID,
    "inet": ip_interface,
    "cidr": ip_network,
    "json": lambda text: json.loads(text, parse_float=Decimal),
    "jsonb": lambda text: json.loads(text, parse_float=Decimal),
}
"""By the name of a type without its limits; a type that is not here is text."""


def parser_of(kind: str) -> Parser:
    base = re.sub(r"\(.*?\)| day to minute", "", kind).strip()
    if base.endswith("[]"):
        element = PARSERS.get(base.removesuffix("[]"), str)
        return lambda text: _array(json.loads(text), element)
    return PARSERS.get(base, str)


def _array(found: Any, element: Parser) -> Any:
    bounds, elements = found
    return [bounds, *(None if it is None else element(it) for it in elements)]


def _as_json(kind: str) -> str:
    """Return SQL for a cell as text; for an array, a list of texts in JSON."""
    if kind.endswith("[]"):
        elements = (
            "(select coalesce(json_agg(e.v::text order by e.at), '[]') from unnest(t.v) with ordinality e(v, at))"
        )
        return f"json_build_array(coalesce(array_dims(t.v), ''), {elements})"
    return "t.v::text"


def cells(connection: psycopg.Connection[Any], table: str, kind: str) -> dict[int, Any]:
    """Return the cells of a table with columns `n` and `v`, by `n`."""
    query = (
        f"copy (select t.n, t.v is null, encode(convert_to(({_as_json(kind)})::text, 'UTF8'), 'hex') from {table} t) "
        "to stdout"
    )
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        lines = b"".join(bytes(it) for it in copy).decode().splitlines()
    parse, found = parser_of(kind), {}
    for line in lines:
        number, is_null, text = line.split("\t")
        found[int(number)] = None if is_null == "t" else parse(bytes.fromhex(text).decode())
    return found


def server_reads(connection: psycopg.Connection[Any], kind: str, text: str) -> Any:
    """Return what the server reads in a text as a type without limits; the text if it is none."""
    base = re.sub(r"\(.*?\)| day to minute", "", kind)
    base = "bpchar" if base == "char" else base
    cell = _as_json(kind)
    query = f"select encode(convert_to(({cell})::text, 'UTF8'), 'hex') from (select %s::text::{base} as v) t"
    try:
        (found,) = connection.execute(query, (text,)).fetchone() or (None,)
    except (psycopg.Error, UnicodeEncodeError):
        return text
    return None if found is None else parser_of(kind)(bytes.fromhex(found).decode())


def as_stored(value: Any, kind: str) -> Any:
    """Return a value as an exact store of this type would have it."""
    if kind.endswith("[]"):
        return _as_array(value, kind.removesuffix("[]"))
    plain = value.item() if hasattr(value, "item") and not isinstance(value, str) else value
    value = plain if type(plain) is float else value
    if kind == "inet" and isinstance(value, (IPv4Address, IPv6Address)):
        return ip_interface(value)
    if kind.startswith(("numeric", "money")) and isinstance(value, float):
        return Decimal(repr(float(value)))
    if kind.startswith("interval") and isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
        days, rest = divmod(abs(micros), 86_400_000_000)
        return (0, days, rest) if micros >= 0 else (0, -days, -rest)
    if kind.startswith("json"):
        return _in_json(value)
    return value


def _as_array(value: Any, element: str) -> Any:
    """Return the bounds of an array, and its elements one after the other."""
    if not isinstance(value, (list, tuple)):
        return value
    level = list(value)
    while level and not element.startswith("json") and all(isinstance(it, list) for it in level):
        if len({len(it) for it in level}) > 1:
            return value
        level = [it for inner in level for it in inner]
    return [_bounds(value, flat=element.startswith("json")), *(as_stored(it, element) for it in level)]


def _bounds(value: Any, *, flat: bool) -> str:
    if not value:
        return ""
    is_nested = not flat and all(isinstance(it, list) for it in value)
    return f"[1:{len(value)}]" + (_bounds(value[0], flat=flat) if is_nested else "")


def _in_json(value: Any) -> Any:
    if isinstance(value, float):
        return Decimal(repr(float(value)))
    if isinstance(value, (list, tuple)):
        return [_in_json(it) for it in value]
    if isinstance(value, dict):
        return {name: _in_json(it) for name, it in value.items()}
    return value


def _read_by_server(value: Any, kind: str, connection: psycopg.Connection[Any]) -> Any:
    text = value.name if isinstance(value, Enum) and not isinstance(value, (str, int)) else value
    if not isinstance(text, str) or kind in ("json", "jsonb"):
        return value
    found = server_reads(connection, kind, text)
    return found[1:] if kind.endswith("[]") and isinstance(found, list) else found  # the first has the bounds


def _in_utc(value: Any, kind: str) -> Any:
    if isinstance(value, datetime) and kind.startswith("timestamp") and type(value).__name__ != "NaTType":
        plain = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return plain if kind.startswith("timestamptz") else plain.replace(tzinfo=None)
    if isinstance(value, time) and kind.startswith("timetz") and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def _at_midnight(value: Any, kind: str) -> Any:
    if kind == "date" and isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).date()
    if kind.startswith("timestamp") and isinstance(value, date) and not isinstance(value, datetime):
        return _in_utc(datetime(value.year, value.month, value.day), kind)
    return value


def _as_text(value: Any, kind: str) -> Any:
    is_text = kind.startswith(("text", "varchar", "char", "name"))
    if not is_text or isinstance(value, (str, bool, list, tuple, dict)):
        return value
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, timedelta):
        _, days, micros = as_stored(plain, "interval")
        hours, _, rest = str(timedelta(microseconds=abs(micros))).partition(":")
        sign = "-" if min(days, micros) < 0 else ""
        return f"{days} days {sign}{hours:0>2}:{rest}" if days else f"{sign}{hours:0>2}:{rest}"
    return plain.hex if isinstance(plain, UUID) else str(plain)


def _padded(value: Any, kind: str) -> Any:
    text = _as_text(value, kind)
    return text.rstrip(" ") if kind.startswith("char(") and isinstance(text, str) else value


def _as_truth(value: Any, kind: str) -> Any:
    return bool(value) if kind == "boolean" and isinstance(value, Number) and str(value) in ("0", "1") else value


def _nearest(value: Any, kind: str) -> Any:
    return _nearest_of_32_bits(float(value)) if kind == "real" and isinstance(value, (float, Decimal)) else value


def _as_float(value: Any, kind: str) -> Any:
    return float(value) if kind == "double precision" and isinstance(value, Decimal) else value


def _named(value: Any, kind: str) -> Any:
    if isinstance(value, dict) and kind.startswith("json"):
        return _in_json(json.loads(json.dumps(value), parse_float=Decimal))
    return value


_CHANGES: Mapping[str, Callable[[Any, str], Any]] = {
    "with a time zone is written in UTC to columns without one; one without a zone counts as UTC": _in_utc,
    "A `date` is the midnight of that day, and a midnight is its `date`": _at_midnight,
    "The names in an object of JSON are text": _named,
    "A text column takes a number, a date or a time as its `str`, a UUID as its 32 digits": _as_text,
    "`char(n)` does not tell trailing spaces apart": _padded,
    "A `boolean` column takes 0 and 1": _as_truth,
    "`real` keeps the nearest of its numbers": _nearest,
    "`double precision` takes a `Decimal` in all its digits": _as_float,
}
_READ_IN_ARRAYS = 'by its name. So `"5"` may be written'
_READ = "A `str` is read by the server as a value of the column's type, and a member of a plain `Enum` by its name"


def changed(kind: str, connection: psycopg.Connection[Any]) -> Mapping[str, Callable[[Any], Any]]:
    """Return the changes that docs/postgres.md tells: by its lines, what a value becomes in a cell of this type."""

    def of_cell(change: Callable[[Any, str], Any]) -> Callable[[Any], Any]:
        if not kind.endswith("[]"):
            return lambda value: change(value, kind)
        element = kind.removesuffix("[]")

        def of_elements(value: Any) -> Any:
            if not isinstance(value, (list, tuple)) or value is None:
                return value
            return [of_elements(it) if isinstance(it, list) else change(it, element) for it in value]

        return of_elements

    changes = {line: of_cell(change) for line, change in _CHANGES.items()}
    return {
        _READ: lambda value: _read_by_server(value, kind, connection),
        _READ_IN_ARRAYS: of_cell(partial(_read_by_server, connection=connection)),
        **changes,
    }


def equal(kind: str) -> Callable[[Any, Any], bool]:
    return lambda wrote, read: same_value(as_stored(wrote, kind), read)

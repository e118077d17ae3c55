"""The law of values for events of Kafka Connect and Debezium, encoded here as their JsonConverter does."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st

from malflow.connectors.tables import debezium
from malflow.testing import ScriptedSource, SourceValues, same_value

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("VALUES", "3"))
EXACT = Context(prec=60)
CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."


@dataclass
class Kind:
    """A type of a column: its schema in an event, its values, and how an event has them.

    Attributes:
        always: values that are checked each time.
    """

    schema: dict[str, Any]
    values: st.SearchStrategy[Any]
    encode: Callable[[Any], Any]
    always: Sequence[Any] = ()


def bytes_of(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def signed(number: int) -> str:
    return bytes_of(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def units(per_second: int) -> Callable[[Any], int]:
    """Return a function that returns the units since 1970, or since midnight."""

    def encode(value: Any) -> int:
        if isinstance(value, time):
            value = timedelta(
                hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
            )
        span = value - datetime(1970, 1, 1) if isinstance(value, datetime) else value
        return int(span // timedelta(microseconds=1) * per_second // 1_000_000)

    return encode


def days(value: date) -> int:
    return value.toordinal() - date(1970, 1, 1).toordinal()


def zoned(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def schema(kind: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, **({"name": name, "version": 1} if name else {}), **more}


def milliseconds(value: Any) -> Any:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


MONEY = schema("bytes", f"{CONNECT}Decimal", parameters={"scale": "2"})
DAY = schema("int32", f"{TIME}Date")
PRICES = st.integers(-(10**30), 10**30).map(lambda it: Decimal(it).scaleb(-2, EXACT))
MOMENTS = st.datetimes()
HOURS = st.times()


def unscaled(value: Decimal) -> str:
    return signed(int(value.scaleb(2, EXACT)))


KINDS = {
    "Decimal": Kind(MONEY, PRICES, unscaled, [Decimal("12.34"), Decimal("-0.01"), Decimal("0.00")]),
    "VariableScaleDecimal": Kind(
        schema("struct", f"{DATA}VariableScaleDecimal"),
        PRICES,
        lambda it: {"scale": 2, "value": unscaled(it)},
        [Decimal("12.34")],
    ),
    "Connect's Date": Kind(schema("int32", f"{CONNECT}Date"), st.dates(), days, [date(2024, 2, 29), date.min]),
    "Date": Kind(DAY, st.dates(), days, [date(2024, 2, 29), date.max]),
    "IsoDate": Kind(schema("string", f"{TIME}IsoDate"), st.dates(), lambda it: f"{it}Z", [date(2024, 2, 29)]),
    "Connect's Time": Kind(
        schema("int32", f"{CONNECT}Time"), HOURS.map(milliseconds), units(1000), [time(23, 59, 59, 999_000)]
    ),
    "MicroTime": Kind(schema("int64", f"{TIME}MicroTime"), HOURS, units(10**6), [time.max, timedelta(hours=-1)]),
    "NanoTime": Kind(schema("int64", f"{TIME}NanoTime"), HOURS, units(10**9), [time(0, 0, 0, 1)]),
    "Connect's Timestamp": Kind(
        schema("int64", f"{CONNECT}Timestamp"), MOMENTS.map(milliseconds), units(1000), [datetime(1969, 12, 31, 23)]
    ),
    "Timestamp": Kind(
        schema("int64", f"{TIME}Timestamp"), MOMENTS.map(milliseconds), units(1000), [datetime(2024, 2, 29)]
    ),
    "MicroTimestamp": Kind(
        schema("int64", f"{TIME}MicroTimestamp"), MOMENTS, units(10**6), [datetime(9999, 12, 31, 23, 59, 59, 999_999)]
    ),
    "NanoTimestamp": Kind(schema("int64", f"{TIME}NanoTimestamp"), MOMENTS, units(10**9), [datetime(1, 1, 1)]),
    "ZonedTimestamp": Kind(
        schema("string", f"{TIME}ZonedTimestamp"),
        st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
        zoned,
        [datetime(2024, 2, 29, 1, tzinfo=UTC)],
    ),
    "MicroDuration": Kind(
        schema("int64", f"{TIME}MicroDuration"), st.timedeltas(), units(10**6), [timedelta(microseconds=-1)]
    ),
    "Uuid": Kind(schema("string", f"{DATA}Uuid"), st.uuids(), str, [UUID(int=0)]),
    "Json": Kind(
        schema("string", f"{DATA}Json"),
        st.dictionaries(st.text(max_size=3), st.integers() | st.floats(allow_nan=False, allow_infinity=False)),
        json.dumps,
        [{"a": 1.5}],
    ),
    "bytes": Kind(schema("bytes"), st.binary(), bytes_of, [b"'", b"\0\xff", b""]),
    "double": Kind(schema("double"), st.floats(allow_infinity=False, allow_nan=False), float, [1.0, -0.0]),
    "string": Kind(schema("string"), st.text(), str, ["2024-02-29", "", "12.34"]),
    "int64": Kind(schema("int64"), st.integers(-(2**63), 2**63 - 1), int, [2**53 + 1]),
    "an array": Kind(
        schema("array", items=DAY), st.lists(st.dates(), max_size=3), lambda it: list(map(days, it)), [[date.min]]
    ),
    "a map": Kind(
        schema("map", keys=schema("int32"), values=MONEY),
        st.dictionaries(st.integers(-9, 9), PRICES, max_size=3),
        lambda it: [[key, unscaled(value)] for key, value in it.items()],
        [{1: Decimal("0.10")}],
    ),
    "a struct": Kind(
        schema("struct", "point", fields=[{**DAY, "field": "day"}, {**schema("bytes"), "field": "raw"}]),
        st.fixed_dictionaries({"day": st.dates(), "raw": st.binary()}),
        lambda it: {"day": days(it["day"]), "raw": bytes_of(it["raw"])},
        [{"day": date(2024, 2, 29), "raw": b"\1"}],
    ),
}


def event(kind: Kind, number: int, value: Any) -> dict[str, Any]:
    """Return an event that inserts a row with a value."""
    fields = [schema("int32", field="n"), {**kind.schema, "field": "v"}]
    row = schema("struct", "s.t.Value", fields=fields)
    envelope = schema("struct", "s.t.Envelope", fields=[{**row, "field": name} for name in ("before", "after")])
    after = {"n": number, "v": None if value is None else kind.encode(value)}
    return {"schema": envelope, "payload": {"before": None, "after": after, "op": "c"}}


def exactly(wrote: Any, read: Any) -> bool:
    return type(wrote) is type(read) and same_value(wrote, read)


FORMS: Sequence[Callable[[Any], Any]] = (
    json.dumps,
    lambda it: json.dumps(it).encode(),
    lambda it: json.loads(json.dumps(it)),
)
"""What the events come as: text, bytes, and parsed."""


@pytest.mark.parametrize("name", KINDS)
def test_values_of_events(name: str) -> None:
    kind, events = KINDS[name], list[Any]()

    def write(some: Sequence[Any]) -> None:
        events[:] = (FORMS[at % len(FORMS)](event(kind, at, value)) for at, value in enumerate(some))

    def source() -> ScriptedSource:
        return ScriptedSource([row for it in events for _, row in debezium("n")(it)])

    always = [None, *(it for value in kind.always for it in [value] * len(FORMS))]
    law = SourceValues(name, source, write, kind.values | st.none(), same=exactly, examples=EXAMPLES, always=always)
    law.check()

"""Events of Debezium with their schema: values have the types that it names."""

from __future__ import annotations

import base64
import json
import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.connectors.tables import UNCHANGED, debezium
from malflow.errors import MalflowError

CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."


def base64_of(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def named(name: str, kind: str, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "optional": True, "name": name, "version": 1, "parameters": parameters}


def event(schema: dict[str, Any], value: Any, before: Any = None) -> str:
    """Return an event of Debezium as its JsonConverter writes it."""
    fields = [{"type": "int32", "optional": False, "field": "id"}, {**schema, "field": "v"}]
    row = {"type": "struct", "fields": fields, "optional": True, "name": "s.public.t.Value"}
    envelope = {
        "type": "struct",
        "name": "s.public.t.Envelope",
        "fields": [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}],
    }
    payload = {"before": before, "after": {"id": 1, "v": value}, "source": {"table": "t"}, "op": "u"}
    return json.dumps({"schema": envelope, "payload": payload})


def read(schema: dict[str, Any], value: Any) -> Any:
    [(_, row)] = pickle.loads(pickle.dumps(debezium("id")))(event(schema, value))
    return row["v"]


MICROSECONDS = 1_709_251_199_123_456  # 2024-02-29 23:59:59.123456
MOMENT = datetime(2024, 2, 29, 23, 59, 59, 123456)
KINDS: list[tuple[dict[str, Any], Any, Any]] = [
    (named(f"{CONNECT}Decimal", "bytes", scale="2"), base64_of(b"\x04\xd2"), Decimal("12.34")),
    (named(f"{CONNECT}Decimal", "bytes", scale="2"), base64_of(b"\xfb\x2e"), Decimal("-12.34")),
    (named(f"{CONNECT}Decimal", "bytes", scale="0"), base64_of(b"\0"), Decimal(0)),
    (named(f"{CONNECT}Date", "int32"), 19_782, date(2024, 2, 29)),
    (named(f"{CONNECT}Time", "int32"), 86_399_123, time(23, 59, 59, 123_000)),
    (named(f"{CONNECT}Timestamp", "int64"), MICROSECONDS // 1000, MOMENT.replace(microsecond=123_000)),
    (named(f"{TIME}Date", "int32"), -719_162, date(1, 1, 1)),
    (named(f"{TIME}Time", "int32"), 1, time(0, 0, 0, 1_000)),
    (named(f"{TIME}MicroTime", "int64"), 86_399_999_999, time(23, 59, 59, 999_999)),
    (named(f"{TIME}MicroTime", "int64"), -3_600_000_000, timedelta(hours=-1)),
    (named(f"{TIME}NanoTime", "int64"), 5_000, time(0, 0, 0, 5)),
    (named(f"{TIME}Timestamp", "int64"), -1, datetime(1969, 12, 31, 23, 59, 59, 999_000)),
    (named(f"{TIME}MicroTimestamp", "int64"), MICROSECONDS, MOMENT),
    (named(f"{TIME}NanoTimestamp", "int64"), MICROSECONDS * 1000, MOMENT),
    (named(f"{TIME}ZonedTimestamp", "string"), "2024-02-29T23:59:59.123456Z", MOMENT.replace(tzinfo=UTC)),
    (
        named(f"{TIME}ZonedTimestamp", "string"),
        "2024-02-29T23:59:59.1Z",
        datetime(2024, 2, 29, 23, 59, 59, 100_000, UTC),
    ),
    (named(f"{TIME}ZonedTime", "string"), "10:15:30+01:00", time(10, 15, 30, tzinfo=timezone(timedelta(hours=1)))),
    (named(f"{TIME}IsoDate", "string"), "2024-02-29Z", date(2024, 2, 29)),
    (named(f"{TIME}IsoTimestamp", "string"), "2024-02-29T23:59:59.123456Z", MOMENT),
    (named(f"{TIME}Year", "int32"), 2024, 2024),
    (named(f"{TIME}Interval", "string"), "P1Y2M3DT4H5M6.7S", "P1Y2M3DT4H5M6.7S"),
    (named(f"{TIME}MicroDuration", "int64"), -1, timedelta(microseconds=-1)),
    (named(f"{DATA}VariableScaleDecimal", "struct"), {"scale": 3, "value": base64_of(b"\x04\xd2")}, Decimal("1.234")),
    (named(f"{DATA}Bits", "bytes", length="9"), base64_of(b"\x01\x01"), 257),
    (named(f"{DATA}Json", "string"), '{"a": 0.12345678901234567890}', {"a": Decimal("0.12345678901234567890")}),
    (named(f"{DATA}Uuid", "string"), str(UUID(int=7)), UUID(int=7)),
    (named(f"{DATA}Enum", "string", allowed="a,b"), "a", "a"),
    ({"type": "bytes", "optional": True}, base64_of(b"\0\xff"), b"\0\xff"),
    ({"type": "double"}, "Infinity", float("inf")),
    ({"type": "string"}, "2024-02-29", "2024-02-29"),
    ({"type": "boolean"}, True, True),
    ({"type": "array", "items": named(f"{TIME}Date", "int32")}, [0, None], [date(1970, 1, 1), None]),
    (
        {"type": "map", "keys": {"type": "int32"}, "values": {"type": "bytes"}},
        [[1, "AA=="], [2, None]],
        {1: b"\0", 2: None},
    ),
    (
        {
            "type": "struct",
            "name": f"{DATA}geometry.Point",
            "fields": [{"field": "x", "type": "double"}, {"field": "wkb", "type": "bytes"}],
        },
        {"x": 1.5, "wkb": "AQ=="},
        {"x": 1.5, "wkb": b"\1"},
    ),
]


@pytest.mark.parametrize(("schema", "value", "meant"), KINDS, ids=[it[0].get("name", it[0]["type"]) for it in KINDS])
def test_values_have_the_types_that_the_schema_names(schema: dict[str, Any], value: Any, meant: Any) -> None:
    found = read(schema, value)
    assert found == meant
    assert type(found) is type(meant)
    assert read(schema, None) is None
    if schema["type"] in ("string", "bytes"):
        assert read(schema, "__debezium_unavailable_value") is UNCHANGED


@pytest.mark.parametrize(
    "unsent", [["__debezium_unavailable_value"], {"__debezium_unavailable_value": "__debezium_unavailable_value"}]
)
def test_arrays_and_maps_that_are_not_sent_are_unchanged(unsent: Any) -> None:
    assert read({"type": "array", "items": {"type": "string"}}, unsent) is UNCHANGED


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_decimals_of_any_size_are_exact(number: Decimal) -> None:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    raw = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    assert read(named(f"{CONNECT}Decimal", "bytes", scale=str(-exponent)), base64_of(raw)) == number


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (named(f"{TIME}NanoTimestamp", "int64"), 1),
        (named(f"{TIME}ZonedTimestamp", "string"), "2024-02-29T23:59:59.123456789Z"),
        (named(f"{TIME}MicroTimestamp", "int64"), 2**63 - 1),
        (named(f"{TIME}Date", "int32"), "x"),
        (named(f"{CONNECT}Decimal", "bytes", scale="2"), "a"),
        (named(f"{DATA}Uuid", "string"), "x"),
    ],
)
def test_values_that_are_not_of_their_type_are_named(schema: dict[str, Any], value: Any) -> None:
    with pytest.raises(
        MalflowError, match=r"an event of table t, column 'v': .*; pass the event without its schema"
    ) as it:
        read(schema, value)
    assert repr(value)[:20] in str(it.value)
    plain = json.loads(event(schema, value))["payload"]
    assert debezium("id")(plain) == [(1, {"id": 1, "v": value})]


def test_keys_before_and_after_a_change_are_of_their_type() -> None:
    schema, days = named(f"{TIME}Date", "int32"), {"id": 1, "v": 0}
    moved = debezium("v")(event(schema, 1, before=days))
    assert [key for key, _ in moved] == [date(1970, 1, 1), date(1970, 1, 2)]

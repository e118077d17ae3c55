"""Values that fastavro would write as others are refused, each with its place."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from malflow.connectors.codecs import AvroDecoder, AvroEncoder

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
DAY = {"type": "int", "logicalType": "date"}
TIME = {"type": "int", "logicalType": "time-millis"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
CAT = {"type": "record", "name": "Cat", "fields": [{"name": "age", "type": "int"}]}
DOG = {
    "type": "record",
    "name": "Dog",
    "fields": [{"name": "age", "type": "int"}, {"name": "tag", "type": "int", "default": 0}],
}
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (MILLIS, NOON.replace(microsecond=1999), "field v would be read as .*1000.*; got .*1999"),
        (MILLIS, NOON.replace(tzinfo=None), "field v would be read as"),
        (LOCAL, NOON, "field v would be read as"),
        (DAY, NOON, "field v would be read as datetime.date"),
        (TIME, time(0, 0, 0, 1), "field v would be read as"),
        (TIME, time(0, tzinfo=UTC), "field v would be read as"),
        (PRICE, Decimal("1.234"), "v"),
        (PRICE, Decimal("12345.00"), "precision"),
        ("double", 2**53 + 1, "field v would be read as"),
        (["null", MILLIS], NOON.replace(microsecond=1), "field v would be read as"),
        ({"type": "array", "items": MILLIS}, [NOON, NOON.replace(microsecond=1)], r"field v\[1\] would be read as"),
        (CAT, {"age": 1, "name": "Tom"}, "field 'v.name' is not in the schema; got 'Tom'"),
        ([CAT, DOG], {"age": 1}, "fits 'Cat' and 'Dog' of a union; pass \\('Cat', value\\)"),
        ({"type": "array", "items": [CAT, DOG]}, [{"age": 1}], "fits 'Cat' and 'Dog' of a union"),
        ([CAT, {"type": "map", "values": "int"}], {"age": 1}, "fits 'Cat' and 'map' of a union"),
    ],
)
def test_values_that_a_reader_would_get_as_others(kind: Any, value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        AvroEncoder(record(kind)).encode({"v": value})


def test_fields_that_the_schema_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="field 'w' is not in the schema; got 2; convert it before the sink"):
        AvroEncoder(record("int")).encode({"v": 1, "w": 2})


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (MILLIS, NOON.replace(microsecond=1000), NOON.replace(microsecond=1000)),
        (MILLIS, NOON.astimezone(timezone(timedelta(hours=2))), NOON),
        (MILLIS, 5, datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)),
        (LOCAL, datetime(2024, 1, 1), datetime(2024, 1, 1)),
        (DAY, date(1, 1, 1), date(1, 1, 1)),
        (PRICE, Decimal("-1.2"), Decimal("-1.20")),
        ("double", 3, 3.0),
        ("double", float("inf"), float("inf")),
        ("float", 0.1, 0.10000000149011612),
        ("bytes", bytearray(b"\0'"), b"\0'"),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=1), UUID(int=1)),
        ({"type": "array", "items": "int"}, (1, 2), [1, 2]),
        ([CAT, DOG], {"age": 1, "tag": 2}, {"age": 1, "tag": 2}),
        ([CAT, DOG], ("Cat", {"age": 1}), {"age": 1}),
        ([CAT, DOG], ("Dog", {"age": 1}), {"age": 1, "tag": 0}),
        (DOG, {"age": 1}, {"age": 1, "tag": 0}),
    ],
)
def test_values_that_fit_arrive_equal(kind: Any, value: Any, read: Any) -> None:
    schema = record(kind)
    assert AvroDecoder(schema).decode(AvroEncoder(schema).encode({"v": value})) == {"v": read}

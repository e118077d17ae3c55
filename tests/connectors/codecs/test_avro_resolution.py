"""A reader's schema decides on the types of its records, whoever wrote them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pytest

from malflow.connectors.codecs import AvroDecoder, SchemaRegistry
from tests.connectors.codecs.fake_registry import running_registry

DAY = {"type": "int", "logicalType": "date"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
OFFER = {"type": "record", "name": "Offer", "fields": [{"name": "day", "type": DAY, "default": 3}]}
UNKNOWN = UUID(int=5)


def record(*fields: tuple[Any, ...]) -> dict[str, Any]:
    made = [{"name": name, "type": kind, **({"default": more[0]} if more else {})} for name, kind, *more in fields]
    return {"type": "record", "name": "R", "fields": made}


def decoder_of(old: dict[str, Any], new: Any, registry: Any) -> Any:
    """Return a decoder with a reader's schema, and a function that writes records with the old one."""
    schemas = SchemaRegistry(registry.url)
    number = schemas.register("old", json.dumps(old))

    def write(value: Any) -> bytes:
        raw = BytesIO()
        fastavro.schemaless_writer(raw, fastavro.parse_schema(old), value)
        return b"\0" + number.to_bytes(4, "big") + raw.getvalue()

    return AvroDecoder(new, registry=schemas), write


@pytest.mark.parametrize(
    ("kind", "default", "python"),
    [
        (PRICE, "{", Decimal("1.23")),
        (
            {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2},
            "\0{",
            Decimal("1.23"),
        ),
        (DAY, 19782, date(2024, 2, 29)),
        ({"type": "int", "logicalType": "time-millis"}, 1500, time(0, 0, 1, 500000)),
        ({"type": "long", "logicalType": "time-micros"}, 1, time(0, 0, 0, 1)),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1, datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, 1, datetime(1970, 1, 1, 0, 0, 0, 1)),
        ({"type": "string", "logicalType": "uuid"}, str(UNKNOWN), UNKNOWN),
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 1}, "\u00ff", b"\xff"),
        (["null", DAY], None, None),
        ([DAY, "null"], 3, date(1970, 1, 4)),
        ({"type": "array", "items": DAY}, [3], [date(1970, 1, 4)]),
        ({"type": "map", "values": "bytes"}, {"a": "\u00ff"}, {"a": b"\xff"}),
        (OFFER, {}, {"day": date(1970, 1, 4)}),
        ("double", 1, 1.0),
    ],
)
def test_defaults_have_the_type_of_their_field(kind: Any, default: Any, python: Any) -> None:
    with running_registry() as registry:
        decoder, write = decoder_of(record(("id", "int")), record(("id", "int"), ("new", kind, default)), registry)
        found = decoder.decode(write({"id": 1}))
        assert found == {"id": 1, "new": python}
        assert type(found["new"]) is type(python)


def test_records_do_not_share_a_default() -> None:
    with running_registry() as registry:
        new = record(("id", "int"), ("tags", {"type": "array", "items": "string"}, []))
        decoder, write = decoder_of(record(("id", "int")), new, registry)
        decoder.decode(write({"id": 1}))["tags"].append("mine")
        assert decoder.decode(write({"id": 2})) == {"id": 2, "tags": []}


@pytest.mark.parametrize("old", [OFFER["fields"][0]["type"], "int"])  # type: ignore[index]
@pytest.mark.parametrize("new", [DAY, "int"])
def test_the_readers_logical_types_count(old: Any, new: Any) -> None:
    def schema(kind: Any) -> dict[str, Any]:
        inner = {"type": "record", "name": "Inner", "fields": [{"name": "day", "type": kind}]}
        return record(
            ("a", kind), ("b", ["null", kind]), ("c", {"type": "array", "items": kind}), ("d", inner), ("e", "Inner")
        )

    value = {"a": 3, "b": 3, "c": [3], "d": {"day": 3}, "e": {"day": 3}}
    with running_registry() as registry:
        decoder, write = decoder_of(schema(old), schema(new), registry)
        at = date(1970, 1, 4) if new == DAY else 3
        assert decoder.decode(write(value)) == {"a": at, "b": at, "c": [at], "d": {"day": at}, "e": {"day": at}}

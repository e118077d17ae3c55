from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from malflow.connectors.codecs import AvroDecoder, AvroEncoder, RegistryUnavailable, SchemaRegistry
from malflow.connectors.codecs.registry import frame
from malflow.errors import GraphError
from tests.connectors.codecs.fake_registry import FakeRegistry, running_registry

SALE = {
    "type": "record",
    "name": "Sale",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "place", "type": ["null", "string"]}],
}
NEWER = {**SALE, "fields": [*SALE["fields"], {"name": "price", "type": "double", "default": 1.5}]}
VALUE = {"id": 7, "place": "Köln"}


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with running_registry() as registry:
        yield registry


def registry_at(server: FakeRegistry, **options: Any) -> SchemaRegistry:
    return SchemaRegistry(server.url, retry_for=timedelta(seconds=0.5), **options)


@pytest.mark.parametrize("form", ["dict", "text", "path"])
def test_records_of_a_given_schema(form: str, tmp_path: Path) -> None:
    path = tmp_path / "sale.avsc"
    path.write_text(json.dumps(SALE), encoding="utf-8")
    schema: Any = {"dict": SALE, "text": json.dumps(SALE), "path": path}[form]
    encoder, decoder = pickle.loads(pickle.dumps((AvroEncoder(schema), AvroDecoder(schema))))
    assert decoder.decode_column(encoder.encode_column([VALUE, {"id": 8, "place": None}])) == [
        VALUE,
        {"id": 8, "place": None},
    ]


@pytest.mark.parametrize("raw", [b"", b"\x0e", b"\x0e\x02\x0aK", b"\x0e\x00surplus", b"\x0e\x09"])
def test_bytes_that_are_no_record(raw: bytes) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - fastavro has a dozen
        AvroDecoder(SALE).decode(raw)


def test_records_with_the_frame_of_a_registry(server: FakeRegistry) -> None:
    registry = registry_at(server)
    encoder = AvroEncoder(SALE, registry=registry, subject="sales-value")
    raws = encoder.encode_column([VALUE] * 3)
    assert raws[0][:5] == frame(server.subjects["sales-value"][0])
    decoder = pickle.loads(pickle.dumps(AvroDecoder(registry=registry)))
    assert decoder.decode_column(raws) == [VALUE] * 3
    assert server.requests == ["POST /subjects/sales-value/versions", "GET /schemas/ids/100000"]


def test_reader_schema_of_records_that_others_wrote(server: FakeRegistry) -> None:
    registry = registry_at(server)
    old = AvroEncoder(SALE, registry=registry, subject="sales-value").encode(VALUE)
    new = AvroEncoder(NEWER, registry=registry, subject="sales-value").encode({**VALUE, "price": 3.0})
    assert AvroDecoder(NEWER, registry=registry).decode_column([old, new]) == [
        {**VALUE, "price": 1.5},
        {**VALUE, "price": 3.0},
    ]
    assert AvroDecoder(SALE, registry=registry).decode_column([old, new]) == [VALUE, VALUE]
    assert AvroDecoder(registry=registry).decode_column([old, new]) == [VALUE, {**VALUE, "price": 3.0}]


def test_schema_that_refers_to_others(server: FakeRegistry) -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "sale", "type": "shop.Sale"}]}
    reference = {"name": "shop.Sale", "subject": "sale", "version": 1}
    server.add(SALE, "sale")
    number = server.add(line, references=[reference])
    stream = BytesIO()
    stream.write(frame(number))
    whole = {**line, "fields": [{"name": "sale", "type": SALE}]}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(whole), {"sale": VALUE})
    assert AvroDecoder(registry=registry_at(server)).decode(stream.getvalue()) == {"sale": VALUE}


def test_unknown_schema_is_the_records_fault(server: FakeRegistry) -> None:
    decoder = AvroDecoder(registry=registry_at(server))
    for _ in range(3):
        with pytest.raises(ValueError, match=r"has no schema with id 9|does not know /schemas/ids/9: Schema not found"):
            decoder.decode(frame(9) + b"\x0e\x00")
    assert len(server.requests) == 1


@pytest.mark.parametrize("raw", [b"", b"\0\0\0", b"\1\0\0\0\1\x0e\x00", b'{"id": 7}'])
def test_bytes_without_a_frame(raw: bytes, server: FakeRegistry) -> None:
    with pytest.raises(ValueError, match="wire format"):
        AvroDecoder(registry=registry_at(server)).decode(raw)


def test_schema_of_another_kind(server: FakeRegistry) -> None:
    number = server.add("syntax = 'proto3';", schemaType="PROTOBUF")
    with pytest.raises(ValueError, match="is PROTOBUF, not Avro"):
        AvroDecoder(registry=registry_at(server)).decode(frame(number) + b"\x0e\x00")


@pytest.mark.slow
def test_registry_that_is_away_for_a_while(server: FakeRegistry) -> None:
    number = server.add(SALE)
    server.failures = [503, 404, 429]  # 404 is what a proxy says
    raw = frame(number) + AvroEncoder(SALE).encode(VALUE)
    registry = SchemaRegistry(server.url, retry_for=timedelta(seconds=10))
    assert AvroDecoder(registry=registry).decode(raw) == VALUE


def test_registry_that_stays_away() -> None:
    with running_registry() as server:
        url = server.url
    registry = SchemaRegistry(url, retry_for=timedelta(seconds=0.3))
    with pytest.raises(RegistryUnavailable, match=r"did not answer GET /schemas/ids/1 for 0.3 s.*refused"):
        AvroDecoder(registry=registry).decode(frame(1) + b"\x0e\x00")


def test_credentials_of_a_registry(server: FakeRegistry) -> None:
    server.credentials = "anna:pa:ss w@rd"
    number = server.add(SALE)
    raw = frame(number) + AvroEncoder(SALE).encode(VALUE)
    in_url = SchemaRegistry(server.url.replace("http://", "http://anna:pa%3Ass%20w%40rd@"))
    assert AvroDecoder(registry=in_url).decode(raw) == VALUE
    beside = SchemaRegistry(server.url, username="anna", password="pa:ss w@rd")  # noqa: S106 - of this test
    assert AvroDecoder(registry=beside).decode(raw) == VALUE
    with pytest.raises(RegistryUnavailable, match="answers 401") as caught:
        AvroDecoder(registry=registry_at(server, username="anna", password="wrong!")).decode(raw)  # noqa: S106
    shown = f"{in_url!r} {beside!r} {caught.value}"
    assert "w@rd" not in shown
    assert "w%40rd" not in shown
    assert "wrong!" not in shown


@pytest.mark.parametrize(
    ("kind", "value"),
    [("int", 1.7), ("int", 2**31), ("long", True), ("boolean", "false"), ("boolean", None), (["null", "int"], 2**40)],
)
def test_values_that_would_be_written_as_others(kind: Any, value: Any) -> None:
    schema = {"type": "record", "name": "Sale", "fields": [{"name": "n", "type": kind}]}
    with pytest.raises(ValueError, match=r"Sale\.n"):
        AvroEncoder(schema).encode({"n": value})


def test_a_schema_that_may_not_be_added(server: FakeRegistry) -> None:
    encoder = AvroEncoder(SALE, registry=registry_at(server), subject="sales-value", register=False)
    with pytest.raises(ValueError, match="does not know /subjects/sales-value"):
        encoder.encode(VALUE)
    server.add(SALE, "sales-value")
    assert encoder.encode(VALUE)[:5] == frame(100_000)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (AvroDecoder, "needs a schema, or registry="),
        (lambda: AvroDecoder({"type": "record"}), "AvroDecoder"),
        (lambda: AvroDecoder("{oops"), "cannot read the schema"),
        (lambda: AvroEncoder(SALE, subject="x"), "registry= and subject= together"),
        (lambda: SchemaRegistry("localhost:8081"), "http://"),
        (lambda: SchemaRegistry("http://anna:se/cret@localhost:8081"), "must be percent-encoded"),
    ],
)
def test_mistakes_that_are_found_while_building(build: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        build()
    assert "se/cret" not in f"{caught.value} {caught.value.__cause__}"

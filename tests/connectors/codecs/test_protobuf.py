from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.wrappers_pb2 import Int64Value, StringValue
from hypothesis import given
from hypothesis import strategies as st

from malflow.connectors.codecs import ProtobufDecoder, ProtobufEncoder, SchemaRegistry
from malflow.connectors.codecs.registry import frame, message_indexes, read_message_indexes
from malflow.errors import GraphError
from tests.connectors.codecs.fake_registry import running_registry


def nested_class() -> Any:
    """Return the class of the message Second.Inner, of a file that has First and Second."""
    file = descriptor_pb2.FileDescriptorProto(name="nested.proto", package="nested", syntax="proto3")
    file.message_type.add(name="First")
    second = file.message_type.add(name="Second")
    inner = second.nested_type.add(name="Inner")
    inner.field.add(name="n", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT64, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("nested.Second.Inner"))


def test_plain_messages() -> None:
    encoder, decoder = pickle.loads(pickle.dumps((ProtobufEncoder(Timestamp), ProtobufDecoder(Timestamp))))
    assert decoder.decode(encoder.encode(Timestamp(seconds=5))) == Timestamp(seconds=5)


def test_messages_with_the_frame_of_a_registry() -> None:
    inner = nested_class()
    with running_registry() as server:
        number = server.add("proto", "inner-value")
        registry = SchemaRegistry(server.url, retry_for=timedelta(seconds=1))
        raw = ProtobufEncoder(inner, registry=registry, subject="inner-value").encode(inner(n=5))
    assert raw[:8] == frame(number) + b"\x04\x02\x00"
    assert ProtobufDecoder(inner, framed=True).decode(raw) == inner(n=5)


def test_first_message_of_a_file() -> None:
    raw = frame(1) + message_indexes((0,)) + Timestamp(seconds=5).SerializeToString()
    assert ProtobufDecoder(Timestamp, framed=True).decode(raw) == Timestamp(seconds=5)


@pytest.mark.parametrize(
    "raw", [b"", b"\0\0\0\0\1", b"\0\0\0\0\1\x80", b"\0\0\0\0\1\x04\x02", b"\0\0\0\0\1\xff\xff\x7f"]
)
def test_frames_that_are_cut_off(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"wire format|message indexes"):
        ProtobufDecoder(Timestamp, framed=True).decode(raw)


def test_another_message_of_the_file() -> None:
    raw = frame(1) + message_indexes((6,)) + Int64Value(value=3).SerializeToString()
    with pytest.raises(ValueError, match=r"it is message \[6\] of its file, and Int64Value is message \[2\]"):
        ProtobufDecoder(Int64Value, framed=True).decode(raw)


def test_bytes_that_are_no_message() -> None:
    with pytest.raises(Exception, match=r"[Ee]rror parsing|[Tt]runcated|[Pp]arse"):
        ProtobufDecoder(StringValue).decode(b"\xff\xff")


def test_messages_of_another_class() -> None:
    with pytest.raises(TypeError, match="it is Int64Value, not Timestamp"):
        ProtobufEncoder(Timestamp).encode(Int64Value())


def test_things_that_are_no_message_class() -> None:
    with pytest.raises(GraphError, match="needs the generated class of a message"):
        ProtobufDecoder(Timestamp())
    with pytest.raises(GraphError, match="registry= and subject= together"):
        ProtobufEncoder(Timestamp, subject="x")


@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=5).map(tuple), st.binary())
def test_message_indexes_there_and_back(path: tuple[int, ...], rest: bytes) -> None:
    raw = message_indexes(path) + rest
    found, start = read_message_indexes(raw, 0)
    assert found == path
    assert raw[start:] == rest

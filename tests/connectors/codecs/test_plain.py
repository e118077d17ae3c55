from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.connectors.codecs import JsonDecoder, JsonEncoder, TextDecoder, decoder_of, encoder_of
from malflow.errors import GraphError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(JSON, max_size=3))
@pytest.mark.slow
def test_json_there_and_back(values: list[object]) -> None:
    assert JsonDecoder().decode_column(JsonEncoder().encode_column(values)) == values


@given(st.binary() | st.text(alphabet='[]{}",:1e-.tfn\\u \t\n').map(str.encode))
def test_json_that_the_module_refuses_or_reads(raw: bytes) -> None:
    try:
        expected = repr(json.loads(raw.decode()))
    except (ValueError, RecursionError):
        with pytest.raises((ValueError, RecursionError)):
            JsonDecoder().decode(raw)
        return
    assert repr(JsonDecoder().decode(raw)) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: {2}}])
def test_values_that_are_not_json(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        JsonEncoder().encode(value)


def test_a_default_for_values_that_are_not_json() -> None:
    assert JsonEncoder(default=sorted).encode({2, 1}) == b"[1,2]"


@pytest.mark.parametrize("name", ["bytes", "text", "json"])
def test_codecs_by_name_after_pickling(name: str) -> None:
    encoder, decoder = pickle.loads(pickle.dumps((encoder_of(name, "It"), decoder_of(name, "It"))))
    value = b"x" if name == "bytes" else "x"
    assert decoder.decode_column(encoder.encode_column([value])) == [value]


@pytest.mark.parametrize("value", ["text", 5, None])
def test_bytes_are_not_made_of_other_values(value: object) -> None:
    with pytest.raises(TypeError, match="not bytes; pass encode='json'"):
        encoder_of("bytes", "It").encode(value)


def test_a_function_as_codec() -> None:
    assert decoder_of(int, "It").decode_column([b"1", b"2"]) == [1, 2]
    assert encoder_of(lambda value: b"%d" % value, "It").encode(5) == b"5"
    with pytest.raises(TypeError, match="returned str, not bytes"):
        encoder_of(str, "It").encode(5)


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        ("jsn", "did you mean 'json'?"),
        ("protobuf-like", "there are 'bytes', 'json', 'text'"),
        (JsonDecoder, r"write JsonDecoder\(...\)"),
        (5, "must be a name, a codec or a plain function; got 5"),
    ],
)
def test_things_that_are_no_decoder(decode: object, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        decoder_of(decode, "KafkaSource")


def test_text_in_another_encoding() -> None:
    assert TextDecoder("latin-1").decode(b"K\xf6ln") == "Köln"
    with pytest.raises(GraphError, match=r"TextDecoder encoding must be .*; got 'klingon'"):
        TextDecoder("klingon")

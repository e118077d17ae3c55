"""Keys in systems whose keys are text: equal ones are written alike, and unequal ones are not."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.connectors.key_texts import PlainKeyEncoder, key_encoder_of
from malflow.connectors.redis import RedisLookup, RedisSink
from malflow.connectors.redis.connection import UnwritableRow
from malflow.sinks import Share, SinkOwner

ONE = [1, 1.0, Decimal("1.00"), Fraction(1), np.int8(1), np.float32(1)]
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-3, 3),
    st.floats(),
    st.decimals(),
    st.fractions(),
    st.integers(-3, 3).map(float),
    st.integers(-3, 3).map(lambda n: Decimal(n) / 2),
)


def written(key: Any, encode: Any = None) -> bytes | None:
    """Return what a new encoder of keys writes; None if it refuses the key."""
    try:
        return key_encoder_of(encode, "test", writes=True).encode(key)
    except (TypeError, ValueError):
        return None


@pytest.mark.parametrize("encode", [None, "json"])
@given(one=NUMBERS, other=NUMBERS)
def test_numbers_are_written_alike_if_they_are_equal_and_only_then(encode: Any, one: Any, other: Any) -> None:
    try:
        are_equal = one == other
    except ArithmeticError:  # a signaling NaN
        are_equal = False
    texts = written(one, encode), written(other, encode)
    if None not in texts:
        assert (texts[0] == texts[1]) == are_equal


@pytest.mark.parametrize("key", ONE)
def test_every_number_one_is_written_as_one(key: Any) -> None:
    assert written(key) == b"1"


@pytest.mark.parametrize("key", [True, np.True_, None, ("a",), float("nan"), Decimal("0.1"), Fraction(1, 3), 1j])
def test_keys_without_a_spelling_of_their_own_are_refused(key: Any) -> None:
    assert written(key) is None


@pytest.mark.parametrize(("one", "other"), [((1, "a"), (1.0, "a")), (-0.0, 0), (1e300, int(1e300))])
def test_keys_in_json_are_written_alike_if_they_are_equal(one: Any, other: Any) -> None:
    assert written(one, "json") == written(other, "json")
    assert json.loads(written(one, "json") or b"") == (list(one) if isinstance(one, tuple) else one)
    assert written((1, True), "json") is None


@pytest.mark.parametrize("other", ["1", b"1"])
@pytest.mark.parametrize("batches", [[[1, "?"]], [[1, 2], ["?", "?"]]], ids=["together", "apart"])
def test_keys_of_two_kinds_are_refused(other: Any, batches: list[list[Any]]) -> None:
    encoder = PlainKeyEncoder("make them alike")
    for batch in batches[:-1]:
        encoder.encode_column(batch)
    last = [other if key == "?" else key for key in batches[-1]]
    with pytest.raises(TypeError, match=r"the key 1 before it is a number: .*; make them alike"):
        encoder.encode_column(last)


def test_rows_of_equal_keys_are_one_in_redis(redis_url: str) -> None:
    sink: Any = RedisSink(redis_url, table="alike")
    sink.fence(SinkOwner("job", "alike", 1))
    sink.sink_batch(ONE, list(range(len(ONE))), [0] * len(ONE))
    sink.commit([sink.prepare(1)])
    with pytest.raises(UnwritableRow, match=r"key '1' .*it is text, and the key 1 before it is a number"):
        sink.sink_batch(["1"], [7], [0])
    table: Any = RedisLookup(redis_url, table="alike")
    assert table.get_many([None]) == {}
    assert [table.get_many([key])[key] for key in [*ONE, "1"]] == [b"5"] * (len(ONE) + 1)
    sink.close()
    table.close()


def test_keys_of_two_kinds_on_two_workers_are_refused() -> None:
    first: Any = RedisSink("redis://h", table="t")
    pieces = []
    for key in (1, "1"):
        worker = pickle.loads(pickle.dumps(first))
        pieces.append(pickle.loads(pickle.dumps(worker.encode([key], [b"x"], [0]))))
    first._segments = _Segments()
    writer = first.open_writer(Share(1, 0, 1, "x"))
    writer.write(pieces[0])
    with pytest.raises(UnwritableRow, match="the key 1 before it is a number"):
        writer.write(pieces[1])


class _Segments:
    def writer(self, share: Any) -> Any:
        return share

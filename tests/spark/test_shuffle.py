"""Records survive the shuffle between workers unchanged."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.errors import OperatorError
from malflow.operators.debug import watch
from malflow.records.batch import Batch, concat
from malflow.records.columnar import estimated_bytes
from malflow.runtime.spark.tasks import records as shuffle
from malflow.runtime.spark.tasks.records import ShuffleBuffer, chunks_of
from malflow.runtime.transport import chunks as packing

floats = st.floats(allow_nan=False)
things = st.one_of(
    st.integers(),
    st.booleans(),
    floats,
    st.text(max_size=5),
    st.none(),
    st.tuples(st.integers(), floats),
    st.sampled_from([2**63 - 1, -(2**63), 2**63, 0.0, -0.0, math.inf]),
)
columns = st.one_of(st.lists(st.integers()), st.lists(floats), st.lists(things))


def typed(column: Any) -> list[tuple[type, str]]:
    return [(type(value), repr(value)) for value in column]


@given(values=columns, keyed=st.booleans(), times=columns)
def test_every_value_has_its_type_again(values: list[Any], keyed: bool, times: list[Any]) -> None:
    length = min(len(values), len(times))
    values, times = values[:length], times[:length]
    batch = Batch(tuple(values) if keyed else None, values, tuple(times), [(length, 7)])
    buffer, empty = ShuffleBuffer(), ShuffleBuffer()
    buffer.add([batch])
    empty.add([Batch(None, (), range(0))])
    (one,), (other,) = ([chunk.batch() for chunk in chunks_of(it.blobs())] for it in (buffer, empty))
    assert typed(one.values) == typed(values)
    assert typed(one.timestamps) == typed(times)
    assert (None if one.keys is None else typed(one.keys)) == (typed(values) if keyed else None)
    assert list(one.epochs) == [(length, 7)]
    assert (len(other), other.keys) == (0, None)


batches = st.lists(
    st.integers(0, 5).flatmap(
        lambda size: st.builds(
            Batch,
            st.one_of(st.none(), st.lists(st.integers(), min_size=size, max_size=size)),
            st.lists(things, min_size=size, max_size=size),
            st.lists(st.integers(), min_size=size, max_size=size),
            st.lists(st.tuples(st.just(size), st.integers()), max_size=2),
        )
    )
)


@given(sent=batches, chunk=st.integers(1, 8), blob=st.integers(1, 200), random=st.randoms())
@pytest.mark.slow
def test_shuffle_buffer_does_not_depend_on_the_order_of_its_blobs(
    sent: list[Batch], chunk: int, blob: int, random: Any
) -> None:
    with patch.object(packing, "_CHUNK", chunk), patch.object(shuffle, "_BLOB", blob):
        buffer = ShuffleBuffer()
        for batch in sent:
            buffer.add([batch])
        assert bool(buffer) == bool(sent)
        blobs = [*buffer.blobs()]
    assert not buffer
    assert buffer.records == sum(map(len, sent))
    random.shuffle(blobs)
    chunks = chunks_of(blobs)
    assert sum(chunk.records for chunk in chunks) == buffer.records
    assert all(it.timed == bool(it.batch().epochs) for it in chunks)
    came, went = concat([Batch(None, (), ()), *(it.batch() for it in chunks)]), concat([Batch(None, (), ()), *sent])
    for column in map(attrgetter, ("values", "timestamps", "epochs")):
        assert typed(column(came)) == typed(column(went))
    assert typed(came.key_column()) == typed(went.key_column())


def test_debug_finds_a_value_that_changes_before_it_is_sent() -> None:
    value = [1]
    buffer = ShuffleBuffer("key", debug=True)
    buffer.add([watch(Batch(["k"], [value], [0]), "maker")])
    value.append(2)
    with pytest.raises(OperatorError, match=r"'maker' failed at key 'k'.*changed before operator 'key' read it"):
        list(buffer.blobs())


@given(sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=30), together=st.booleans())
def test_large_records_are_packed_apart_and_cut(sizes: list[int], together: bool) -> None:
    values = [bytes(size) for size in sizes]
    with patch.object(shuffle, "_BLOB", 1_000), patch.object(packing, "MOST_BYTES", 1_000):
        buffer = ShuffleBuffer()
        for batch in [values] if together else [[value] for value in values]:
            buffer.add([Batch(None, batch, [0] * len(batch))])
        blobs = [*buffer.blobs()]
    assert max(map(len, blobs)) <= 1_000 + 8, "what Java holds as a whole is bounded"
    chunks = chunks_of(reversed(blobs))
    assert [value for chunk in chunks for value in chunk.batch().values] == values
    assert buffer.bytes >= sum(sizes)
    if not together:
        assert max(chunk.records for chunk in chunks) <= max(1, 2 * 1_000 // min(sizes) + 2)


@pytest.mark.parametrize("value", [bytes(1 << 20), "x" * (1 << 20), [bytes(1 << 18)] * 4, {"a": bytes(1 << 20)}])
def test_sizes_of_large_values_are_estimated(value: Any) -> None:
    assert 10 << 20 <= estimated_bytes([value] * 10) <= 12 << 20
    assert estimated_bytes([]) == 0

"""Records survive the shuffle between workers unchanged."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.batch import Batch, concat
from malflow.errors import OperatorError
from malflow.operators.debug import watch
from malflow.runtime.spark import shuffle
from malflow.runtime.spark.shuffle import ShuffleBuffer, chunks_of, pack, unpack

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
    one, other = unpack(pack([batch, Batch(None, (), range(0))]))
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
def test_shuffle_buffer_does_not_depend_on_the_order_of_its_blobs(
    sent: list[Batch], chunk: int, blob: int, random: Any
) -> None:
    with patch.object(shuffle, "_CHUNK", chunk), patch.object(shuffle, "_BLOB", blob):
        buffer = ShuffleBuffer()
        for batch in sent:
            buffer.add([batch])
        blobs = [*buffer.blobs()]
    assert bool(buffer) == bool(sent)
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

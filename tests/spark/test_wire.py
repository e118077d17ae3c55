"""What travels between workers comes back as it was."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from malflow.batch import Batch
from malflow.runtime.spark.wire import pack, unpack

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

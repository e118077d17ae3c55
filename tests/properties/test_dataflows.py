"""Random dataflows agree with a naive interpreter, for every parallelism and batching of the records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from malflow import SnapshotError
from tests.properties.agreement import assert_agree
from tests.properties.building import keyed_states, run, run_rescaled
from tests.properties.dataflows import chains, dataflows
from tests.properties.interpreter import interpret
from tests.properties.specs import Dataflow

pytestmark = pytest.mark.slow


@given(dataflow=dataflows())
def test_dataflows_agree_with_the_interpreter(dataflow: Dataflow) -> None:
    for kind in sorted({step.kind for step in dataflow.steps}):
        event(kind)
    expected = interpret(dataflow)
    for parallelism in _parallelisms(dataflow):
        assert_agree(dataflow, expected, run(dataflow, parallelism))


@given(dataflow=dataflows(), data=st.data())
def test_batch_limits_do_not_show(dataflow: Dataflow, data: st.DataObject) -> None:
    parallelism = data.draw(st.sampled_from(_parallelisms(dataflow)))
    expected = interpret(dataflow)
    for chunk in (1, 2, 7):
        assert_agree(dataflow, expected, run(dataflow, parallelism, chunk))


@given(dataflow=chains(), chunk=st.sampled_from([None, None, 2]))
def test_values_changed_downstream_leave_upstream_state_alone(dataflow: Dataflow, chunk: int | None) -> None:
    expected = interpret(dataflow)
    for parallelism in _parallelisms(dataflow):
        assert_agree(dataflow, expected, run(dataflow, parallelism, chunk))


rescales = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=4)


@given(
    dataflow=st.one_of(dataflows(), chains()),
    parallelism=st.integers(1, 4),
    chunk=st.sampled_from([1, 2]),
    rescales=rescales,
)
def test_rescales_do_not_show(
    dataflow: Dataflow, parallelism: int, chunk: int, rescales: list[tuple[int, int]]
) -> None:
    assume(dataflow.movable)
    refused = any(spec.placement is None for spec in keyed_states(dataflow))
    try:
        got = run_rescaled(dataflow, parallelism, chunk, rescales)
    except SnapshotError:
        assert refused
        event("refused")
        return
    assert not refused or all(workers == parallelism for _, workers in rescales)
    assert_agree(dataflow, interpret(dataflow), got)


def _parallelisms(dataflow: Dataflow) -> Sequence[int]:
    return (1, 2, 3, 4) if dataflow.parallel else (1,)

"""Random dataflows agree with a naive interpreter, for every parallelism and batching of the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import Phase, assume, event, given, settings
from hypothesis import strategies as st

from malflow import SnapshotError
from malflow.engine.plan import PartAssignment
from tests.properties.agreement import assert_agree
from tests.properties.building import keyed_states, run, run_moved, run_rescaled
from tests.properties.dataflows import chains, dataflows, readings
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


unshrunk = settings(phases=(Phase.explicit, Phase.reuse, Phase.generate))  # to make one smaller takes minutes
moves = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=8)

REACHED: Counter[str] = Counter()
"""How many dataflows of this session handed parts out, and how many parts were moved."""


@unshrunk
@given(
    dataflow=readings(),
    parallelism=st.integers(2, 3),
    chunk=st.sampled_from([1, 2]),
    assignment=st.sampled_from(["dynamic", "dynamic", "auto", "static"]),
    moves=moves,
)
def test_moves_of_parts_do_not_show(
    dataflow: Dataflow,
    parallelism: int,
    chunk: int,
    assignment: PartAssignment,
    moves: list[tuple[int, int, int]],
) -> None:
    assume(dataflow.movable)
    if any(spec.placement is None for spec in keyed_states(dataflow)):
        moves = []  # a run would make none
    got = run_moved(dataflow, parallelism, chunk, assignment, moves)
    REACHED.update({"moved": got.moves, "handed out": got.handed_out})
    assert_agree(dataflow, interpret(dataflow), got)


def test_parts_were_handed_out_and_moved() -> None:
    if not REACHED:
        pytest.skip("no dataflow has run")
    assert min(REACHED["handed out"], REACHED["moved"]) > 0, REACHED


def _parallelisms(dataflow: Dataflow) -> Sequence[int]:
    return (1, 2, 3, 4) if dataflow.parallel else (1,)

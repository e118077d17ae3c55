"""Random dataflows give what a naive interpreter gives, at every parallelism and however the records are batched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import assume, event, given
from hypothesis import strategies as st

from malflow import MAX, DataMessage, SnapshotError
from tests.properties.building import Run, keyed_states, run, run_rescaled
from tests.properties.dataflows import chains, dataflows
from tests.properties.interpreter import Interpretation, interpret
from tests.properties.specs import Dataflow, Order, Place, Step

Record = DataMessage[Any, Any, Any]


@given(dataflow=dataflows())
def test_dataflows_agree_with_the_interpreter(dataflow: Dataflow) -> None:
    for kind in sorted({step.kind for step in dataflow.steps}):
        event(kind)
    expected = interpret(dataflow)
    for parallelism in _parallelisms(dataflow):
        _assert_agree(dataflow, expected, run(dataflow, parallelism))


@given(dataflow=dataflows(), data=st.data())
def test_batch_limits_do_not_show(dataflow: Dataflow, data: st.DataObject) -> None:
    parallelism = data.draw(st.sampled_from(_parallelisms(dataflow)))
    expected = interpret(dataflow)
    for chunk in (1, 2, 7):
        _assert_agree(dataflow, expected, run(dataflow, parallelism, chunk))


@given(dataflow=chains(), chunk=st.sampled_from([None, None, 2]))
def test_values_changed_downstream_leave_upstream_state_alone(dataflow: Dataflow, chunk: int | None) -> None:
    expected = interpret(dataflow)
    for parallelism in _parallelisms(dataflow):
        _assert_agree(dataflow, expected, run(dataflow, parallelism, chunk))


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
    _assert_agree(dataflow, interpret(dataflow), got)


def _parallelisms(dataflow: Dataflow) -> Sequence[int]:
    return (1, 2, 3, 4) if dataflow.parallel else (1,)


def _assert_agree(dataflow: Dataflow, expected: Interpretation, got: Run) -> None:
    for step in dataflow.steps:
        if step.kind in ("sink", "inspect"):
            assert _view(step.order, got.records[step.name]) == _view(step.order, expected.records[step.name]), (
                step.name
            )
        if step.kind == "inspect_frontier":
            _assert_epochs(step, expected.epochs[step.name], got.past_epochs.get(step.name, []), got.epochs[step.name])


# Records: each is compared as far as its order is specified, by the types of its parts as well, but for the key's


def _view(order: Order, records: Iterable[Record]) -> Any:
    rows = [(record.key, typed(record.value), typed(record.timestamp)) for record in records]
    if order is Order.TOTAL:
        return rows
    if order is Order.NONE:
        return Counter(rows)
    by_key: dict[Any, list[Any]] = {}
    for key, value, timestamp in rows:
        by_key.setdefault(key, []).append((value, timestamp))
    return by_key


def typed(value: Any) -> Any:
    """Make a value hashable, and unequal to those of other types."""
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(map(typed, value))
    if isinstance(value, (set, dict)):
        return type(value).__name__, frozenset(map(typed, value.items() if isinstance(value, dict) else value))
    return type(value).__name__, value


# Epochs


def _assert_epochs(
    step: Step, expected: list[Any], past: Sequence[dict[int, list[Any]]], last: dict[int, list[Any]]
) -> None:
    """Check the epochs of each worker, between any two changes of the number of workers."""
    seen: list[Any] = []
    for epochs in last.values():
        assert epochs[-1] is MAX
    for by_worker in (*past, {worker: epochs[:-1] for worker, epochs in last.items()}):
        different = []
        for epochs in by_worker.values():
            assert MAX not in epochs
            assert all(before < after for before, after in pairwise(epochs))
            if epochs not in different and (epochs or step.epochs is not Place.SOURCE):
                different.append(epochs)
        if step.epochs is not None:
            assert len(different) <= 1
            seen.extend(*different or [()])
    assert step.epochs is None or [*seen, MAX] == expected

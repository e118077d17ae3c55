"""Random dataflows give what a naive interpreter gives, at every parallelism and however the records are batched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from malflow import MAX, DataMessage
from tests.properties.building import Run, run
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


def _parallelisms(dataflow: Dataflow) -> Sequence[int]:
    return (1, 2, 3, 4) if dataflow.parallel else (1,)


def _assert_agree(dataflow: Dataflow, expected: Interpretation, got: Run) -> None:
    for step in dataflow.steps:
        if step.kind in ("sink", "inspect"):
            assert _view(step.order, got.records[step.name]) == _view(step.order, expected.records[step.name]), (
                step.name
            )
        if step.kind == "inspect_frontier":
            _assert_epochs(step, expected.epochs[step.name], list(got.epochs[step.name].values()))


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


def _assert_epochs(step: Step, expected: list[Any], by_worker: Sequence[list[Any]]) -> None:
    for epochs in by_worker:
        assert epochs[-1] is MAX
        assert all(before < after for before, after in pairwise(epochs))
    match step.epochs:
        case Place.SPREAD | Place.GATHERED:
            assert all(epochs == expected for epochs in by_worker)
        case Place.SOURCE:
            assert expected in by_worker
        case None:
            pass

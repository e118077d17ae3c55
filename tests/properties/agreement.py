"""Whether malflow agrees with the interpreter, as far as its results are specified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

from malflow import MAX, DataMessage
from tests.properties.building import Run
from tests.properties.functions import Ticket
from tests.properties.interpreter import Interpretation
from tests.properties.lifting import counts_epochs, lifted
from tests.properties.specs import Dataflow, Order, Place

__all__ = ["assert_agree", "assert_one_ticket", "typed"]

Record = DataMessage[Any, Any, Any]


def assert_agree(dataflow: Dataflow, expected: Interpretation, got: Run) -> None:
    """Compare what came out of each sink and inspector; a move of parts takes epochs near their source back."""
    assert_one_ticket(record.value for sink in got.sinks.values() for record in sink)
    vague = lifted(dataflow.steps, counts_epochs)
    followed = lifted(dataflow.steps, lambda step: step.kind == "inspect_frontier")
    for step in dataflow.steps:
        if step.kind in ("sink", "inspect") and step.name not in vague:
            assert _view(step.order, got.records[step.name]) == _view(step.order, expected.records[step.name]), (
                step.name
            )
        if step.kind == "inspect_frontier":
            place = None if got.moves or step.name in vague | followed else step.epochs
            _assert_epochs(place, expected.epochs[step.name], got.past_epochs.get(step.name, []), got.epochs[step.name])


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
    """Make a value hashable, and unequal to those of other types, but that a pair may be marked as made at the end."""
    if isinstance(value, (list, tuple)):
        return "list" if isinstance(value, list) else "tuple", tuple(map(typed, value))
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, tuple(typed(getattr(value, it.name)) for it in fields(value))
    if isinstance(value, (set, dict)):
        return type(value).__name__, frozenset(map(typed, value.items() if isinstance(value, dict) else value))
    return type(value).__name__, value


def assert_one_ticket(values: Iterable[Any]) -> None:
    """Check that an operator drew one ticket for each of its keys, whoever drew and however often."""
    numbers: dict[Any, int] = {}
    for found in _tickets(values):
        assert numbers.setdefault(found.owner, found.number) == found.number, f"two tickets of {found.owner}"


def _tickets(value: Any) -> Iterator[Ticket]:
    if isinstance(value, Ticket):
        yield value
    elif isinstance(value, dict):
        yield from _tickets(value.items())
    elif isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        for element in value:
            yield from _tickets(element)


# Epochs


def _assert_epochs(
    place: Place | None, expected: list[Any], past: Sequence[dict[int, list[Any]]], last: dict[int, list[Any]]
) -> None:
    """Check the epochs of each worker, between any two changes of the number of workers.

    They are the expected ones if it is known at which place they are the same.
    """
    seen: list[Any] = []
    for epochs in last.values():
        assert epochs[-1] is MAX
    for by_worker in (*past, {worker: epochs[:-1] for worker, epochs in last.items()}):
        different = []
        for epochs in by_worker.values():
            assert MAX not in epochs
            assert all(before < after for before, after in pairwise(epochs))
            if epochs not in different and (epochs or place is not Place.SOURCE):
                different.append(epochs)
        if place is not None:
            assert len(different) <= 1
            seen.extend(epoch for epochs in different for epoch in epochs)
    assert place is None or [*seen, MAX] == expected

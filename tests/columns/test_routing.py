"""Columns are routed and merged in the order of lists."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.columns import Column, Frame
from malflow.columns.column import Constant
from malflow.errors import OperatorError
from malflow.operators.contract import OperatorContext
from malflow.operators.routing import Merge, Router
from malflow.partitioners import rendezvous_select
from malflow.records.batch import Batch, concat
from malflow.records.columnar import rows_made

TOWNS = ["Ulm", "Bonn", "Kiel", "Jena", "Trier"]


@st.composite
def inputs(draw: Any, first: int = 0) -> list[tuple[Batch, Batch]]:
    """Draw the batches of an edge, as columns and as lists, with growing epochs."""
    found = []
    epoch = 0
    for _ in range(draw(st.integers(0, 3))):
        keys = draw(st.lists(st.sampled_from(TOWNS), max_size=8))
        numbers = list(range(first, first + len(keys)))
        first += len(keys)
        epochs = []
        for at in draw(st.lists(st.integers(0, len(keys)), max_size=3).map(sorted)):
            epoch += draw(st.integers(1, 5))
            epochs.append((at, epoch))
        column: Any = Column(pa.array(keys, pa.string()))
        if draw(st.booleans()):
            column = Column(pa.array(keys, pa.string()).dictionary_encode())
        if draw(st.booleans()) and len(set(keys)) == 1:
            column = Constant(keys[0], len(keys))
        frame = Frame(pa.record_batch({"n": pa.array(numbers, pa.int64())}))
        stamps = Column(pa.array(numbers, pa.int64()))
        rows = [{"n": number} for number in numbers]
        found.append((Batch(column, frame, stamps, epochs), Batch(keys, rows, numbers, epochs)))
    return found


def told(batch: Batch) -> Any:
    keys = None if batch.keys is None or not len(batch) else list(batch.keys)
    return keys, list(batch.values), list(batch.timestamps), list(batch.epochs)


@given(inputs(), st.integers(1, 5), st.booleans())
def test_columns_go_to_the_workers_of_lists(pairs: list[tuple[Batch, Batch]], workers: int, some: bool) -> None:
    routers = [
        Router("spread", rendezvous_select, range(workers), object(), fields={"n": "n"} if some else None)
        for _ in range(2)
    ]
    for columns, lists in pairs:
        before = rows_made()
        routed = routers[0].route(columns)
        assert rows_made() == before
        expected = routers[1].route(lists)
        assert [(worker, told(part)) for worker, part in routed] == [(worker, told(part)) for worker, part in expected]


@given(st.lists(inputs(), min_size=1, max_size=3), st.booleans())
def test_merged_columns_have_the_order_of_lists(edges: list[list[tuple[Batch, Batch]]], in_turn: bool) -> None:
    answers = []
    before = rows_made()
    for at in (0, 1):
        merge = Merge(OperatorContext("merge"), len(edges), in_turn=in_turn)
        found = [batch for (batch,) in merge.run([[pair[at] for pair in pairs] for pairs in edges])]
        if at == 0:
            assert rows_made() == before
        answers.append(told(concat(found)) if found else None)
    assert answers[0] == answers[1]


def test_dictionaries_of_one_length() -> None:
    router = Router("spread", rendezvous_select, range(7), object())
    for town in TOWNS:
        frame = Frame(pa.record_batch({"n": [1, 2]}))
        routed = router.route(Batch(Column(pa.array([town, town])), frame, range(2)))
        assert [worker for worker, _ in routed] == [rendezvous_select(town, range(7))]


def test_large_ticks_are_cut() -> None:
    def edge(first: int) -> list[Batch]:
        numbers = list(range(first, first + 100_000))
        frame = Frame(pa.record_batch({"n": numbers}))
        return [
            Batch(Constant("a", 100_000), frame, Column(pa.array(numbers)), [(50_000, first), (100_000, first + 1)])
        ]

    merge = Merge(OperatorContext("merge"), 2, in_turn=False)
    found = [batch for (batch,) in merge.run([edge(0), edge(10)])]
    assert max(map(len, found)) == 65_536
    whole = concat(found)
    assert len(whole) == 200_000
    assert [epoch for _, epoch in whole.epochs] == [0, 1]


def test_partitioner_that_fails_for_a_key() -> None:
    def choose(key: Any, workers: Any) -> int:
        return workers[0] if key != "Kiel" else 99

    router = Router("spread", choose, range(2), object())
    frame = Frame(pa.record_batch({"n": [1, 2, 3]}))
    batch = Batch(Column(pa.array(["Ulm", "Kiel", "Kiel"])), frame, Column(pa.array([7, 8, 9])))
    with pytest.raises(OperatorError, match=r"'spread' failed at key 'Kiel', value \{'n': 2\}.* it must return one of"):
        router.route(batch)

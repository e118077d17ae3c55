"""Workers that are live in two processes: each catches up through the deltas of the other's ticks."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import MAX, agg
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.windows.counting import CountAggregate
from malflow.operators.windows.rollup import Level, RollupAggregate
from malflow.operators.windows.session import SessionAggregate
from malflow.operators.windows.sliding import SlidingAggregate
from malflow.operators.windows.time_windows import WindowAggregate
from malflow.records.batch import Batch
from malflow.windows import calendar, counting, session, sliding, tumbling

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 1, tzinfo=UTC)

LEVELS = [
    Level(calendar("minute").panes, timedelta(hours=1)),  # type: ignore[arg-type]
    Level(calendar("hour").panes, None),  # type: ignore[arg-type]
]

OPERATORS: dict[str, Callable[..., Operator]] = {
    "tumbling": partial(WindowAggregate, windows=tumbling(timedelta(minutes=5))),
    "early": partial(WindowAggregate, windows=tumbling(timedelta(minutes=9)), early=timedelta(minutes=2)),
    "sliding": partial(SlidingAggregate, windows=sliding(timedelta(minutes=9), timedelta(minutes=4))),
    "session": partial(SessionAggregate, windows=session(timedelta(minutes=4))),
    "counting": partial(CountAggregate, windows=counting(3, 2)),
    "rollup": partial(RollupAggregate, levels=LEVELS),
}


class Copy:
    """A worker's operator in one process."""

    def __init__(self, name: str) -> None:
        self.operator: Any = OPERATORS[name](
            OperatorContext("windows", tracked=True), aggregators=(agg.count(), agg.sum())
        )

    def tick(self, batch: Batch) -> tuple[Any, bytes]:
        """Process a batch; return the results, and the deltas of the states that have changed."""
        made = [
            [*zip(it.key_column(), it.values, it.timestamps, strict=True), *it.epochs]
            for it in self.operator.process(batch)
        ]
        deltas = {"": self.operator.delta(), **{role: it.delta() for role, it in self.operator.hidden.items()}}
        return repr(made), pickle.dumps({role: delta for role, delta in deltas.items() if delta})

    def follow(self, deltas: bytes) -> None:
        """Apply what another process did; the states that did not change are left alone."""
        for role, delta in pickle.loads(deltas).items():
            (self.operator.hidden[role] if role else self.operator).apply(delta)


@st.composite
def batches(draw: Any) -> list[Batch]:
    """Make batches of records that are on time, each with an epoch behind them or none."""
    epoch = 0
    made = []
    for _ in range(draw(st.integers(1, 12))):
        times = draw(st.lists(st.integers(epoch + 1, epoch + 12), max_size=3))
        keys = [draw(st.sampled_from("ab")) for _ in times]
        marks = []
        if draw(st.booleans()):
            epoch += draw(st.integers(1, 9))
            marks = [(len(times), START + timedelta(minutes=epoch))]
        made.append(Batch(keys, list(times), [START + timedelta(minutes=at) for at in times], marks))
    return [*made, Batch([], [], [], [(0, MAX)])]


@pytest.mark.parametrize("name", OPERATORS)
@given(made=batches(), turns=st.lists(st.integers(0, 1), min_size=13, max_size=13))
def test_results_are_those_of_one_process(name: str, made: list[Batch], turns: list[int]) -> None:
    """A tick in which only the epoch has changed moves what is derived from it as well."""
    alone, copies = Copy(name), (Copy(name), Copy(name))
    for batch, turn in zip(made, turns, strict=False):
        expected, _ = alone.tick(batch)
        results, deltas = copies[turn].tick(batch)
        copies[1 - turn].follow(deltas)
        assert results == expected

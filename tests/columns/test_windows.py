"""Windows over columns are those of the same records one by one, in results, states, epochs and errors."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from malflow.message import MAX
from malflow.operators.contract import OperatorContext
from malflow.operators.windows.sliding import SlidingAggregate
from malflow.operators.windows.time_windows import WindowAggregate
from malflow.records.batch import Batch
from malflow.windows import TimeWindows, calendar, sliding, tumbling
from tests.columns.aggregates import Twins, aggregators, as_rows, frames, records

_CUTS = st.lists(st.integers(0, 1000), max_size=4)
_ACTS = st.sampled_from(["nothing", "ask", "delta", "look", "rows", "restore"])


def _windows(size: Any, step: Any, *, timed: bool) -> TimeWindows:
    if timed:
        size, step = timedelta(seconds=size), step and timedelta(seconds=step)
    return tumbling(size) if step is None else sliding(size, step)


@given(aggregators(), records(misfits=True), _CUTS, st.integers(1, 12), st.data())
def test_columns_give_the_results_of_records(chosen: Any, drawn: Any, cuts: Any, size: int, data: Any) -> None:
    is_timed = isinstance(drawn.timestamps[0], datetime)
    windows = _windows(size, None, timed=is_timed)
    if is_timed and data.draw(st.integers(0, 9)) == 0:
        windows = calendar("minute")
    _compare(WindowAggregate, windows, chosen, drawn, cuts, data)


@given(aggregators(merging=True), records(misfits=True), _CUTS, st.integers(1, 5), st.integers(1, 7), st.data())
def test_windows_that_share_panes_do_too(chosen: Any, drawn: Any, cuts: Any, size: int, step: int, data: Any) -> None:
    windows = _windows(size * 2, step * 2, timed=isinstance(drawn.timestamps[0], datetime))
    operator = WindowAggregate if windows.is_plain else SlidingAggregate
    _compare(operator, windows, chosen, drawn, cuts, data)


def _compare(operator: Any, windows: TimeWindows, chosen: Any, drawn: Any, cuts: Any, data: Any) -> None:
    twins = Twins(lambda: operator(OperatorContext("windows", tracked=True), windows, chosen))
    for batch in _with_epochs(frames(drawn, cuts), data):
        if not twins.take(batch):
            return
        act = data.draw(_ACTS)
        if act == "rows" and not twins.take(replace(as_rows(batch), epochs=())):  # they are late, or of open windows
            return
        twins.act(act)
    twins.compare()
    twins.take(Batch(None, (), (), [(0, MAX)]))


def _with_epochs(batches: list[Batch], data: Any) -> list[Batch]:
    """Return the batches with epochs between their records: nearly always such that none is late."""
    stamps = [stamp for batch in batches for stamp in batch.timestamps]
    least = [min(stamps[at:]) for at in range(len(stamps))]
    reached = None
    found, done = [], 0
    is_careless = data.draw(st.integers(0, 9)) == 0
    for batch in batches:
        epochs = []
        for at in sorted(data.draw(st.lists(st.integers(0, len(batch)), max_size=4))):
            ahead = least[done + at] if done + at < len(stamps) else stamps[-1]
            if isinstance(ahead, datetime):
                epoch: Any = ahead - timedelta(seconds=data.draw(st.integers(-3 if is_careless else 1, 5)))
            else:
                epoch = ahead - data.draw(st.integers(-3 if is_careless else 1, 5))
            if reached is None or epoch > reached:
                reached = epoch
                epochs.append((at, epoch))
        done += len(batch)
        found.append(replace(batch, epochs=epochs))
    return found

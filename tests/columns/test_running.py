"""Running aggregates of columns are those of the same records one by one, in results, states and errors."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from malflow.operators.contract import OperatorContext
from malflow.operators.keyed.stateful import RunningAggregate
from tests.columns.aggregates import Twins, aggregators, as_rows, frames, records

_CUTS = st.lists(st.integers(0, 1000), max_size=4)


@given(aggregators(), records(misfits=True), _CUTS, st.data())
def test_columns_give_the_results_of_records(chosen: Any, drawn: Any, cuts: Any, data: Any) -> None:
    twins = Twins(lambda: RunningAggregate(OperatorContext("totals", tracked=True), chosen))
    for batch in frames(drawn, cuts):
        if not twins.take(batch):
            return
        act = data.draw(st.sampled_from(["nothing", "ask", "delta", "look", "rows", "restore"]))
        if act == "rows" and not twins.take(as_rows(batch)):  # they may come from another stream
            return
        twins.act(act)
    twins.compare()

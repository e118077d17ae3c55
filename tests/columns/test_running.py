"""Running aggregates of columns are those of the same records one by one, in results, states and errors."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from malflow import agg
from malflow.columns import Column, Frame
from malflow.operators.contract import OperatorContext
from malflow.operators.keyed.stateful import RunningAggregate
from malflow.records.batch import Batch
from malflow.records.columnar import is_columnar, rows_made
from tests.columns.aggregates import aggregators, as_rows, delta_bits, frames, records, run, state_bits

_CUTS = st.lists(st.integers(0, 1000), max_size=4)


def _operator(chosen: Any, *, tracked: bool = True) -> RunningAggregate:
    return RunningAggregate(OperatorContext("totals", tracked=tracked), chosen)


@given(aggregators(), records(misfits=True), _CUTS, st.data())
def test_columns_give_the_results_of_records(chosen: Any, drawn: Any, cuts: Any, data: Any) -> None:
    by_columns, by_records = _operator(chosen), _operator(chosen)
    copies = [_operator(chosen), _operator(chosen)]
    for batch in frames(drawn, cuts):
        outcome = run(by_records, as_rows(batch))
        assert run(by_columns, batch) == outcome
        if isinstance(outcome, str):
            return
        act = data.draw(st.sampled_from(["nothing", "delta", "look", "rows", "restore"]))
        if act == "delta":
            deltas = [it.delta() for it in (by_columns, by_records)]
            assert delta_bits(deltas[0]) == delta_bits(deltas[1])
            for copy, delta in zip(copies, deltas, strict=True):
                copy.apply(delta)
        elif act == "look":
            assert state_bits(by_columns) == state_bits(by_records)
        elif act == "rows":  # they may come from another stream
            assert run(by_columns, as_rows(batch)) == run(by_records, as_rows(batch))
        elif act == "restore":  # each way continues with the state that the other has written
            for it in (by_columns, by_records):
                it.forget()
            whole = [it.delta() for it in (by_columns, by_records)]
            by_columns, by_records = _operator(chosen), _operator(chosen)
            by_columns.apply(whole[1])
            by_records.apply(whole[0])
            copies = [_operator(chosen), _operator(chosen)]
            for copy, delta in zip(copies, whole, strict=True):
                copy.apply(delta)
    for it, copy in zip((by_columns, by_records), copies, strict=True):
        copy.apply(it.delta())
    assert state_bits(by_columns) == state_bits(by_records) == state_bits(copies[0]) == state_bits(copies[1])

"""Laws of functions of batches: rows alone count, inputs stay as they are, and checks find what breaks that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import OperatorError
from malflow.columns.laws import difference
from tests.columns.batches import tables
from tests.columns.flows import cut, values_of

NUMBERS = pa.table({"x": [1.0, 3.0, 2.0, 4.0, 3.0, 9.0, 0.0, 5.0]})


def of_numbers(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of batches that applies one of numpy to their numbers."""
    return lambda batch: pa.record_batch({"share": pa.array(function(batch["x"].to_numpy()))})


over_all = of_numbers(lambda x: x / x.sum())

BREACHES: dict[str, Callable[[Any], Any]] = {
    "share": over_all,
    "centred": of_numbers(lambda x: x - x.mean()),
    "running": of_numbers(np.cumsum),
    "shifted": of_numbers(lambda x: np.roll(x, 1)),
    "reversed": of_numbers(lambda x: x[::-1].copy()),
    "numbered": of_numbers(lambda x: np.arange(len(x))),
    "sorted": of_numbers(np.sort),
}


@pytest.mark.parametrize("name", BREACHES)
def test_a_function_of_neighbours(name: str) -> None:
    words = r"it gives another answer when its batch is cut: column 'share', row \d: .*, then .*; .*use .aggregate\(\)"
    with pytest.raises(OperatorError, match=rf"operator 'it' failed at .*value \{{'x': .*{words}"):
        values_of(NUMBERS, lambda rows: rows.map_batches("it", BREACHES[name]), debug=True)
    with pytest.raises(OperatorError, match="it gives another answer when its batch is cut: column 'flag', row"):
        values_of(
            NUMBERS,
            lambda rows: rows.filter_batches("it", lambda batch: pc.greater(BREACHES[name](batch)["share"], 0.4)),
            debug=True,
        )


def test_records_that_came_one_by_one_are_joined_for_checks() -> None:
    with pytest.raises(OperatorError, match=r"'it' failed at .*another answer when its batch is cut: column 'share'"):
        values_of(
            NUMBERS,
            lambda rows: rows.key_local("key", "x").map_batches("it", over_all),
            debug=True,
        )


@given(st.lists(st.integers(1, 4), max_size=8), st.integers(2, 30))
def test_a_breach_is_found_however_batches_are_cut(sizes: list[int], rows: int) -> None:
    """A debug run joins the batches of a tick, and calls with rows of the tick before as well."""
    table = pa.table({"x": [float(at + 1) for at in range(rows)]})
    with pytest.raises(OperatorError, match=r"another answer when its batch is (cut|longer)"):
        values_of(cut(table, sizes), lambda it: it.map_batches("it", over_all), debug=True)


def by_type(batch: Any) -> Any:
    """Find the type of a column anew in each batch, as functions that make lists do."""
    return pa.record_batch({"y": [None if it == 3.0 else it for it in batch["x"].to_pylist()]})


@given(tables(), st.lists(st.integers(1, 4), max_size=4))
def test_functions_of_rows_pass(table: pa.Table, sizes: list[int]) -> None:
    flow = lambda rows: rows.map_batches("it", lambda batch: batch).filter_batches(  # noqa: E731
        "valid", lambda batch: pc.is_valid(batch.column(0))
    )
    expected = [row for row in table.to_pylist() if next(iter(row.values())) is not None]
    found = values_of(cut(table, sizes), flow, debug=True)
    assert repr(found) == repr(values_of(cut(table, sizes), flow))
    assert len(found) == len(expected)
    assert values_of(NUMBERS, lambda rows: rows.map_batches("it", by_type), debug=True)[1] == {"y": None}


def test_a_function_that_fails_for_parts() -> None:
    def needs_two(batch: Any) -> Any:
        if batch.num_rows < 2:
            raise ValueError("too few")
        return batch

    with pytest.raises(OperatorError, match=r"it fails when its batch is cut, at rows \d to \d: ValueError: too few"):
        values_of(NUMBERS, lambda rows: rows.map_batches("it", needs_two), debug=True)


def test_a_function_that_writes_to_its_input() -> None:
    shared = np.arange(8.0)

    def halve(batch: Any) -> Any:
        shared[3] = -1.0  # Arrow does not know: it has taken the memory of numpy as it is
        return batch

    whole = pa.table({"x": pa.array(shared)})
    with pytest.raises(
        OperatorError, match=r"'it' failed at .*written to its input: column 'x', row 3: 3.0, then -1.0"
    ):
        values_of(whole, lambda rows: rows.map_batches("it", halve), debug=True)


def test_a_function_that_reuses_its_answer() -> None:
    buffer = np.zeros(8)

    def reuse(batch: Any) -> Any:
        found = buffer[: batch.num_rows]
        np.multiply(batch["x"].to_numpy(), 2, out=found)
        return pa.record_batch({"x": pa.array(found)})

    with pytest.raises(
        OperatorError, match=r"'it' failed at .*written to an earlier answer: column 'x', row 0: 2.0, then"
    ):
        values_of(NUMBERS, lambda rows: rows.map_batches("it", reuse), debug=True)


def test_numpy_refuses_to_write_to_columns() -> None:
    def write(batch: Any) -> Any:
        batch["x"].to_numpy()[0] = 7.0
        return batch

    with pytest.raises(
        OperatorError, match=r"operator 'it' failed at .*: ValueError: assignment destination is read-only"
    ):
        values_of(NUMBERS, lambda rows: rows.map_batches("it", write))


@given(tables(), st.data())
def test_differences_are_of_bits(table: pa.Table, data: Any) -> None:
    batch = table.combine_chunks().to_batches()[0] if len(table) else pa.record_batch({"a": [0.0]})
    assert difference(batch, batch) is None
    at = data.draw(st.integers(0, batch.num_rows - 1))
    order = [*range(batch.num_rows)]
    order[at] = data.draw(st.integers(0, batch.num_rows - 1))
    other = batch.take(order)
    rows, others = ([repr(sorted(it.items())) for it in those.to_pylist()] for those in (batch, other))
    found = difference(batch, other)
    assert (found is None) == (rows == others)
    assert found is None or found[0] == at


def test_differences_of_zeros_and_nans() -> None:
    def of(*items: Any) -> pa.RecordBatch:
        return pa.record_batch({"x": pa.array(items, pa.float64(), from_pandas=False)})

    nan = float("nan")
    assert difference(of(nan, 0.0), of(nan, 0.0)) is None
    assert difference(of(nan, 0.0), of(nan, -0.0)) == (1, "x", 0.0, -0.0)
    assert difference(of(0.0), of(-0.0)) == (0, "x", 0.0, -0.0)
    assert difference(of(None), of(0.0)) == (0, "x", None, 0.0)

"""Aggregates over columns where libraries of arrays differ from Python: signs, NaN, large integers, order, lateness."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from malflow import agg
from malflow.columns import Column, Frame
from malflow.columns.flat_rows import FlatRows
from malflow.message import MAX
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.keyed.stateful import RunningAggregate
from malflow.operators.windows.sliding import SlidingAggregate
from malflow.operators.windows.time_windows import WindowAggregate
from malflow.records.batch import Batch
from malflow.records.columnar import is_columnar, rows_made
from malflow.windows import cumulating, sliding, tumbling
from tests.columns.aggregates import Pair, Twins, as_rows, bits, run

_ALL = [
    agg.count(),
    agg.count("x"),
    agg.sum("x"),
    agg.min("x"),
    agg.max("x"),
    agg.mean("x"),
    agg.variance("x"),
    agg.first("x"),
    agg.last("x"),
]


def _batch(x: Any, keys: Any = None, times: Any = None, epochs: Any = ()) -> Batch:
    column = x if isinstance(x, pa.Array) else pa.array(x)
    keys = keys if isinstance(keys, pa.Array) else pa.array(keys or ["a"] * len(column))
    stamps = Column(np.array(list(range(len(column)) if times is None else times), np.int64))
    return Batch(Column(keys), Frame(pa.record_batch([column], names=["x"])), stamps, epochs)


def _encoded(items: Sequence[Any], dictionary: Sequence[Any]) -> pa.Array:
    indices = pa.array([dictionary.index(item) for item in items], pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(dictionary))


def _running(*aggregators: Any) -> Twins:
    return Twins(lambda: RunningAggregate(OperatorContext("totals", tracked=True), aggregators))


def _windowed(*aggregators: Any, windows: Any = None) -> Twins:
    windows = windows or tumbling(10)
    operator = WindowAggregate if windows.is_plain else SlidingAggregate
    return Twins(lambda: operator(OperatorContext("windows", tracked=True), windows, aggregators))


_FLOATS = {
    "sums that depend on the order": [0.1, 1e16, -1e16, 0.2, 0.3, 1e-9] * 9,
    "zeros with a sign": [-0.0, -0.0],
    "zeros with and without one": [0.0, -0.0],
    "the other way round": [-0.0, 0.0],
    "NaN after a number": [1.0, nan, 0.5],
    "NaN before a number": [nan, 1.0],
    "infinities": [float("inf"), 1.0, float("-inf")],
    "one number": [0.1],
}


@pytest.mark.parametrize("x", _FLOATS.values(), ids=_FLOATS)
def test_floats_are_those_of_the_loop_of_python(x: list[float]) -> None:
    for twins in (_running(*_ALL), _windowed(*_ALL)):
        assert twins.take(_batch(x))
        assert twins.take(_batch(x[::-1]))
        assert twins.take(_batch(x + x[::-1], ["a", "b"] * len(x)))
        twins.compare()
        assert twins.take(Batch(None, (), (), [(0, MAX)]))


_INTS = {
    "means beyond 2 ** 53": [2**60 + 1, 2**60 + 3, 2**60 + 7],
    "sums beyond 2 ** 63": [2**62, 2**62, 2**62],
    "the least integer": [-(2**63), 1],
    "sums that only look too large": [2**50] * 40 + [-(2**50)] * 40,
    "one integer": [5],
    "two integers": [5, 8],
    "a variance of great ones": [2**53 + 1, 1],
}


@pytest.mark.parametrize("x", _INTS.values(), ids=_INTS)
def test_integers_are_exact(x: list[int]) -> None:
    for chosen in (_ALL, [agg.mean("x"), agg.sum("x", of=int)]):
        for twins in (_running(*chosen), _windowed(*chosen)):
            for _ in range(3):
                assert twins.take(_batch(x))
                twins.act("delta")
            twins.compare()
            assert twins.take(Batch(None, (), (), [(0, MAX)]))


def test_many_records_of_one_key_are_in_order() -> None:
    rng = np.random.default_rng(1)
    for x in (rng.normal(size=3000), rng.integers(-9, 9, 3000), np.where(rng.random(3000) < 0.01, nan, 1.0)):
        keys = np.where(rng.random(3000) < 0.9, "often", rng.integers(0, 50, 3000).astype(str)).tolist()
        times = rng.integers(0, 30, 3000)
        for twins in (_running(*_ALL), _windowed(*_ALL), _windowed(*_ALL, windows=sliding(20, 5))):
            for part in np.array_split(np.arange(3000), 2):
                assert twins.take(_batch(x[part], [keys[at] for at in part], times[part]))
            twins.compare()


def test_many_keys_are_in_order() -> None:
    keys = np.random.default_rng(2).integers(0, 1 << 40, 70_000)
    for twins in (_running(agg.sum("x")), _windowed(agg.sum("x"), windows=tumbling(1 << 20))):
        assert twins.take(_batch(np.ones(70_000), pa.array(keys)))
        assert twins.take(_batch(np.full(70_000, 0.1), pa.array(keys[::-1])))
        twins.compare()


def test_keys_are_in_the_order_of_records_not_of_a_dictionary() -> None:
    for twins in (_running(agg.sum("x")), _windowed(agg.sum("x"))):
        assert twins.take(_batch([1, 2, 3], _encoded(["b", "c", "a"], ["a", "b", "c"])))
        assert twins.take(_batch([1, 2], _encoded(["d", "a"], ["c", "d", "a"]), epochs=[(2, 9)]))
        twins.compare()


@pytest.mark.parametrize("make", [_running, _windowed])
@pytest.mark.parametrize("at", [0, 1])
def test_a_null_that_hides_in_a_dictionary_is_found(make: Any, at: int) -> None:
    hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None] if at else [1, None]))
    assert hidden.null_count == 0
    batch = _batch([1, 2], hidden) if at else _batch(hidden)
    outcome = run(RunningAggregate(OperatorContext("totals"), [agg.sum("x")]), batch)
    assert "None" in outcome
    make(agg.sum("x")).take(batch)
    counted = make(agg.count("x"))
    assert counted.take(_batch(pa.DictionaryArray.from_arrays(hidden.indices, pa.array([1, None]))))


def test_equal_keys_of_two_types_are_one() -> None:
    for twins in (_running(agg.count()), _windowed(agg.count())):
        for at, keys in enumerate([[1, 2], [True, False], [1.0, -0.0], [0.0, 1.0]]):
            assert twins.take(_batch([1, 2], pa.array(keys), [10 * at, 10 * at], [(0, 10 * at - 1)]))
        twins.compare()


def test_a_misfit_loses_no_batch(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "malflow.runtime")
    for twins in (_running(agg.sum("x")), _windowed(agg.sum("x"))):
        caplog.clear()
        for x, act in (([1, 2], "nothing"), ([2**63 - 1, 5], "delta"), ([0.5, 1.5], "delta"), ([3, 4], "nothing")):
            assert twins.take(_batch(x, ["a", "b"]))
            twins.act(act)
        twins.compare()
        assert twins.by_columns.demotions == 1
        (line,) = [it.message for it in caplog.records]
        reason = "a sum of the column 'x' may be beyond 64 bits"
        assert line == f"operator '{twins.name}' adds records one by one from here on: {reason}"


def test_a_record_after_the_epoch_that_closes_its_window_is_refused() -> None:
    twins = _windowed(agg.sum("x"))
    assert twins.take(_batch([1, 2], times=[5, 12]))
    assert not twins.take(_batch([3, 4, 5], times=[6, 13, 7], epochs=[(1, 9)]))


def test_a_record_before_the_epoch_that_closes_its_window_counts() -> None:
    twins = _windowed(agg.sum("x"))
    assert twins.take(_batch([1, 2, 4, 8], times=[5, 15, 6, 25], epochs=[(0, 3), (3, 9), (4, 19)]))
    assert twins.take(_batch([16], times=[26], epochs=[(1, MAX)]))


def test_deltas_have_all_panes_and_what_they_drop() -> None:
    for windows in (tumbling(10), sliding(20, 10)):
        twins = _windowed(*_ALL, windows=windows)
        assert twins.take(_batch([1, 2, 3], ["a", "b", "a"], [5, 15, 25]))
        twins.act("delta")
        assert twins.take(_batch([1, 2, 3], ["b", "c", "d"], [6, 16, 26]))  # some of them in no delta
        assert twins.take(_batch([7], ["e"], [33], [(0, 9), (1, 19)]))
        twins.act("delta")
        assert twins.take(_batch([7], ["e"], [34]))
        twins.compare()


def test_a_question_does_not_count_as_a_delta() -> None:
    for twins in (_running(agg.sum("x")), _windowed(agg.sum("x"))):
        assert twins.take(_batch([1, 2, 3], ["a", "b", "c"]))
        twins.act("delta")
        assert twins.take(_batch([1, 2, 3], ["a", "b", "c"]))
        twins.act("ask")
        twins.compare()


@pytest.mark.parametrize("operator", [0, 2])
def test_a_question_makes_objects_of_its_keys_only(operator: int) -> None:
    asked: Any = _operators()[operator]
    asked.process(_batch(range(1000), [f"{at}" for at in range(1000)], [5] * 1000))
    found = asked.look(["7", "nothing"], 0)
    assert len(found) == 1
    assert "7" in repr(found)
    assert len(asked.look(None, 3)) == 3
    assert len(asked.state) == 0  # nothing was written back
    asked.sync_state()
    assert len(asked.state) == 1000


@pytest.mark.parametrize("windows", [tumbling(10), sliding(30, 10), sliding(20, 30), cumulating(30, 10)])
def test_keys_that_no_window_has_are_forgotten(windows: Any) -> None:
    twins = _windowed(agg.sum("x"), agg.last("x"), windows=windows)
    for turn in range(60):
        keys = [f"{turn} {at}" for at in range(40)] + ["always"]
        assert twins.take(_batch(range(41), keys, [10 * turn] * 41, [(0, 10 * turn - 1)]))
        twins.act("delta")
    assert len(twins.by_columns._arrays.held._codes) < 800  # of 2,401
    twins.compare()


@pytest.mark.parametrize("times", [[10**6 * at for at in range(60)], [at % 7 * 10**12 for at in range(60)]])
def test_windows_that_are_far_apart(times: list[int]) -> None:
    twins = _windowed(agg.sum("x"), agg.variance("x"))
    assert twins.take(_batch(range(60), ["a", "b", "c"] * 20, times))
    twins.compare()
    assert twins.take(Batch(None, (), (), [(0, MAX)]))


def test_sparse_windows_are_kept_record_by_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "malflow.runtime")
    twins = _windowed(agg.count(), windows=tumbling(1))
    assert twins.take(_batch(range(6000), [f"{at}" for at in range(6000)]))
    twins.compare()
    assert "few records for each key" in caplog.text


def _text(operator: Any) -> str:
    return f"{type(operator).__name__} {operator._kernel}"


def _operators() -> list[Operator]:
    context = OperatorContext("totals")
    low_high = agg.into(Pair, low=agg.min("x"), high=agg.max("x"))
    return [
        RunningAggregate(context, [agg.sum("x")]),
        RunningAggregate(context, [low_high]),
        WindowAggregate(context, tumbling(10), [agg.mean("x")]),
        WindowAggregate(context, tumbling(10), [low_high]),
        WindowAggregate(context, tumbling(10), [agg.into(dict, low=agg.min("x"), n=agg.count())]),
        SlidingAggregate(context, sliding(20, 10), [agg.sum("x"), agg.variance("x")]),
    ]


@pytest.mark.parametrize("operator", _operators(), ids=_text)
def test_results_stay_columns_and_never_change(operator: Operator) -> None:
    batches = [_batch([5, 4 + at, at], ["a", "b", "a"], [10 * at] * 3, [(0, 10 * at - 1)]) for at in range(1, 6)]
    before, kept = rows_made(), []
    for batch in batches:
        (output,) = operator.process(batch)
        if len(output):
            assert is_columnar(output.values)
            assert output.values.has_arrays
            flat = FlatRows(None, "key", None).frame_of(Batch(output.keys, output.values.apart(), output.timestamps))
            kept.append((output, flat))
    assert kept
    assert rows_made() == before
    again = next(it for it in _operators() if _text(it) == _text(operator))
    expected = [output for batch in batches for output in again.process(as_rows(batch)) if len(output)]
    for (output, flat), rows in zip(kept, expected, strict=True):
        assert bits(list(output.values)) == bits(list(rows.values))
        assert bits(list(flat)) == bits(list(FlatRows(None, "key", None).frame_of(rows)))


def test_inputs_stay_as_they_are() -> None:
    x, keys = np.arange(50, dtype=np.float64), ["a", "b"] * 25
    batch = _batch(x, keys)
    for operator in _operators():
        operator.process(batch)
    assert x.tolist() == [float(it) for it in range(50)]
    assert list(batch.timestamps) == list(range(50))
    assert list(batch.keys or ()) == keys

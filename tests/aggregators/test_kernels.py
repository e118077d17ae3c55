"""Kernels agree with their aggregators one by one, and with a model over the list of all records."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from malflow import agg
from malflow.agg import Aggregator
from malflow.aggregators.fuse import compile_kernel
from tests.aggregators.cases import CASES, Case, Record, case, records

keyed_records = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.integers(-9, 9)), max_size=20)


def plain(aggregator: Aggregator[Any, Any, Any], rows: list[Record]) -> Any:
    acc = aggregator.create()
    for timestamp, value in rows:
        acc = aggregator.add(acc, value, timestamp)
    return acc


def one_key(rows: list[Record]) -> tuple[list[str], list[Any], list[int]]:
    return ["k"] * len(rows), [value for _, value in rows], [timestamp for timestamp, _ in rows]


@given(case, records)
def test_an_aggregator_agrees_with_its_model(chosen: Case, rows: list[Record]) -> None:
    acc = plain(chosen.aggregator, rows)
    assert chosen.equal(chosen.aggregator.result(acc), chosen.model(rows))


@given(st.lists(case, min_size=1, max_size=6), records)
def test_a_kernel_agrees_with_the_models(chosen: list[Case], rows: list[Record]) -> None:
    kernel = compile_kernel([it.aggregator for it in chosen])
    accs: dict[str, Any] = {}
    kernel.add(accs, *one_key(rows))
    result = kernel.result(accs["k"])
    results = result if len(chosen) > 1 else (result,)
    assert all(it.equal(got, it.model(rows)) for it, got in zip(chosen, results, strict=True))
    assert kernel.results(accs.values()) == [result]


@given(st.lists(case, min_size=1, max_size=4), records)
def test_running_results_are_those_of_each_prefix(chosen: list[Case], rows: list[Record]) -> None:
    kernel = compile_kernel([it.aggregator for it in chosen])
    each = kernel.each({}, *one_key(rows))
    for end, result in enumerate(each, 1):
        results = result if len(chosen) > 1 else (result,)
        assert all(it.equal(got, it.model(rows[:end])) for it, got in zip(chosen, results, strict=True))


@given(st.lists(case, min_size=1, max_size=4), records, st.lists(st.integers(0, 12), max_size=3))
def test_cutting_into_batches_changes_no_bit(chosen: list[Case], rows: list[Record], cuts: list[int]) -> None:
    kernel = compile_kernel([it.aggregator for it in chosen])
    whole: dict[str, Any] = {}
    kernel.add(whole, *one_key(rows))
    pieces: dict[str, Any] = {}
    checked: dict[str, Any] = {}
    running: dict[str, Any] = {}
    careful = compile_kernel([it.aggregator for it in chosen], debug=True)
    bounds = [0, *sorted(cuts), len(rows)]
    for start, stop in pairwise(bounds):
        kernel.add(pieces, *one_key(rows[start:stop]))
        careful.add(checked, *one_key(rows[start:stop]))
        kernel.each(running, *one_key(rows[start:stop]))
    assert len({pickle.dumps(accs) for accs in (pieces, checked, running, whole)}) == 1


@given(keyed_records)
def test_keys_are_kept_apart_in_the_order_of_their_first_record(rows: list[tuple[str, int, int]]) -> None:
    kernel = compile_kernel([agg.sum()])
    accs: dict[str, int] = {}
    keys, timestamps, values = [[row[at] for row in rows] for at in range(3)]
    kernel.add(accs, keys, values, timestamps)
    assert list(accs) == list(dict.fromkeys(keys))
    assert accs == {key: sum(v for k, _, v in rows if k == key) for key in accs}


def test_equal_parts_of_several_aggregators_are_kept_once() -> None:
    kernel = compile_kernel([agg.count(), agg.sum("x"), agg.min("x"), agg.max("x"), agg.mean("x")])
    accs: dict[str, Any] = {}
    kernel.add(accs, "aa", [{"x": 1}, {"x": 4}], (0, 1))
    assert accs == {"a": [2, 5, 1, 4]}
    assert kernel.result(accs["a"]) == (2, 5, 1, 4, 2.5)


def test_a_function_is_called_once_a_record_for_all_aggregators() -> None:
    calls = []

    def f(value: int) -> int:
        calls.append(value)
        return value

    compile_kernel([agg.sum(f), agg.mean(f), agg.max(f)]).add({}, "aab", [1, 2, 3], (0, 0, 0))
    assert calls == [1, 2, 3]


def test_a_kernel_is_pickled() -> None:
    kernel = compile_kernel([agg.count(), agg.sum("i")])
    kernel.add({}, "a", [{"i": 1}], (0,))
    loaded = pickle.loads(pickle.dumps(kernel))
    accs: dict[str, Any] = {}
    loaded.add(accs, "aa", [{"i": 1}, {"i": 2}], (0, 1))
    assert loaded.result(accs["a"]) == (2, 3)
    assert loaded.definition == kernel.definition == "agg.count(), agg.sum('i')"


def test_cases_have_different_names() -> None:
    assert len({it.name for it in CASES}) == len(CASES)

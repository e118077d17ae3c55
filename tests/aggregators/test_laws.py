"""The laws of merging and of order, for each built-in aggregator."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow.aggregators.fuse import Kernel, compile_kernel
from tests.aggregators.cases import CASES, Case, Record, case, column, records, values

pytestmark = pytest.mark.slow

three = st.tuples(records, records, records)
each_case = pytest.mark.parametrize("chosen", CASES, ids=[it.name for it in CASES])
_UNORDERED = [it for it in CASES if not it.ordered]
each_unordered_case = pytest.mark.parametrize("chosen", _UNORDERED, ids=[it.name for it in _UNORDERED])
few = settings(max_examples=settings().max_examples // 5)  # of the profile, for each aggregator
distinct_times = st.lists(values, min_size=1, max_size=12).map(lambda vs: list(enumerate(vs)))


def added(chosen: Case, rows: Sequence[Record]) -> Any:
    acc = chosen.aggregator.create()
    for timestamp, value in rows:
        acc = chosen.aggregator.add(acc, value, timestamp)
    return acc


def close(chosen: Case, got: Any, expected: Any, rows: Sequence[Record]) -> bool:
    """Whether two results differ by less than what rounding can do to numbers of this size."""
    if got is None or expected is None:
        return got is expected
    largest = max(1.0, *map(abs, column(chosen.rounds, rows)))
    return bool(abs(got - expected) <= 1e-12 * len(rows) * largest**2)


def same(chosen: Case, got: Any, expected: Any, rows: Sequence[Record]) -> bool:
    if chosen.rounds:
        return close(chosen, chosen.aggregator.result(got), chosen.aggregator.result(expected), rows)
    return bool(got == expected)


@given(case, records)
def test_merging_with_nothing_changes_nothing(chosen: Case, rows: list[Record]) -> None:
    it, acc = chosen.aggregator, added(chosen, rows)
    assert it.merge(it.create(), acc) == acc
    assert it.merge(acc, it.create()) == acc


@each_case
@few
@given(parts=three)
def test_merging_is_associative(chosen: Case, parts: tuple[list[Record], ...]) -> None:
    merge = chosen.aggregator.merge
    one, two, three = (added(chosen, rows) for rows in parts)
    assert same(chosen, merge(merge(one, two), three), merge(one, merge(two, three)), [*parts[0], *parts[1], *parts[2]])


@each_case
@few
@given(one=records, other=records)
def test_merging_agrees_with_adding(chosen: Case, one: list[Record], other: list[Record]) -> None:
    result = chosen.aggregator.result(chosen.aggregator.merge(added(chosen, one), added(chosen, other)))
    expected = chosen.model([*one, *other])
    agrees = close(chosen, result, expected, [*one, *other]) if chosen.rounds else chosen.equal(result, expected)
    assert agrees, (result, expected)


@each_unordered_case
@few
@given(rows=distinct_times, data=st.data())
def test_merging_is_commutative_where_order_does_not_count(chosen: Case, rows: list[Record], data: Any) -> None:
    cut = data.draw(st.integers(1, len(rows)))
    one, other = added(chosen, rows[:cut]), added(chosen, rows[cut:])
    merge = chosen.aggregator.merge
    assert same(chosen, merge(one, other), merge(other, one), rows)


@each_unordered_case
@few
@given(rows=distinct_times, random=st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_count(chosen: Case, rows: list[Record], random: Any) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert same(chosen, added(chosen, rows), added(chosen, shuffled), rows)


@each_case
@few
@given(one=records, other=records, more=records)
def test_merging_leaves_both_as_they_were(
    chosen: Case, one: list[Record], other: list[Record], more: list[Record]
) -> None:
    it, nothing = chosen.aggregator, chosen.aggregator.create()
    accs = added(chosen, one), added(chosen, other)
    before = [pickle.dumps(acc) for acc in accs]
    kernel = compile_kernel([it])
    for one_acc, other_acc in (accs, (nothing, accs[0]), (accs[0], nothing)):
        kernel.add({"k": it.merge(one_acc, other_acc)}, *columns(more))
        merged = it.merge(one_acc, other_acc)
        for timestamp, value in more:
            merged = it.add(merged, value, timestamp)
    assert [pickle.dumps(acc) for acc in accs] == before


@each_case
@few
@given(one=records, other=records)
def test_a_result_does_not_change_when_more_is_added(chosen: Case, one: list[Record], other: list[Record]) -> None:
    acc = added(chosen, one)
    result = chosen.aggregator.result(acc)
    before = pickle.dumps(result)
    for timestamp, value in other:
        acc = chosen.aggregator.add(acc, value, timestamp)
    assert pickle.dumps(result) == before


def columns(rows: Sequence[Record]) -> tuple[list[str], list[Any], list[int]]:
    return ["k"] * len(rows), [value for _, value in rows], [timestamp for timestamp, _ in rows]


def taken(kernel: Kernel, rows: Sequence[Record]) -> Any:
    accs: dict[str, Any] = {}
    kernel.add(accs, *columns(rows))
    return accs["k"]


@given(st.lists(case, min_size=1, max_size=4), records, records, records, st.booleans())
def test_a_kernel_merges_as_its_aggregators_do(
    chosen: list[Case], one: list[Record], other: list[Record], more: list[Record], debug: bool
) -> None:
    kernel = compile_kernel([it.aggregator for it in chosen], debug=debug)
    accs = taken(kernel, one), taken(kernel, other)
    before = pickle.dumps(accs)
    merged = {"k": kernel.merge(*accs)}
    result = kernel.result(merged["k"])
    expected = [it.aggregator.merge(added(it, one), added(it, other)) for it in chosen]
    assert repr(result if len(chosen) > 1 else (result,)) == repr(
        tuple([it.aggregator.result(acc) for it, acc in zip(chosen, expected, strict=True)])
    )
    kernel.add(merged, ["k"] * len(more), [value for _, value in more], range(len(more)))
    assert pickle.dumps(accs) == before

"""Checks of the contract of aggregators, with ``debug=True``."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from malflow import agg
from malflow.agg import Aggregator
from malflow.aggregators.fuse import compile_kernel


def added(kernel: Any, *values: Any) -> Any:
    accs: dict[str, Any] = {}
    kernel.add(accs, ["k"] * len(values), values, range(len(values)))
    return accs["k"]


def extend(one: list[int], other: list[int]) -> list[int]:
    one.extend(other)
    return one


def extended_copy(one: list[int], other: list[int]) -> list[int]:
    other.extend(one)
    return list(other)


def keep(acc: list[int], value: int) -> list[int]:
    acc.append(value)
    return acc


@pytest.mark.parametrize("merge", [extend, extended_copy])
def test_a_merge_that_changes_what_it_is_given(merge: Any) -> None:
    kernel = compile_kernel([agg.count(), agg.fold(list, keep, merge)], debug=True)
    with pytest.raises(ValueError, match=r"agg.fold\(list, keep, merge=extend.*\): its merge changed an accumulator"):
        kernel.merge(added(kernel, 1), added(kernel, 2))


@pytest.mark.parametrize("side", [0, 1])
def test_a_merge_that_returns_what_it_is_given(side: int) -> None:
    kernel = compile_kernel([agg.fold(list, keep, lambda *accs: accs[side])], debug=True)
    with pytest.raises(ValueError, match="its merge returned an accumulator that it was given; return a new one"):
        kernel.merge(added(kernel, 1), added(kernel, 2))


class Sorted(Aggregator[int, list[int], list[int]]):
    def create(self) -> list[int]:
        return []

    def add(self, acc: list[int], value: int, timestamp: Any) -> list[int]:
        acc.append(value)
        return acc

    def result(self, acc: list[int]) -> list[int]:
        acc.sort()
        return list(acc)


def test_a_result_that_changes_the_accumulator() -> None:
    kernel = compile_kernel([Sorted()], debug=True)
    with pytest.raises(ValueError, match=r"Sorted\(\): its result changed an accumulator.*it was \[2, 1\]"):
        kernel.result(added(kernel, 2, 1))


@pytest.mark.parametrize("several", [False, True])
def test_a_result_that_is_the_accumulator_itself(several: bool) -> None:
    leak = agg.fold(list, keep, result=lambda acc: acc)
    kernel = compile_kernel([agg.into(dict, n=agg.count(), all=leak) if several else leak], debug=True)
    with pytest.raises(ValueError, match="its result is the accumulator itself, which changes later; copy it"):
        kernel.each({}, "k", [1], [0])


@pytest.mark.parametrize(
    "aggregator", [agg.collect(), agg.first(), agg.max_by("n"), agg.tuple_(agg.count(), agg.last())], ids=repr
)
def test_a_kept_value_that_is_changed_later(aggregator: Any) -> None:
    kernel = compile_kernel([aggregator], debug=True)
    value = {"n": 1}
    acc = added(kernel, value)
    value["n"] = 2
    with pytest.raises(ValueError, match=r"something else changed its accumulator.*it was .*'n': 1.*is .*'n': 2"):
        kernel.result(acc)


@pytest.mark.parametrize("values", [[1.0, nan], [nan], [nan, 1.0]])
@pytest.mark.parametrize(
    "aggregator",
    [
        agg.sum("x"),
        agg.min("x"),
        agg.max("x"),
        agg.mean("x"),
        agg.variance("x"),
        agg.min_by("x"),
        agg.count_distinct("x"),
        agg.top(1, "x"),
        agg.collect_set("x"),
    ],
    ids=repr,
)
def test_nan_is_refused(aggregator: Any, values: list[float]) -> None:
    kernel = compile_kernel([aggregator], debug=True)
    with pytest.raises(ValueError, match="the field 'x' is NaN, which cannot be aggregated"):
        added(kernel, *[{"x": x} for x in values])


def test_nan_that_is_only_collected_is_not() -> None:
    kernel = compile_kernel([agg.collect(), agg.first(), agg.count()], debug=True)
    added(kernel, nan)


@pytest.mark.parametrize("aggregator", [agg.fsum(), agg.median()], ids=repr)
def test_nan_has_no_exact_sum_and_no_rank(aggregator: Any) -> None:
    with pytest.raises(ValueError, match="NaN"):
        added(compile_kernel([aggregator]), nan)


def test_a_result_is_not_asked_for_before_it_is_needed() -> None:
    ratio = agg.fold(int, lambda acc, value: acc + value, result=lambda acc: 1 / acc)
    kernel = compile_kernel([ratio], debug=True)
    assert kernel.result(added(kernel, 0, 1)) == 1.0


def test_good_aggregators_pass() -> None:
    good = agg.fold(list, keep, lambda one, other: one + other, result=tuple)
    kernel = compile_kernel([good, agg.fold(list, keep, merge=lambda one, other: one + other)], debug=True)
    merged = kernel.merge(added(kernel, 1), added(kernel, 2))
    assert kernel.result(merged) == ((1, 2), [1, 2])

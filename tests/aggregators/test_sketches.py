"""Guarantees of sketches: bounds of their errors, and the same result for every order and grouping."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from random import Random
from sys import float_info
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import agg
from malflow.agg import Aggregator

pytestmark = pytest.mark.slow

numbers = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x == 0 or abs(x) > 1e-300)
fractions = st.lists(st.floats(0, 1), min_size=1, max_size=3)


def acc_of(aggregator: Aggregator[Any, Any, Any], values: Iterable[Any]) -> Any:
    acc = aggregator.create()
    for value in values:
        acc = aggregator.add(acc, value, 0)
    return acc


def result_of(aggregator: Aggregator[Any, Any, Any], values: Iterable[Any]) -> Any:
    return aggregator.result(acc_of(aggregator, values))


@given(st.lists(numbers, min_size=1), fractions)
def test_a_quantile_is_within_a_hundredth_of_the_exact_one(xs: list[float], qs: list[float]) -> None:
    exact = [sorted(xs)[max(math.ceil(Fraction(str(q)) * len(xs)), 1) - 1] for q in qs]
    assert list(result_of(agg.exact_quantiles(None, *qs), xs)) == exact
    for got, expected in zip(result_of(agg.quantiles(None, *qs), xs), exact, strict=True):
        assert abs(got - expected) <= 0.01 * abs(expected) * (1 + 1e-9)


@pytest.mark.parametrize("x", [0.0, -0.0, 5e-324, -5e-324, 1e-310, float_info.min, float_info.max, -float_info.max, 1])
def test_a_quantile_of_the_ends_of_the_floats(x: float) -> None:
    got = result_of(agg.median(), [x])
    assert abs(got - x) <= max(0.01 * abs(x) * (1 + 1e-9), 5e-324)


def test_quantiles_of_numbers_of_other_types() -> None:
    assert result_of(agg.median(), [True, Fraction(1), 1, 1.0]) == pytest.approx(1, rel=0.01)
    with pytest.raises(OverflowError, match=r"is out of their range; agg\.exact_quantiles accepts it"):
        result_of(agg.median(), [10**400])
    assert result_of(agg.exact_quantiles(None, 0.5), [10**400]) == (10**400,)


@given(st.lists(numbers, min_size=1), fractions)
def test_an_estimate_is_within_the_numbers_that_were_seen(xs: list[float], qs: list[float]) -> None:
    assert all(min(xs) <= got <= max(xs) for got in result_of(agg.quantiles(None, *qs), xs))


def test_a_high_quantile_of_few_numbers_is_the_greatest() -> None:
    assert result_of(agg.quantile(None, 0.99), [1, 1000]) == pytest.approx(1000)
    assert result_of(agg.quantile(None, 0.07), range(1, 101)) == pytest.approx(7, rel=0.01), "not 8, as floats have it"


def test_states_without_ends_are_read_and_merged() -> None:
    sketch: Any = agg.quantiles(None, 0, 1)
    new = acc_of(sketch, [1.0, 1000.0])
    old = {bucket: count for bucket, count in new.items() if not isinstance(bucket, str)}
    for states in ([dict(old), {}], [{}, dict(old)], [dict(old), new], [new, dict(old)]):
        merged = sketch.merge(*states)
        assert sketch.result(merged) == pytest.approx((1, 1000), rel=0.01)
        assert sketch.result(sketch.add(merged, 2000.0, 0)) == pytest.approx((1, 2000), rel=0.01)
        assert sketch.result(sketch.add(merged, 0.5, 0)) == pytest.approx((0.5, 2000), rel=0.01)


@pytest.mark.parametrize("x", [math.inf, -math.inf, math.nan])
def test_infinity_and_nan_have_no_quantile(x: float) -> None:
    with pytest.raises((OverflowError, ValueError)):
        acc_of(agg.median(), [x])


def test_buckets_do_not_depend_on_how_many_numbers_there_are() -> None:
    acc = acc_of(agg.median(), [10 ** (n / 5_000) for n in range(5_000)])
    assert len(acc) <= 117 + 2, "and the ends"


@given(st.sets(st.integers(0, 10**6), max_size=40), st.randoms(use_true_random=False))
def test_few_distinct_values_are_counted_exactly(values: set[int], random: Random) -> None:
    repeated = [*values, *values]
    random.shuffle(repeated)
    assert result_of(agg.count_distinct(approximate=True), repeated) == len(values)


@pytest.mark.parametrize("distinct", [1_023, 1_024, 1_025, 5_000, 50_000])
def test_an_estimate_of_distinct_values_is_near(distinct: int) -> None:
    values = [n * 7919 % distinct for n in range(distinct)]
    sketch = agg.count_distinct(approximate=True)
    acc = acc_of(sketch, values)
    assert abs(sketch.result(acc) - distinct) <= (0.1 * distinct if distinct > 1_024 else 0 if distinct < 1_024 else 40)
    assert acc == sorted(set(acc))
    assert len(acc) == min(distinct, 1_024)
    assert acc_of(sketch, reversed([*values, *values])) == acc
    assert sketch.merge(acc, acc_of(sketch, values[: distinct // 2])) == acc
    thirds = [acc_of(sketch, values[start::3]) for start in range(3)]
    assert sketch.merge(thirds[0], sketch.merge(thirds[1], thirds[2])) == acc
    assert sketch.merge(sketch.merge(thirds[2], thirds[0]), thirds[1]) == acc


@pytest.mark.parametrize("approximate", [False, True])
def test_values_that_are_equal_are_one(approximate: bool) -> None:
    assert result_of(agg.count_distinct(approximate=approximate), [1, 1.0, True, Fraction(1), "1", (1,), (1.0,)]) == 3


@given(st.lists(st.lists(st.integers(0, 9), max_size=60), min_size=1, max_size=4), st.integers(1, 6))
def test_frequent_values_are_kept_and_never_counted_too_low(parts: list[list[int]], capacity: int) -> None:
    sketch = agg.top(1, capacity=capacity)
    acc = sketch.create()
    for part in parts:
        acc = sketch.merge(acc, acc_of(sketch, part))
        for value in part[:7]:  # a merged sketch goes on
            acc = sketch.add(acc, value, 0)
    values = [value for part in parts for value in (*part, *part[:7])]
    exact, bound = Counter(values), len(values) / capacity
    assert len(acc) <= capacity
    assert all(exact[value] <= count <= exact[value] + bound for value, count in acc.items())
    assert all(value in acc for value, count in exact.items() if count > bound)
    assert sum(acc.values()) <= len(values)


@given(st.lists(st.sampled_from("abcd")), st.integers(1, 5))
def test_the_top_is_that_of_a_counter(values: list[str], n: int) -> None:
    assert result_of(agg.top(n), values) == tuple(Counter(values).most_common(n))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**20), 10**20)))
def test_an_exact_sum_is_the_float_nearest_to_the_sum(xs: Sequence[float]) -> None:
    exact = sum(map(Fraction, xs))
    try:
        nearest = float(exact)
    except OverflowError:
        with pytest.raises(OverflowError, match="the sum is beyond the greatest float"):
            result_of(agg.fsum(), xs)
    else:
        assert result_of(agg.fsum(), xs) == nearest


def test_an_exact_sum_overflows_on_the_way_only() -> None:
    assert result_of(agg.fsum(), [1e308, 1e308, -1e308]) == 1e308
    for beyond in ([1e308, 1e308], [-1e308, -1e308]):
        with pytest.raises(OverflowError, match="the sum is beyond the greatest float"):
            result_of(agg.fsum(), beyond)


@pytest.mark.parametrize("x", [Fraction(1, 3), Decimal("0.1")])
def test_an_exact_sum_refuses_a_number_that_is_no_float(x: Any) -> None:
    with pytest.raises(TypeError, match=r"agg.fsum adds floats and integers; got \w+; agg.sum adds those exactly"):
        acc_of(agg.fsum(), [x])
    assert result_of(agg.fsum(), [Fraction(1, 2), Decimal(2)]) == 2.5


@pytest.mark.parametrize("x", [math.inf, -math.inf])
def test_infinity_has_no_exact_sum(x: float) -> None:
    with pytest.raises(OverflowError, match="cannot convert Infinity"):
        acc_of(agg.fsum(), [x])

"""Aggregators, each with a model that computes its result from the list of all records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from operator import itemgetter
from typing import Any, NamedTuple

from hypothesis import strategies as st

from malflow import agg
from malflow.agg import Aggregator

Record = tuple[int, dict[str, Any]]
"""Timestamp and value."""


class Case(NamedTuple):
    """An aggregator and the result that it has to have.

    Attributes:
        name: its name in the report of a test.
        aggregator: the aggregator.
        model: makes the result of the records in the order of arrival.
        equal: whether a result is that of the model.
        ordered: whether the result depends on the order of arrival, even if timestamps differ.
        rounds: the field whose last digits depend on the order of arrival, or on how merges are grouped.
    """

    name: str
    aggregator: Aggregator[Any, Any, Any]
    model: Callable[[Sequence[Record]], Any]
    equal: Callable[[Any, Any], bool] = lambda got, expected: type(got) is type(expected) and got == expected
    ordered: bool = False
    rounds: str = ""


def column(name: str, records: Sequence[Record]) -> list[Any]:
    return [value[name] for _, value in records]


def sequential_sum(numbers: Sequence[Any]) -> Any:
    """Add from left to right; the built-in sum compensates for errors, in some versions of Python."""
    total = numbers[0]
    for number in numbers[1:]:
        total = total + number
    return total


def is_odd(value: dict[str, Any]) -> bool:
    return bool(value["i"] % 2)


def number_of(value: dict[str, Any]) -> int:
    return int(value["i"])


def odd(value: dict[str, Any]) -> int | None:
    """Return the number if it is odd."""
    return value["i"] if value["i"] % 2 else None


def without_none(model: Callable[[list[Any]], Any], empty: Any = None) -> Callable[[Sequence[Record]], Any]:
    """Return a model of the numbers that are not None."""

    def result(rs: Sequence[Record]) -> Any:
        left = [it for _, value in rs if (it := odd(value)) is not None]
        return model(left) if left else empty

    return result


def about(got: Any, expected: Any) -> bool:
    """Whether two results are equal but for rounding."""
    if got is None or expected is None:
        return got is expected
    return bool(abs(got - expected) <= 1e-12 * max(1.0, abs(expected)))


def variance_of(numbers: Sequence[Any], ddof: int) -> float | None:
    """Compute exactly, and round once."""
    exact = [Fraction(number) for number in numbers]
    mean = sum(exact) / len(exact)
    squares = sum((number - mean) ** 2 for number in exact)
    return float(squares / (len(exact) - ddof)) if len(exact) > ddof else None


def root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)


def quantile(numbers: Sequence[Any], fraction: float) -> Any:
    return sorted(numbers)[max(math.ceil(Fraction(str(fraction)) * len(numbers)), 1) - 1]


def near(got: float, expected: float) -> bool:
    """Whether an estimate keeps to the relative error of sketches."""
    return abs(got - expected) <= 0.01 * abs(expected) * (1 + 1e-9)


def lengths(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


class Longest(Aggregator[Any, list[str], list[str]]):
    """Keeps the longest text, in a list, so that there is something that could change."""

    def create(self) -> list[str]:
        return [""]

    def add(self, acc: list[str], value: Any, timestamp: Any) -> list[str]:
        text = value["s"] * value["i"]
        if len(text) > len(acc[0]):
            acc[0] = text
        return acc

    def merge(self, one: list[str], other: list[str]) -> list[str]:
        return [other[0] if len(other[0]) > len(one[0]) else one[0]]

    def result(self, acc: list[str]) -> list[str]:
        return list(acc)


CASES = [
    Case("count", agg.count(), len),
    Case("count of some", agg.count(is_odd), lambda rs: sum(i % 2 for i in column("i", rs))),
    Case("count of a field", agg.count("i"), lambda rs: sum(i != 0 for i in column("i", rs))),
    Case("sum", agg.sum("i"), lambda rs: sum(column("i", rs))),
    Case("sum by a function", agg.sum(number_of), lambda rs: sum(column("i", rs))),
    Case("sum of floats", agg.sum("f"), lambda rs: sequential_sum(column("f", rs)), rounds="f"),
    Case("sum of lists", agg.sum(lambda v: [v["s"]]), lambda rs: column("s", rs), ordered=True),
    Case("min", agg.min("i"), lambda rs: min(column("i", rs))),
    Case("max", agg.max("f"), lambda rs: max(column("f", rs))),
    Case("mean", agg.mean("i"), lambda rs: sum(column("i", rs)) / len(rs)),
    Case("fsum", agg.fsum("f"), lambda rs: math.fsum(column("f", rs))),
    Case("variance", agg.variance("f"), lambda rs: variance_of(column("f", rs), 1), equal=about, rounds="f"),
    Case(
        "variance of all",
        agg.variance("i", ddof=0),
        lambda rs: variance_of(column("i", rs), 0),
        equal=about,
        rounds="i",
    ),
    Case("stddev", agg.stddev("i"), lambda rs: root(variance_of(column("i", rs), 1)), equal=about, rounds="i"),
    Case("min_by", agg.min_by("i"), lambda rs: min(rs, key=lambda r: (r[1]["i"], r[0]))[1]),
    Case("max_by", agg.max_by("i"), lambda rs: min(rs, key=lambda r: (-r[1]["i"], r[0]))[1]),
    Case("first", agg.first("s"), lambda rs: min(rs, key=itemgetter(0))[1]["s"]),
    Case("last", agg.last(), lambda rs: max(reversed(rs), key=itemgetter(0))[1]),
    Case("count_distinct", agg.count_distinct("s"), lambda rs: len(set(column("s", rs)))),
    Case("estimate of distinct", agg.count_distinct("f", approximate=True), lambda rs: len(set(column("f", rs)))),
    Case(
        "quantiles",
        agg.quantiles("f", 0, 0.25, 1),
        lambda rs: [quantile(column("f", rs), q) for q in (0, 0.25, 1)],
        equal=lambda got, expected: all(map(near, got, expected)),
    ),
    Case("quantile", agg.quantile("i", 0.9), lambda rs: quantile(column("i", rs), 0.9), equal=near),
    Case(
        "exact_quantiles",
        agg.exact_quantiles("f", 0, 0.3, 0.5, 1),
        lambda rs: tuple(quantile(column("f", rs), q) for q in (0, 0.3, 0.5, 1)),
    ),
    Case("largest", agg.largest(2, "i"), lambda rs: tuple(sorted(column("i", rs), reverse=True)[:2])),
    Case("smallest", agg.smallest(3, "f"), lambda rs: tuple(sorted(column("f", rs))[:3])),
    Case("median", agg.median("i"), lambda rs: quantile(column("i", rs), 0.5), equal=near),
    Case("top", agg.top(2, "s"), lambda rs: tuple(Counter(column("s", rs)).most_common(2)), ordered=True),
    Case(
        "top with room",
        agg.top(2, "s", capacity=3),
        lambda rs: tuple(Counter(column("s", rs)).most_common(2)),
        ordered=True,
    ),
    Case("collect", agg.collect("i"), lambda rs: tuple(column("i", rs)), ordered=True),
    Case("collect_set", agg.collect_set("s"), lambda rs: frozenset(column("s", rs))),
    Case("fold", agg.fold(int, lambda acc, value: acc + value["i"], int.__add__), lambda rs: sum(column("i", rs))),
    Case(
        "fold of a list",
        agg.fold(list, lambda acc, value, t: [*acc, (t, value["i"])], lambda one, other: one + other),
        lambda rs: [(t, value["i"]) for t, value in rs],
        ordered=True,
    ),
    Case(
        "into",
        agg.into(dict, n=agg.count(), total=agg.sum("i"), both=agg.tuple_(agg.min("i"), agg.mean("i"))),
        lambda rs: {
            "n": len(rs),
            "total": sum(column("i", rs)),
            "both": (min(column("i", rs)), sum(column("i", rs)) / len(rs)),
        },
    ),
    Case("partial of a set", agg.partial(agg.collect_set("s")), lambda rs: set(column("s", rs))),
    Case(
        "partial of several",
        agg.partial(agg.tuple_(agg.count(), agg.collect("s"), agg.last("s"))),
        lambda rs: [len(rs), column("s", rs), max(reversed([(t, v["s"]) for t, v in rs]), key=itemgetter(0))],
        ordered=True,
    ),
    Case("count, skipping", agg.count(odd, skip_none=True), without_none(len, 0)),
    Case("sum, skipping", agg.sum(odd, skip_none=True), without_none(sum)),
    Case("mean, skipping", agg.mean(odd, skip_none=True), without_none(lambda left: sum(left) / len(left))),
    Case("min, skipping", agg.min(odd, skip_none=True), without_none(min)),
    Case("max, skipping", agg.max(odd, skip_none=True), without_none(max)),
    Case("distinct, skipping", agg.count_distinct(odd, skip_none=True), without_none(lambda left: len({*left}), 0)),
    Case("collect, skipping", agg.collect(odd, skip_none=True), without_none(tuple, ()), ordered=True),
    Case(
        "first, skipping",
        agg.first(odd, skip_none=True),
        lambda rs: min(((t, odd(v)) for t, v in rs if odd(v)), key=itemgetter(0), default=(0, None))[1],
    ),
    Case(
        "variance, skipping",
        agg.variance(odd, skip_none=True),
        without_none(lambda left: variance_of(left, 1)),
        equal=about,
        rounds="i",
    ),
    Case("partial", agg.partial(agg.mean("i")), lambda rs: [len(rs), sum(column("i", rs))]),
    Case(
        "an aggregator of one's own",
        Longest(),
        lambda rs: max([[v["s"] * v["i"]] for _, v in rs], key=lengths),
        ordered=True,
    ),
]

case = st.sampled_from(CASES)
values = st.fixed_dictionaries(
    {
        "i": st.integers(-3, 3),
        "f": st.floats(-1e9, 1e9, allow_nan=False),
        "s": st.sampled_from("abc"),
    }
)
records = st.lists(st.tuples(st.integers(0, 5), values), min_size=1, max_size=8)

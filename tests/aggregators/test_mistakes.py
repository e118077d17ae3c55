"""Rejected mistakes, and their error messages."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from operator import length_hint
from typing import Any, NamedTuple

import pytest

import malflow.agg
from malflow import GraphError, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.agg import Aggregator
from malflow.aggregators.fuse import compile_kernel
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

agg: Any = malflow.agg  # the mistakes are such for a type checker too
compiled: Any = compile_kernel


class Point(NamedTuple):
    x: int | None


class Totals(NamedTuple):
    n: int
    total: int


class Half(Aggregator[Any, Any, Any]):
    def create(self) -> Any:
        return 0


async def later(value: Any) -> Any:
    return value


def lazily(value: Any) -> Any:
    yield value


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: compiled([]), "no aggregator is given"),
    (lambda: compiled([agg.count]), "is not an aggregator; call it: write agg.count"),
    (lambda: compiled([lambda value: 1]), r"is not an aggregator; write agg.fold\(create, add\) for functions"),
    (lambda: compiled(["amount"]), r"'amount' is not an aggregator; write agg.sum\('amount'\)"),
    (lambda: compiled([1]), "1 is not an aggregator; write agg.count"),
    (lambda: compiled([Half]), r"is not an aggregator; write Half\(...\)"),
    (lambda: compiled([Half()]), r"the aggregator Half\(\) has no method add\(\)"),
    (lambda: agg.tuple_(agg.count), "call it: write agg.count"),
    (agg.tuple_, "agg.tuple_ needs at least one aggregator"),
    (lambda: agg.into(Totals), "agg.into needs at least one aggregator, under a name"),
    (lambda: agg.into(Totals, n=agg.count), "call it: write agg.count"),
    (lambda: agg.into(Totals, n=agg.count()), r"Totals\(n=...\), but missing a required argument: 'total'"),
    (lambda: agg.into(Totals, n=agg.count(), sum=agg.sum(), total=agg.sum()), "unexpected keyword argument 'sum'"),
    (lambda: agg.into(3, n=agg.count()), "agg.into needs a class or function; got 3"),
    (lambda: agg.into(dict, **{"a b": agg.count()}), "'a b' is not a Python identifier"),
    (lambda: agg.into(dict, **{"class": agg.count()}), "'class' is not a Python identifier"),
    (
        lambda: agg.sum(3.5),
        "agg.sum field must be the name of a field, its place in a tuple or a plain function; got 3.5",
    ),
    (lambda: agg.min(later), "agg.min field .* a plain function; got a coroutine function, later"),
    (lambda: agg.max(lazily), "got a generator function"),
    (lambda: agg.mean(lambda key, value: 1), r"agg.mean calls field\(value\), but <lambda>"),
    (
        lambda: agg.count(True),
        "agg.count predicate must be the name of a field, its place in a tuple or a plain function",
    ),
    (lambda: agg.variance("x", ddof=-1), "agg.variance ddof must be a whole number, at least 0; got -1"),
    (lambda: agg.quantiles("x"), "agg.quantiles needs a fraction such as 0.5"),
    (lambda: agg.quantiles("x", 99), "agg.quantiles fraction must be a number, from 0 to 1; got 99"),
    (lambda: agg.quantiles("x", "y"), "got 'y'"),
    (lambda: agg.top("x"), "agg.top n must be a whole number, at least 1; got 'x'"),
    (lambda: agg.top(0), "got 0"),
    (lambda: agg.top(3, capacity=2), "agg.top capacity must be a whole number, at least 3; got 2"),
    (lambda: agg.fold(0, lambda acc, value: acc), r"agg.fold create must be a plain function; got 0"),
    (lambda: agg.fold(lambda value: 0, lambda acc, value: acc), "takes other arguments"),
    (lambda: agg.fold(int, lambda acc: acc), r"calls add\(accumulator, value\), but"),
    (lambda: agg.fold(int, 1), "got 1"),
    (lambda: agg.fold(int, int.__add__, lambda acc: acc), r"\(one, other\)"),
    (lambda: agg.fold(int, int.__add__, result=lambda: 1), r"\(accumulator\)"),
    (lambda: agg.merged(agg.fold(list, list.append)), "agg.merged needs an aggregator that can merge"),
    (lambda: agg.partial(agg.mean), "call it: write agg.mean"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_mistake_is_refused_with_its_location(mistake: Callable[[], object], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        mistake()
    assert caught.value.location is not None
    assert caught.value.location.startswith(f"{__file__}:")


def failure(aggregator: Aggregator[Any, Any, Any], *values: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is the question
        compile_kernel([aggregator]).add({}, ["k"] * len(values), values, range(len(values)))
    return caught.value


def notes(error: Exception) -> str:
    return " ".join(getattr(error, "__notes__", []))


def test_a_missing_item_is_named() -> None:
    error = failure(agg.sum("x"), {"y": 1})
    assert isinstance(error, KeyError)
    assert "the value has no item 'x'; it has ['y']; call .filter() first" in notes(error)


def test_a_missing_attribute_is_named() -> None:
    error = failure(agg.sum("y"), Point(1))
    assert isinstance(error, AttributeError)
    assert "the value has no attribute 'y'; it has ['x']; call .filter() first" in notes(error)


@pytest.mark.parametrize("values", [[Point(1), {"x": 1}], [{"x": 1}, Point(1)]])
def test_values_of_two_kinds_are_an_error_that_says_so(values: list[Any]) -> None:
    assert "this value is of the other kind; call .map() first" in notes(failure(agg.sum("x"), *values))


@pytest.mark.parametrize("make", [agg.sum, agg.min, agg.mean, agg.variance, agg.max_by, agg.fsum, agg.median])
@pytest.mark.parametrize("values", [[Point(None)], [Point(1), Point(None)]])
def test_none_is_refused_where_a_number_is_needed(make: Any, values: list[Point]) -> None:
    error = failure(make("x"), *values)
    assert isinstance(error, TypeError)
    assert "is None, which cannot be aggregated; call .filter() first" in f"{error} {notes(error)}"
    with pytest.raises(TypeError, match="is None, which cannot be aggregated"):
        make("x").add(make("x").create(), Point(None), 0)


def test_an_error_of_a_users_function_is_left_alone() -> None:
    error = failure(agg.sum(lambda value: value.y), Point(None))
    assert not notes(error)


def test_none_is_a_value_where_no_number_is_needed() -> None:
    kernel = compile_kernel([agg.collect("x"), agg.last("x"), agg.count_distinct("x"), agg.count("x")])
    accs: dict[str, Any] = {}
    kernel.add(accs, "kk", [Point(1), Point(None)], (0, 1))
    assert kernel.result(accs["k"]) == ((1, None), None, 2, 1)


def test_the_position_of_the_iterator_tells_the_failing_record() -> None:
    for field in ("x", lambda value: value["x"]):
        values = iter([{"x": 1}, {"x": 2}, {"y": 3}, {"x": 4}])
        with pytest.raises(KeyError):
            compile_kernel([agg.sum(field)]).add({}, "kkkk", values, range(4))
        assert length_hint(values) == 1


def test_stopping_an_iteration_in_a_function_is_an_error() -> None:
    with pytest.raises(StopIteration):
        compile_kernel([agg.sum(lambda value: next(iter(())))]).add({}, "k", [1], [0])
    with pytest.raises(StopIteration):
        compile_kernel([agg.fold(int, int.__add__, result=lambda acc: next(iter(())))]).results([1])


def test_columns_of_different_lengths_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        compile_kernel([agg.count()]).add({}, "kk", [1], [0])


def test_a_traceback_shows_the_step() -> None:
    error = failure(agg.sum("x"), {"x": 1}, {"x": "a"})
    assert "s_ = a + x0" in "".join(traceback.format_exception(error))


@dataclass(frozen=True)
class Doubled(Aggregator[int, int, int]):
    times: int

    def create(self) -> int:
        return 0

    def add(self, acc: int, value: int, timestamp: Any) -> int:
        return acc + self.times * value

    def result(self, acc: int) -> int:
        return acc


def test_an_aggregator_without_merge_says_so() -> None:
    kernel = compile_kernel([agg.count(), Doubled(2)])
    assert not kernel.can_merge
    assert not agg.tuple_(Doubled(2)).can_merge
    assert agg.tuple_(agg.count(), agg.sum()).can_merge
    with pytest.raises(TypeError, match=r"Doubled\(times=2\) cannot be merged"):
        kernel.merge([1, 2], [1, 2])


def test_new_keys_are_admitted_before_they_are_inserted() -> None:
    seen: list[str] = []
    accs: dict[str, int] = {"a": 1}

    def admit(key: str) -> None:
        assert key not in accs
        seen.append(key)

    kernel = compile_kernel([agg.count()])
    kernel.add(accs, "ab", "ab", range(2), admit)
    kernel.each(accs, "bac", "bac", range(3), admit)
    assert seen == ["b", "c"]


NUMERIC = [
    agg.sum("delay"),
    agg.mean("delay"),
    agg.variance("delay"),
    agg.stddev("delay"),
    agg.fsum("delay"),
    agg.median("delay"),
    agg.quantile("delay", 0.9),
    agg.quantiles("delay", 0.5),
    agg.exact_quantiles("delay", 0.5),
    agg.tuple_(agg.count(), agg.sum("delay")),
]


@pytest.mark.parametrize("aggregator", NUMERIC, ids=repr)
@pytest.mark.parametrize("delays", [["9"], ["9", "10"], [9, "10"], [b"9"]], ids=repr)
def test_text_is_no_number(aggregator: Any, delays: list[Any]) -> None:
    def build(provider: StreamProvider) -> None:
        flights = provider.new_stream().source("flights", SingleIteratorSource([{"delay": it} for it in delays]))
        flights.key_distribute("all", lambda msg: 7).aggregate("delays", aggregator).sink("out", VecSink())

    with pytest.raises(OperatorError, match=r"(?s)operator 'delays' failed at key 7, .*delay") as refused:
        SingleThreadRuntime(build).execute()
    if not isinstance(delays[0], int):
        assert "the field 'delay' is" in str(refused.value)
        assert str(refused.value).count("types={'amount': int}") == 1


@pytest.mark.parametrize("first", [10**20, 2**53 + 1, -(10**30)])
def test_variances_of_great_integers_are_not_rounded(first: int) -> None:
    aggregator: Any = agg.stddev()
    acc = aggregator.create()
    for number in (first, first + 2, first + 4):
        acc = aggregator.add(acc, number, 0)
    assert aggregator.result(acc) == 2.0
    halves = [aggregator.add(aggregator.create(), number, 0) for number in (first, first + 2)]
    assert aggregator.result(aggregator.merge(*halves)) == pytest.approx(2**0.5)

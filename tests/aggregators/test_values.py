"""Special values: truth values, signed zeros, durations, large squares, and values that equal others."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import agg
from malflow.agg import Aggregator
from malflow.aggregators.fuse import Kernel, compile_kernel
from malflow.snapshot import MsgpackCodec
from tests.aggregators.cases import CASES, Case, records


def result_of(aggregator: Aggregator[Any, Any, Any], values: Sequence[Any], timestamps: Sequence[Any] = ()) -> Any:
    kernel = compile_kernel([aggregator])
    accs: dict[str, Any] = {}
    kernel.add(accs, ["k"] * len(values), values, timestamps or range(len(values)))
    return kernel.result(accs["k"])


def test_truth_values_are_counted_by_a_sum() -> None:
    assert repr(result_of(agg.sum(), [True])) == "1"
    assert repr(result_of(agg.sum(), [True, True])) == "2"
    assert repr(agg.sum().result(agg.sum().add(None, True, 0))) == "1"


def test_the_sign_of_a_zero_is_kept() -> None:
    assert repr(result_of(agg.sum(), [-0.0, -0.0])) == "-0.0"


def test_floats_are_added_one_after_the_other() -> None:
    values = [0.1] * 10 + [1e16, 1.0, -1e16, 0.3]
    expected = 0.1
    for value in values[1:]:
        expected = expected + value
    assert result_of(agg.sum(), values) == expected


def test_a_sum_does_not_change_the_lists_that_it_adds() -> None:
    values = [[1], [2]]
    kernel = compile_kernel([agg.sum(), agg.count()])
    accs: dict[str, Any] = {}
    kernel.add(accs, "kk", values, range(2))
    assert accs["k"][0] == [1, 2]
    assert values == [[1], [2]]


@pytest.mark.parametrize(
    ("values", "total", "mean"),
    [
        ([timedelta(1), timedelta(2)], timedelta(3), timedelta(1, 43200)),
        ([Decimal("0.1"), Decimal("0.2")], Decimal("0.3"), Decimal("0.15")),
        ([Fraction(1, 3), Fraction(1, 6)], Fraction(1, 2), Fraction(1, 4)),
        ([10**30, 1], 10**30 + 1, (10**30 + 1) / 2),
    ],
)
def test_numbers_of_other_types_keep_their_type(values: list[Any], total: Any, mean: Any) -> None:
    got = result_of(agg.tuple_(agg.sum(), agg.mean(), agg.min(), agg.max()), values)
    assert got == (total, mean, min(values), max(values))
    assert [type(it) for it in got] == [type(total), type(mean), type(values[0]), type(values[0])]


@pytest.mark.parametrize("number", [int, float, Decimal, Fraction])
def test_a_variance_does_not_subtract_large_squares(number: Any) -> None:
    values = [number(10**9 + n) for n in (1, 2, 3)]
    assert result_of(agg.variance(), values) == 1
    kernel = compile_kernel([agg.variance()])
    halves: dict[str, Any] = {}
    kernel.add(halves, "abb", values, range(3))
    assert kernel.result(kernel.merge(halves["a"], halves["b"])) == 1


def test_a_variance_of_too_few_records_is_none() -> None:
    assert result_of(agg.tuple_(agg.variance(), agg.stddev(), agg.variance(ddof=0), agg.stddev(ddof=0)), [3]) == (
        None,
        None,
        0,
        0.0,
    )


@pytest.mark.parametrize(
    ("aggregator", "expected"),
    [
        (agg.first("id"), "b"),
        (agg.last("id"), "d"),
        (agg.min_by("n"), {"id": "c", "n": 1}),
        (agg.max_by("n"), {"id": "b", "n": 2}),
    ],
    ids=repr,
)
def test_ties_go_to_the_timestamp_and_then_to_arrival(aggregator: Any, expected: Any) -> None:
    values = [{"id": i, "n": n} for i, n in (("a", 2), ("b", 2), ("c", 1), ("d", 1), ("e", 2))]
    assert result_of(aggregator, values, [5, 1, 1, 5, 1]) == expected


def test_merging_keeps_the_first_of_equal_values() -> None:
    kernel = compile_kernel([agg.min(), agg.max(), agg.min_by("real"), agg.max_by("real"), agg.last(), agg.first()])
    accs: dict[str, Any] = {}
    kernel.add(accs, "ab", [1, 1.0], [0, 0])
    assert repr(kernel.result(kernel.merge(accs["a"], accs["b"]))) == "(1, 1, 1, 1, 1.0, 1)"
    plain = [it.result(it.merge(it.add(it.create(), 1, 0), it.add(it.create(), 1.0, 0))) for it in kernel.aggregators]
    assert repr(tuple(plain)) == "(1, 1, 1, 1, 1.0, 1)"


def test_an_accumulator_may_be_none() -> None:
    created: list[int] = []
    kernel = compile_kernel([agg.fold(lambda: created.append(1), lambda acc, value: None)])
    kernel.add({}, "kkk", [1, 2, 3], range(3))
    assert created == [1]


def test_several_aggregators_keep_equal_slots_once() -> None:
    assert agg.tuple_(agg.count(), agg.mean("x"), agg.sum("x")).create() == [0, None]


def test_equal_values_keep_the_one_that_was_first() -> None:
    assert repr(result_of(agg.tuple_(agg.min(), agg.max(), agg.top(1), agg.collect_set()), [1, 1.0, True])) == repr(
        (1, 1, ((1, 3),), frozenset({1}))
    )


class Pair(NamedTuple):
    x: int


@dataclass
class Mutable:
    x: int


class Slots:
    __slots__ = ("x",)

    def __init__(self, x: int) -> None:
        self.x = x


@pytest.mark.parametrize("kind", [Pair, Mutable, Slots, lambda x: {"x": x}, lambda x: MappingProxyType({"x": x})])
@pytest.mark.parametrize("field", ["x", lambda value: value.x if hasattr(value, "x") else value["x"]])
def test_a_field_of_values_of_any_kind(kind: Any, field: Any) -> None:
    both = agg.tuple_(agg.sum(field), agg.max(field))
    assert result_of(both, [kind(1), kind(2)]) == (3, 2)
    assert both.result(both.add(both.add(both.create(), kind(1), 0), kind(2), 1)) == (3, 2)


@pytest.mark.parametrize("name", ["with space", "it's", 'a"b', "class", "a\nb", "{x}", "x", "", "0"])
def test_a_field_of_any_name(name: str) -> None:
    assert result_of(agg.sum(name), [{name: 1}, {name: 2}]) == 3
    kind = type("Odd", (), {name: 5})
    assert result_of(agg.sum(name), [kind(), kind()]) == 10


def test_the_kind_of_the_values_is_that_of_the_first_record() -> None:
    kernel = compile_kernel([agg.sum("x")])
    accs: dict[str, Any] = {}
    kernel.add(accs, [], iter([]), [])
    kernel.add(accs, "k", iter([Pair(1)]), [0])
    assert accs == {"k": 1}
    loaded = pickle.loads(pickle.dumps(kernel))
    loaded.add(accs, "k", iter([{"x": 1}]), [0])
    assert accs == {"k": 2}


@pytest.mark.parametrize("chosen", CASES, ids=[it.name for it in CASES])
def test_accumulators_are_plain_data(chosen: Case) -> None:
    kernel = compile_kernel([chosen.aggregator])
    accs: dict[str, Any] = {}
    kernel.add(accs, "kk", [{"i": 1, "f": 2.5, "s": "a"}, {"i": -1, "f": 0.1, "s": "b"}], (0, 1))
    codec = MsgpackCodec()
    assert codec.loads(codec.dumps(accs["k"])) == accs["k"]


def lift(value: Any) -> Any:
    return value["i"]


@pytest.mark.parametrize(
    ("aggregator", "text"),
    [
        (agg.count(), "agg.count()"),
        (agg.count("x"), "agg.count('x')"),
        (agg.sum(lift), "agg.sum(lift)"),
        (agg.min(lambda value: 1), "agg.min(<lambda>)"),
        (agg.max(itemgetter(2)), "agg.max(operator.itemgetter(2))"),
        (agg.mean(partial(round, ndigits=2)), "agg.mean(partial(round, ndigits=2))"),
        (agg.variance("x", ddof=0), "agg.variance('x', ddof=0)"),
        (agg.stddev(), "agg.stddev(ddof=1)"),
        (agg.fsum("x"), "agg.fsum('x')"),
        (agg.min_by("x"), "agg.min_by('x')"),
        (agg.max_by("x"), "agg.max_by('x')"),
        (agg.first(), "agg.first()"),
        (agg.last("x"), "agg.last('x')"),
        (agg.count_distinct("x"), "agg.count_distinct('x')"),
        (agg.count_distinct("x", approximate=True), "agg.count_distinct('x', approximate=True)"),
        (agg.quantiles("x", 0.5, 1), "agg.quantiles('x', 0.5, 1)"),
        (agg.quantiles(None, 0.5), "agg.quantiles(None, 0.5)"),
        (agg.median("x"), "agg.median('x')"),
        (agg.top(2), "agg.top(2)"),
        (agg.top(2, "x", capacity=5), "agg.top(2, 'x', capacity=5)"),
        (agg.collect("x"), "agg.collect('x')"),
        (agg.collect_set("x"), "agg.collect_set('x')"),
        (agg.fold(int, int.__add__), "agg.fold(int, int.__add__)"),
        (agg.into(Pair, x=agg.sum("x")), "agg.into(Pair, x=agg.sum('x'))"),
        (agg.tuple_(agg.count(), agg.sum("x")), "agg.tuple_(agg.count(), agg.sum('x'))"),
        (agg.partial(agg.mean("x")), "agg.partial(agg.mean('x'))"),
        (agg.merged(agg.mean("x")), "agg.merged(agg.mean('x'))"),
    ],
    ids=repr,
)
def test_the_text_of_an_aggregator_is_the_call_that_makes_it(aggregator: Any, text: str) -> None:
    assert repr(aggregator) == text


class Opaque(Aggregator[Any, list[Any], int]):
    def __init__(self, f: Any) -> None:
        self.f = f

    def create(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any, timestamp: Any) -> list[Any]:
        return [*acc, self.f(value)]

    def result(self, acc: list[Any]) -> int:
        return len(acc)


@dataclass(frozen=True)
class Generated(Opaque):
    f: Any


class Caller:
    def __call__(self, value: Any) -> Any:
        return value


def slots_of(*aggregators: Any) -> int:
    accs: dict[str, Any] = {}
    compile_kernel([agg.tuple_(*aggregators)]).add(accs, "k", [{"i": 1}], [0])
    return len(accs["k"])


def test_a_definition_tells_layouts_apart_where_names_do_not() -> None:
    shared: Any = lambda value: value["i"]  # noqa: E731 - two lambdas are the case
    other: Any = lambda value: value["i"]  # noqa: E731
    opaque = Opaque(lift)
    pairs = [
        ((agg.sum(shared), agg.mean(shared)), (agg.sum(shared), agg.mean(other))),
        ((opaque, opaque), (Opaque(lift), Opaque(lift))),
        (
            (agg.sum(shared), agg.mean(shared), agg.min("i"), agg.mean(other)),
            (agg.sum(shared), agg.mean(other), agg.min("i"), agg.mean(shared)),
        ),
    ]
    for one, two in pairs:
        assert repr(one) == repr(two)
        assert compile_kernel(one).definition != compile_kernel(two).definition
    assert slots_of(*pairs[0][0]) == slots_of(*pairs[0][1]) - 1
    assert slots_of(opaque, opaque, agg.count()) == 2


def test_a_definition_has_no_addresses() -> None:
    definitions = {compile_kernel([Generated(lift), agg.count(Caller())]).definition for _ in range(2)}
    assert definitions == {"Generated(f=<function lift>), agg.count(Caller)"}


@pytest.mark.parametrize("named", [it.aggregator for it in CASES if "lambda" not in repr(it.aggregator)], ids=repr)
def test_an_aggregator_is_pickled_by_name(named: Aggregator[Any, Any, Any]) -> None:
    named.create()
    loaded = pickle.loads(pickle.dumps(named))
    assert repr(loaded) == repr(named)
    assert "slots" not in vars(loaded)


def total(kernel: Kernel, rows: Any) -> Any:
    accs: dict[str, Any] = {}
    kernel.add(accs, ["k"] * len(rows), [value for _, value in rows], [timestamp for timestamp, _ in rows])
    return accs["k"]


@given(st.sampled_from(CASES), st.lists(records, min_size=1, max_size=4))
def test_stages_agree_with_one_aggregation(chosen: Case, parts: list[Any]) -> None:
    partial_, merged = compile_kernel([agg.partial(chosen.aggregator)]), compile_kernel([agg.merged(chosen.aggregator)])
    middle = [partial_.result(total(partial_, rows)) for rows in parts]
    before = pickle.dumps(middle)
    got = merged.result(total(merged, [(0, acc) for acc in middle]))
    expected = chosen.model([row for rows in parts for row in rows])
    assert chosen.rounds or chosen.equal(got, expected)
    assert pickle.dumps(middle) == before


@given(
    st.lists(st.sampled_from([it for it in CASES if it.aggregator.can_merge]), min_size=2, max_size=4), records, records
)
def test_accumulators_are_merged_by_key(chosen: list[Case], one: Any, other: Any) -> None:
    for debug in (False, True):
        kernel = compile_kernel([it.aggregator for it in chosen], debug=debug)
        left, right = (
            {"a": total(kernel, one), "b": total(kernel, one)},
            {"b": total(kernel, other), "c": total(kernel, other)},
        )
        before = pickle.dumps((left, right))
        got = kernel.merge_by_key(left, right)
        assert list(got) == ["a", "b", "c"]
        assert repr(got) == repr({**left, **right, "b": kernel.merge(left["b"], right["b"])})
        assert pickle.dumps((left, right)) == before

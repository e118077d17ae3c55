"""Merging accumulators equals adding their records, in value and type, for each aggregator that says so."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, agg
from malflow.aggregators.contract import Aggregator
from malflow.aggregators.exactness import Exact, Holds, fits
from malflow.aggregators.slots import slotted

pytestmark = pytest.mark.slow


class Longest(Aggregator[str, list[str], str]):
    """The longest text; of equal ones, the first."""

    exact = True

    def create(self) -> list[str]:
        return [""]

    def add(self, acc: list[str], value: str, timestamp: Any) -> list[str]:
        if len(str(value)) > len(acc[0]):
            acc[0] = str(value)
        return acc

    def merge(self, one: list[str], other: list[str]) -> list[str]:
        return [one[0] if len(one[0]) >= len(other[0]) else other[0]]

    def result(self, acc: list[str]) -> str:
        return acc[0]


class Inexact(Longest):
    """One that does not say so."""

    exact = False


EXACT = [
    agg.count(),
    agg.count(bool),
    agg.sum(of=int),
    agg.mean(of=int),
    agg.fsum(),
    agg.min(),
    agg.max(),
    agg.min_by(lambda value: value),
    agg.max_by(lambda value: value),
    agg.first(),
    agg.last(),
    agg.count_distinct(),
    agg.count_distinct(approximate=True),
    agg.median(),
    agg.quantiles(None, 0, 0.3, 1),
    agg.exact_quantiles(None, 0, 0.5, 1),
    agg.smallest(3),
    agg.largest(3),
    agg.tuple_(agg.count(), agg.min()),
    agg.into(dict, n=agg.count(), first=agg.first()),
    Longest(),
]
NEVER = [
    agg.sum(),
    agg.mean(),
    agg.sum("n"),
    agg.variance(),
    agg.stddev(),
    agg.top(2),
    agg.top(2, capacity=5),
    agg.collect(),
    agg.collect_set(),
    agg.fold(int, lambda acc, value: acc + value, int.__add__),
    agg.tuple_(agg.count(), agg.sum()),
    agg.partial(agg.count_distinct()),
    agg.merged(agg.count()),
    Inexact(),
]

NUMBERS = st.sampled_from([0, 1, -1, True, False, 0.0, -0.0, 1.0, 0.1, -2.5, 2**53 + 1, 2**53, 1e300, float("nan")])
DAYS = [date(2024, 3, 1), date(2024, 3, 2)]
ZONE = ZoneInfo("Europe/Berlin")
REPEATED = [datetime(2024, 10, 27, 2, 30, tzinfo=ZONE, fold=fold) for fold in (0, 1)]
OTHERS = st.sampled_from(["a", "b", "", b"a", *DAYS, timedelta(1), datetime(2024, 3, 1, tzinfo=UTC), *REPEATED, None])
COLUMNS = st.lists(st.integers(), max_size=8) | st.lists(NUMBERS, max_size=8) | st.lists(NUMBERS | OTHERS, max_size=8)
RUNS = st.lists(st.lists(st.tuples(st.integers(0, 3), NUMBERS), min_size=1, max_size=5), min_size=1, max_size=5)


def exactness(aggregator: Any) -> list[Exact]:
    found = slotted(aggregator).exactness()
    assert None not in found
    return [it for it in found if it is not None]


def added(aggregator: Any, records: list[tuple[int, Any]], acc: Any = None) -> Any:
    acc = aggregator.create() if acc is None else acc
    for timestamp, value in records:
        acc = aggregator.add(acc, value, timestamp)
    return acc


def merged(aggregator: Any, runs: list[list[tuple[int, Any]]]) -> Any:
    acc, *others = [added(aggregator, run) for run in runs]
    for other in others:
        acc = aggregator.merge(acc, other)
    return acc


@pytest.mark.parametrize("aggregator", EXACT, ids=repr)
@given(runs=RUNS, data=st.data())
def test_merging_runs_of_records_equals_adding_them(aggregator: Any, runs: Any, data: Any) -> None:
    facts = exactness(aggregator)
    fit = [run for run in runs if all(fits([value for _, value in run], it.column) for it in facts)]
    if not fit:
        return
    records = [record for run in fit for record in run]
    expected = repr(aggregator.result(added(aggregator, records)))
    assert repr(aggregator.result(merged(aggregator, fit))) == expected
    if any(it.ordered for it in facts):
        return
    by_sender: dict[int, list[tuple[int, Any]]] = {}
    for record in records:
        by_sender.setdefault(data.draw(st.integers(0, 2)), []).append(record)
    assert repr(aggregator.result(merged(aggregator, [*by_sender.values()]))) == expected


@pytest.mark.parametrize("aggregator", NEVER, ids=repr)
def test_others_are_never_merged(aggregator: Any) -> None:
    assert None in slotted(aggregator).exactness()


@given(COLUMNS)
def test_columns_that_fit_have_a_total_order(column: list[Any]) -> None:
    if fits(column, Holds.COMPARABLE):
        for one in column:
            for other in column:
                assert (one < other) + (other < one) + (one == other) == 1
    if fits(column, Holds.INTEGERS):
        assert all(isinstance(it, int) for it in column)


@pytest.mark.parametrize("column", [REPEATED, [1, "a"], [0.5, float("nan")], [[1]], [date(2024, 1, 1), *REPEATED]])
def test_columns_of_no_or_several_orders_do_not_fit(column: list[Any]) -> None:
    assert not any(fits(column, it) for it in (Holds.COMPARABLE, Holds.NUMBERS, Holds.INTEGERS))


@pytest.mark.parametrize("make", [agg.sum, agg.mean])
def test_only_int_can_be_promised(make: Any) -> None:
    with pytest.raises(GraphError, match="takes of=int"):
        make("amount", of=float)
    assert repr(make("amount", of=int)).endswith("('amount', of=int)")

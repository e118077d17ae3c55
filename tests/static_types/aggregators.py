"""The inferred types of aggregators; checked by mypy, not run."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple, assert_type

from malflow import agg
from malflow.agg import Aggregator


class Sale(NamedTuple):
    shop: str
    amount: Decimal
    pieces: int
    lasted: timedelta


class Totals(NamedTuple):
    sales: int
    amount: Decimal


def amount_of(sale: Sale) -> Decimal:
    return sale.amount


def pieces_of(sale: Sale) -> int:
    return sale.pieces


def lasted(sale: Sale) -> timedelta:
    return sale.lasted


def sums() -> None:
    assert_type(agg.count(), Aggregator[object, int, int])
    assert_type(agg.count(pieces_of), Aggregator[Sale, int, int])
    assert_type(agg.count("pieces"), Aggregator[Any, int, int])
    assert_type(agg.sum(amount_of), Aggregator[Sale, Any, Decimal])
    assert_type(agg.sum("amount"), Aggregator[Any, Any, Any])
    assert_type(agg.sum(), Aggregator[Any, Any, Any])
    assert_type(agg.sum(pieces_of, of=int), Aggregator[Sale, Any, int])
    assert_type(agg.sum("pieces", of=int), Aggregator[Any, Any, int])
    assert_type(agg.mean("pieces", of=int), Aggregator[Any, Any, float])
    assert_type(agg.mean(pieces_of), Aggregator[Sale, Any, float])
    assert_type(agg.mean(lasted), Aggregator[Sale, Any, timedelta])
    assert_type(agg.fsum(pieces_of), Aggregator[Sale, Any, float])
    assert_type(agg.variance(amount_of), Aggregator[Sale, Any, Decimal | None])
    assert_type(agg.variance(pieces_of, ddof=0), Aggregator[Sale, Any, float | None])
    assert_type(agg.stddev(amount_of), Aggregator[Sale, Any, float | None])


def chosen() -> None:
    assert_type(agg.min(lasted), Aggregator[Sale, Any, timedelta])
    assert_type(agg.max(pieces_of), Aggregator[Sale, Any, int])
    assert_type(agg.min_by(amount_of), Aggregator[Sale, Any, Sale])
    assert_type(agg.max_by("amount"), Aggregator[Any, Any, Any])
    assert_type(agg.first(amount_of), Aggregator[Sale, Any, Decimal])
    assert_type(agg.last(lasted), Aggregator[Sale, Any, timedelta])
    assert_type(agg.collect(pieces_of), Aggregator[Sale, Any, tuple[int, ...]])
    assert_type(agg.collect_set(pieces_of), Aggregator[Sale, Any, frozenset[int]])


def sketches() -> None:
    assert_type(agg.count_distinct(pieces_of, approximate=True), Aggregator[Sale, Any, int])
    assert_type(agg.quantiles(pieces_of, 0.5, 0.9), Aggregator[Sale, Any, tuple[float, ...]])
    assert_type(agg.median(pieces_of), Aggregator[Sale, Any, float])
    assert_type(agg.top(3, pieces_of), Aggregator[Sale, Any, tuple[tuple[int, int], ...]])
    assert_type(agg.top(3, "shop", capacity=10), Aggregator[Any, Any, tuple[tuple[Any, int], ...]])


def several() -> None:
    both = agg.tuple_(agg.sum(amount_of), agg.max(pieces_of))
    assert_type(both, Aggregator[Sale, Any, tuple[Decimal, int]])
    totals = agg.into(Totals, sales=agg.count(), amount=agg.sum(amount_of))
    assert_type(totals, Aggregator[Sale, Any, Totals])
    with_text = agg.tuple_(agg.sum("amount"), agg.count(), agg.max(pieces_of))
    assert_type(with_text, Aggregator[Sale, Any, tuple[Any, int, int]])
    assert_type(agg.partial(agg.count(pieces_of)), Aggregator[Sale, int, int])
    assert_type(agg.merged(agg.count(pieces_of)), Aggregator[int, int, int])


def places_and_none() -> None:
    assert_type(agg.sum(1), Aggregator[Any, Any, Any])
    assert_type(agg.count(1), Aggregator[Any, int, int])
    assert_type(agg.sum(1, skip_none=True), Aggregator[Any, Any, Any])
    assert_type(agg.quantiles(None, 0.5, skip_none=True), Aggregator[Any, Any, Any])


def functions() -> None:
    def longer(length: int, sale: Sale) -> int:
        return max(length, len(sale.shop))

    def later(acc: list[Any], sale: Sale, timestamp: Any) -> list[Any]:
        return [*acc, timestamp]

    assert_type(agg.fold(int, longer, max), Aggregator[Sale, int, int])
    assert_type(agg.fold(int, longer, result=str), Aggregator[Sale, int, str])
    assert_type(agg.fold(list, later, result=len), Aggregator[Sale, list[Any], int])


def mistakes() -> None:
    agg.sum(3.5)  # type: ignore[call-overload]
    agg.tuple_(agg.count)  # type: ignore[call-overload]
    agg.into(Totals, sales=agg.count)  # type: ignore[arg-type]

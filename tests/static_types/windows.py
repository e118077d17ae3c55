"""The inferred types of windows and rollups; checked by mypy, not run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple, assert_type

from malflow import KeyedStream, agg
from malflow.streams.operators.aggregation import Windowed
from malflow.streams.operators.late_windows import LateWindowed
from malflow.windows import FOREVER, WindowResult, calendar, session, sliding, tumbling

HOUR = timedelta(hours=1)


class Order(NamedTuple):
    shop: str
    amount: float
    pieces: int


class Totals(NamedTuple):
    orders: int
    amount: float


Orders = KeyedStream[str, Order, datetime]


def amount_of(order: Order) -> float:
    return order.amount


def pieces_of(order: Order) -> int:
    return order.pieces


def windows(orders: Orders) -> None:
    hours = orders.window(tumbling(HOUR))
    assert_type(hours, Windowed[str, Order, datetime])
    assert_type(hours.aggregate("a", agg.sum(amount_of)), KeyedStream[str, WindowResult[float, datetime], datetime])
    two = hours.aggregate("b", agg.count(), agg.max(pieces_of), version=2, migrate=lambda acc, version: None)
    assert_type(two, KeyedStream[str, WindowResult[tuple[int, int], datetime], datetime])
    made = orders.window(session(HOUR)).aggregate("c", agg.into(Totals, orders=agg.count(), amount=agg.sum(amount_of)))
    assert_type(made, KeyedStream[str, WindowResult[Totals, datetime], datetime])
    assert_type(made.map("d", lambda it: it.value.orders), KeyedStream[str, int, datetime])
    assert_type(made.map("e", lambda it: it.start), KeyedStream[str, datetime, datetime])


def early(orders: Orders) -> None:
    slides = orders.window(sliding(HOUR, timedelta(minutes=5)), early=timedelta(minutes=1))
    assert_type(slides, Windowed[str, Order, datetime])
    assert_type(slides.aggregate("a", agg.count()), KeyedStream[str, WindowResult[int, datetime], datetime])


def late(on_time: Orders, late: Orders) -> None:
    windowed = on_time.window(calendar("day", "Europe/Prague")).allow_late(late, until=HOUR)
    assert_type(windowed, LateWindowed[str, Order, datetime])
    results, revised, too_late = windowed.aggregate("a", agg.count(), agg.sum(amount_of))
    assert_type(results, KeyedStream[str, WindowResult[tuple[int, float], datetime], datetime])
    assert_type(revised, KeyedStream[str, WindowResult[tuple[int, float], datetime], datetime])
    assert_type(too_late, KeyedStream[str, Order, datetime])
    found = on_time.window(calendar("hour")).allow_late(until=HOUR).aggregate("b", agg.count())
    assert_type(found.with_revisions(), KeyedStream[str, WindowResult[int, datetime], datetime])


def so_far(orders: Orders) -> None:
    assert_type(orders.aggregate("a", agg.sum(amount_of)), KeyedStream[str, float, datetime])
    assert_type(orders.aggregate("b", agg.count(), agg.sum(amount_of)), KeyedStream[str, tuple[int, float], datetime])


def rollups(orders: Orders) -> None:
    levels = orders.rollup("a", ["hour", "day"], agg.sum(amount_of), zone="UTC", keep={"hour": HOUR, "day": FOREVER})
    assert_type(levels, dict[str, KeyedStream[str, WindowResult[float, datetime], datetime]])
    two = orders.rollup("b", ["day", "month"], agg.count(), agg.sum(amount_of), version=2)
    assert_type(two["day"], KeyedStream[str, WindowResult[tuple[int, float], datetime], datetime])


def stages(orders: Orders) -> None:
    pieces = agg.partial(agg.count(pieces_of))
    hours = orders.window(tumbling(HOUR)).aggregate("a", pieces)
    assert_type(hours, KeyedStream[str, WindowResult[int, datetime], datetime])

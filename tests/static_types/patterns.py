"""The inferred types of patterns; checked by mypy, not run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from malflow import KeyedStream
from malflow.patterns import Found, Match, Pattern, SoFar, absent, step


class Order:
    amount: int


class Payment:
    pass


class Cancel:
    pass


def is_large(order: Order) -> bool:
    return order.amount > 100


def rises(value: float, so_far: SoFar[float]) -> bool:
    return value > (so_far.last("rise") or 0)


def steps() -> None:
    assert_type(step("order", Order), Pattern[Order])
    assert_type(step("large", Order, lambda order: order.amount > 100), Pattern[Order])
    assert_type(step("large", is_large), Pattern[Order])
    assert_type(step("large", where=is_large), Pattern[Order])
    assert_type(step("rise", given=rises), Pattern[float])
    assert_type(step("rise", float, given=rises), Pattern[float])
    assert_type(step("failed", "failed", lambda login: login["user"] != "root"), Pattern[Any])
    assert_type(step("failed", lambda login: not login["ok"]), Pattern[Any])
    assert_type(step("any"), Pattern[Any])


def patterns(order: Pattern[Order], paid: Pattern[Payment], cancelled: Pattern[Cancel]) -> None:
    hour = timedelta(hours=1)
    assert_type(order.then(paid, without=cancelled), Pattern[Order | Payment])
    assert_type(order.next(paid), Pattern[Order | Payment])
    assert_type(order.then_any(paid).within(hour), Pattern[Order | Payment])
    assert_type(order.then_not(paid, during=hour), Pattern[Order])
    assert_type(order.times(3), Pattern[Order])
    assert_type(order.times(0, None), Pattern[Order])
    assert_type(order.at_least(3, by="next"), Pattern[Order])
    assert_type(order.optional(), Pattern[Order])
    assert_type(order | paid, Pattern[Order | Payment])
    assert_type(order & paid & cancelled, Pattern[Order | Payment | Cancel])
    assert_type(absent(cancelled, during=hour).then(order), Pattern[Order])
    assert_type(order.find([], after="all"), Found[Order])
    assert_type(order.find([])[0]["order"], list[Order])
    assert_type(order.find([]).timeouts[0].last("order"), Order | None)
    assert_type(str(order), str)


def matches(match: Match[str, Order | Payment, int]) -> None:
    assert_type(match.key, str)
    assert_type(match["order"], list[Order | Payment])
    assert_type(match.first("order"), Order | Payment | None)
    assert_type(match.start, int)


def operators(stream: KeyedStream[str, object, int], order: Pattern[Order], paid: Pattern[Payment]) -> None:
    found = stream.match("found", order.then(paid), after="start", order="arrival")
    assert_type(found.matches, KeyedStream[str, Match[str, Order | Payment, int], int])
    assert_type(found.timeouts, KeyedStream[str, Match[str, Order | Payment, int], int])
    assert_type(found.late, KeyedStream[str, object, int])
    stream.match("after", order, after="next")  # type: ignore[arg-type]


def mistakes(order: Pattern[Order], paid: Pattern[Payment]) -> None:
    order.next(paid, without=order)  # type: ignore[arg-type]
    order.times(3, by="after")  # type: ignore[arg-type]
    order.then(is_large)  # type: ignore[arg-type]
    absent(order, during=5).times(3)  # type: ignore[attr-defined]

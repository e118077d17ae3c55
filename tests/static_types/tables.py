"""The inferred types of tables; checked by mypy, not run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, assert_type

from malflow import KeyedStream, NoKey, Stream, Table, TableChange
from malflow.connectors.tables import Change, KeyedRow, debezium, rows_by_key, to_debezium
from malflow.message import NoKeyType


class User(NamedTuple):
    name: str
    city: str


def made(rows: KeyedStream[int, User | None, datetime], orders: KeyedStream[int, str, datetime]) -> None:
    assert_type(rows.to_table("users"), Table[int, User, datetime])
    assert_type(orders.to_table("orders"), Table[int, str, datetime])
    assert_type(orders.to_table("lengths", row=len, ttl=timedelta(1)), Table[int, int, datetime])
    assert_type(orders.to_table("fields", row="name"), Table[int, Any, datetime])


def used(users: Table[int, User, datetime]) -> None:
    assert_type(users.changes(), KeyedStream[int, TableChange[User], datetime])
    assert_type(users.rows(), KeyedStream[int, User | None, datetime])
    assert_type(users.map("name", lambda user: user.name), Table[int, str, datetime])
    assert_type(users.filter("named", lambda user: user.name), Table[int, User, datetime])
    assert_type(users.grouped("city", lambda user: user.city), KeyedStream[str, TableChange[User], datetime])
    assert_type(users.grouped("field", "city"), KeyedStream[Any, TableChange[User], datetime])


def joined(
    users: Table[int, User, datetime],
    names: Table[int, str, datetime],
    rows: KeyedStream[int, User | None, datetime],
    orders: KeyedStream[int, bytes, datetime],
) -> None:
    left = orders.join_table("left", users, lambda order, user: (order, user))
    assert_type(left, KeyedStream[int, tuple[bytes, User | None], datetime])
    inner = orders.join_table("inner", users, lambda order, user: (order, user), how="inner", at="arrival")
    assert_type(inner, KeyedStream[int, tuple[bytes, User], datetime])
    streamed = orders.join_table("rows", rows, lambda order, user: (order, user), how="inner")
    assert_type(streamed, KeyedStream[int, tuple[bytes, User], datetime])
    both = users.join("both", names, lambda user, name: (user, name))
    assert_type(both, Table[int, tuple[User, str], datetime])
    some = users.join("some", names, lambda user, name: (user, name), how="left")
    assert_type(some, Table[int, tuple[User, str | None], datetime])
    full = users.join("full", names, lambda user, name: (user, name), how="outer")
    assert_type(full, Table[int, tuple[User | None, str | None], datetime])


class Order(NamedTuple):
    user: int | None
    amount: float


def by_foreign_key(orders: Table[str, Order, datetime], users: Table[int, User, datetime]) -> None:
    inner = orders.join("inner", users, lambda order, user: (order.amount, user.name), on=lambda order: order.user)
    assert_type(inner, Table[str, tuple[float, str], datetime])
    left = orders.join("left", users, lambda order, user: (order, user), on="user", how="left")
    assert_type(left, Table[str, tuple[Order, User | None], datetime])


def broadcast(
    users: Table[int, User, datetime],
    rows: KeyedStream[int, User | None, int],
    orders: KeyedStream[str, bytes, datetime],
    numbers: Stream[NoKeyType, int, int],
) -> None:
    keyed = orders.join_broadcast("keyed", users, lambda order, rows: (order, rows.get(1)))
    assert_type(keyed, KeyedStream[str, tuple[bytes, User | None], datetime])
    plain = numbers.join_broadcast("plain", rows, lambda number, rows: rows[number], on_error="skip")
    assert_type(plain, Stream[NoKeyType, User, int])


def of_databases(
    changes: Stream[NoKeyType, Change, datetime],
    events: Stream[NoKeyType, bytes, datetime],
    users: Table[int, User, int],
) -> None:
    rows = changes.flat_map("rows", rows_by_key("id"))
    assert_type(rows, Stream[NoKeyType, KeyedRow, datetime])
    table = rows.key_distribute("id", "key").to_table("users", row=lambda it: it.row)
    assert_type(table, Table[Any, Mapping[str, Any], datetime])
    assert_type(events.flat_map("events", debezium("id")), Stream[NoKeyType, KeyedRow, datetime])
    assert_type(users.changes().map("out", to_debezium), KeyedStream[int, dict[str, Any], int])


def mistakes(users: Table[int, User, datetime], orders: KeyedStream[str, bytes, datetime]) -> None:
    orders.join_table("keys", users, lambda order, user: user)  # type: ignore[arg-type]
    users.join("how", users, lambda one, other: one, how="right")  # type: ignore[call-overload]
    users.key_distribute("key", lambda msg: 1)  # type: ignore[attr-defined]
    TableChange(None, 1, NoKey)  # type: ignore[call-arg]

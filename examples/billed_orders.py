"""Bill each order at the price that was in force when it was placed: two tables of Postgres into a third, exactly once.

Needs `pip install 'malflow[postgres]'`. Start a Postgres with ``wal_level = logical``, then run

    python examples/billed_orders.py "host=localhost dbname=shop" state

Change prices, delete some, place orders, and run it again, or kill it whenever you like: each order has one bill, with
the price of its own moment, however much later the bill is written. An order without a price is billed without a total.
Orders that are there at the first run are billed at the prices of that moment.

Both tables come through one slot, in the order of commits. Their time is the position of each commit in the server's
log, which no clock can set back, so the join of an order waits for the next commit, or for the end of the run. When
the job is retired, drop its slot: ``select pg_drop_replication_slot('order_bills')``.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.postgres import Change, PostgresChanges, PostgresSink
from malflow.connectors.tables import rows_by_key
from malflow.snapshot import FsspecBackend

import psycopg

Row = dict[str, Any]

TABLES = """
create table if not exists prices (product text primary key, price int not null);
create table if not exists orders (id int primary key, product text not null, quantity int not null);
create table if not exists bills (id int primary key, product text not null, quantity int not null, total int);
"""


def is_price(change: Change) -> bool:
    return change.table == "public.prices"


def is_new_order(change: Change) -> bool:
    return change.table == "public.orders" and change.kind == "insert"


def bill(order: Row, price: Row | None) -> Row:
    """Return an order's row of the bills."""
    return {**order, "total": None if price is None else order["quantity"] * price["price"]}


def main(dsn: str, state: str) -> None:
    """Bill the orders that were placed until now."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLES)

    def build_dataflow(provider: StreamProvider) -> None:
        tables = PostgresChanges(dsn, ["prices", "orders"], slot="order_bills", until="now", require_old=False)
        commits = provider.new_stream().source("commits", tables).event_time("log", "lsn", out_of_orderness=1)

        rows = commits.filter("of prices", is_price).flat_map("rows", rows_by_key("product"))
        prices = rows.key_distribute("price of", "key").to_table("prices", row="row")

        orders = commits.filter("orders", is_new_order).map("order", lambda change: dict(change.new or {}))
        bills = orders.key_distribute("order of", "product").join_table("bill", prices, bill)
        bills.sink("bills", PostgresSink(dsn, "bills", key=["id"]))

    # An order waits for the next commit, which may never come; at the end, no other price can be before it.
    SingleThreadRuntime(build_dataflow, FsspecBackend(state), timedelta(seconds=1), at_end="finish").execute()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Turn changes of a table of orders into a table of totals by customer, exactly once.

Needs `pip install 'malflow[postgres]'`. Start a Postgres with ``wal_level = logical``, then run

    python examples/postgres_totals.py "host=localhost dbname=shop" state

Interrupt it, kill it, change the orders meanwhile, and run it again: each total still matches the orders. When the job
is retired, drop its slot: ``select pg_drop_replication_slot('order_totals')``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.postgres import Change, PostgresChanges, PostgresSink
from malflow.snapshot import FsspecBackend

import psycopg

TABLES = """
create table if not exists orders (id int primary key, customer text not null, amount int not null);
create table if not exists totals (customer text primary key, total int not null);
alter table orders replica identity full;  -- changes include the old amounts
"""


def amounts(change: Change) -> Iterator[tuple[str, int]]:
    """Yield the amounts that a change subtracts from a customer's total and adds to one."""
    if change.kind == "truncate":
        raise ValueError("delete orders, so that their amounts are known")
    if change.old is not None:
        yield change.old["customer"], -change.old["amount"]
    if change.new is not None:
        yield change.new["customer"], change.new["amount"]


def add(customer: str, amount: tuple[str, int], total: int) -> tuple[dict[str, Any], int]:
    total += amount[1]
    return {"customer": customer, "total": total}, total


def main(dsn: str, state: str) -> None:
    """Bring the totals up to date with the orders."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLES)

    def build_dataflow(provider: StreamProvider) -> None:
        changes = PostgresChanges(dsn, ["orders"], slot="order_totals", until="now")
        parts = provider.new_stream().source("orders", changes).map("amounts", lambda it: list(amounts(it)))
        customers = parts.flatten("amount").key_distribute("customer", lambda msg: msg.value[0])
        customers.stateful_map("total", add, default=int).sink("totals", PostgresSink(dsn, "totals"))

    SingleThreadRuntime(build_dataflow, FsspecBackend(state), timedelta(seconds=1)).execute()


if __name__ == "__main__":
    main(*sys.argv[1:])

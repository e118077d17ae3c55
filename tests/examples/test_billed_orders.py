"""The example on a real server, killed at the points of its snapshots, against bills that the server makes itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from examples import billed_orders
from tests.kit.killing import kill_child

EXPECTED = """
create table expected (id int primary key, product text, quantity int, total int);
create function bill_at_once() returns trigger language plpgsql as $$ begin
    insert into expected values (new.id, new.product, new.quantity,
        (select price * new.quantity from prices where product = new.product));
    return null;
end $$;
create trigger billed after insert on orders for each row execute function bill_at_once();
"""
BEFORE = "insert into prices values ('tea', 3), ('cup', 7)", "insert into orders values (1, 'tea', 2), (2, 'pot', 1)"
LATER = (
    "update prices set price = 4 where product = 'tea'",
    "insert into orders values (3, 'tea', 2), (4, 'cup', 1)",
    "update prices set price = 5 where product = 'tea'; insert into orders values (5, 'tea', 3)",
    "delete from prices where product = 'cup'",
    "insert into orders values (6, 'cup', 1), (7, 'tea', 1)",
    "insert into prices values ('cup', 8); update orders set quantity = 9 where id = 6",
    "insert into orders values (8, 'cup', 1)",
    "update prices set product = 'mug' where product = 'cup'",
    "insert into orders values (9, 'cup', 1), (10, 'mug', 2)",
)


@pytest.fixture
def dsn(postgres_dsn: str) -> Iterator[str]:
    """Make a database for the job, which is dropped with its slot."""
    name = f"shop{uuid4().hex[:12]}"
    with psycopg.connect(postgres_dsn, autocommit=True) as server:
        server.execute(f"create database {name}")
        yield make_conninfo(postgres_dsn, dbname=name)
        server.execute("select pg_drop_replication_slot('order_bills')")
        server.execute(f"drop database {name} with (force)")


def test_billed_orders(dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(billed_orders.TABLES)
        connection.execute(EXPECTED)

        def run_all(*statements: str) -> None:
            for statement in statements:
                connection.execute(statement)

        def rows(table: str) -> list[tuple[object, ...]]:
            return connection.execute(f"select * from {table} order by id").fetchall()  # noqa: S608 - its own names

        run_all(*BEFORE)
        billed_orders.main(dsn, str(tmp_path))
        assert rows("bills") == rows("expected") == [(1, "tea", 2, 6), (2, "pot", 1, None)]

        run_all(*LATER[:5])
        for point in ("before-manifest:1", "before-commit:1"):
            kill_child("examples.billed_orders", dsn, tmp_path, point=point)
            assert len(rows("bills")) == 2
        run_all(*LATER[5:])
        billed_orders.main(dsn, str(tmp_path))
        assert rows("bills") == rows("expected")
        assert [row[3] for row in rows("bills")] == [6, None, 8, 7, 15, None, 5, 8, None, 16]

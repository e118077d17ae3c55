"""The example on a real server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg

from examples import postgres_totals
from tests.servers.postgres import Postgres

STEPS = (
    ("insert into orders values (1, 'Ann', 3), (2, 'Bob', 4), (3, 'Ann', 5)", [("Ann", 8), ("Bob", 4)]),
    ("update orders set amount = 10 where id = 1; delete from orders where id = 2", [("Ann", 15), ("Bob", 0)]),
    ("update orders set customer = 'Bob', id = 9 where id = 3", [("Ann", 10), ("Bob", 5)]),
)


def test_postgres_totals(own_postgres: Callable[[], Postgres], tmp_path: Path) -> None:
    dsn = own_postgres().address
    postgres_totals.main(dsn, str(tmp_path))
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement, totals in STEPS:
            connection.execute(statement)
            postgres_totals.main(dsn, str(tmp_path))
            assert connection.execute("select * from totals order by 1").fetchall() == totals

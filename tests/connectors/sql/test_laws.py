"""The laws of sinks, kept by tables of SQL databases."""

from __future__ import annotations

from malflow.connectors.sql import SqlSink
from malflow.testing import assert_sink
from tests.connectors.sql.kit import Database


def test_laws_of_a_table_that_is_appended_to(sqlite: Database) -> None:
    sqlite.execute("create table t (n int)")
    assert_sink(
        lambda: SqlSink(sqlite.url, "t", key=()),
        lambda: [{"n": n} for (n,) in sqlite.rows()],
        make_value=lambda number: {"n": number},
    )


def test_laws_of_a_table_with_a_key(database: Database) -> None:
    database.execute("create table t (n int primary key, note varchar(20))")
    assert_sink(
        lambda: SqlSink(database.url, "t"),
        lambda: [{"n": n, "note": note} for n, note in database.rows()],
        make_value=lambda number: {"n": number, "note": str(number)},
    )

"""The laws of sources and sinks, kept by tables of Postgres."""

from __future__ import annotations

from malflow.connectors.postgres import PostgresSink, PostgresSource
from malflow.testing import assert_sink, assert_source
from tests.connectors.postgres.kit import Database


def test_laws_of_a_table_as_a_source(database: Database) -> None:
    database.execute("create table t (id int primary key, text text)")
    database.execute("insert into t select n, repeat('ä', n) from generate_series(1, 23) n")
    assert_source(lambda: PostgresSource(database.dsn, "t", page_rows=5))


def test_laws_of_a_table_as_a_sink(database: Database) -> None:
    database.execute("create table t (n int)")
    assert_sink(
        lambda: PostgresSink(database.dsn, "t", key=()),
        lambda: [{"n": n} for (n,) in database.rows("select n from t")],
        make_value=lambda number: {"n": number},
    )


def test_laws_of_a_table_with_a_key_as_a_sink(database: Database) -> None:
    database.execute("create table t (n int primary key, text text)")
    assert_sink(
        lambda: PostgresSink(database.dsn, "t", key=["n"]),
        lambda: [{"n": n, "text": text} for n, text in database.rows("select n, text from t")],
        make_value=lambda number: {"n": number, "text": str(number)},
    )

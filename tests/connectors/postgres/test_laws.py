"""The laws of sources and sinks, kept by tables of Postgres."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg
import pytest

from malflow.connectors.postgres import PostgresSink, PostgresSource
from malflow.testing import assert_sink, assert_source
from malflow.testing.refusal_laws import REFUSAL_LAWS
from malflow.testing.sink_laws import SINK_LAWS
from tests.connectors.postgres.kit import Database
from tests.kit.going_back import copied
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.slow


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


@pytest.mark.nightly
def test_laws_of_a_server_that_goes_back(own_postgres: Callable[[], Postgres]) -> None:
    server = own_postgres()
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute("create table t (n int primary key)")

    def read() -> list[dict[str, int]]:
        with psycopg.connect(server.address) as connection:
            return [{"n": n} for (n,) in connection.execute("select n from t")]

    assert_sink(
        lambda: PostgresSink(server.address, "t"),
        read,
        make_value=lambda number: {"n": number},
        copy_output=lambda: copied(server),
        without=[law for law in SINK_LAWS if law != "restored"],
    )


@pytest.mark.parametrize("key", [["n"], ()], ids=["key", "appended"])
def test_laws_of_rows_that_are_refused(database: Database, key: Sequence[str]) -> None:
    database.execute("create table t (n int primary key, text text, constraint no check (n >= 0))")
    assert_sink(
        lambda: PostgresSink(database.dsn, "t", key=key),
        lambda: [{"n": n, "text": text} for n, text in database.rows("select n, text from t")],
        make_value=lambda number: {"n": number, "text": str(number)},
        refuse=lambda number: {"n": -number, "text": "a\tb\\\n'"},
        mend=lambda: database.execute("alter table t drop constraint no"),
        without=[law for law in SINK_LAWS if law not in REFUSAL_LAWS],
    )

"""The laws of sinks, kept by tables of SQL databases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from malflow.connectors.sql import SqlSink
from malflow.testing import assert_sink
from malflow.testing.refusal_laws import REFUSAL_LAWS
from malflow.testing.sink_laws import SINK_LAWS
from tests.connectors.sql.kit import Database, made
from tests.kit.going_back import copied, copied_folder
from tests.servers.mariadb import MariaDB
from tests.servers.plugin import SERVER

pytestmark = pytest.mark.slow


def test_laws_of_a_table_that_is_appended_to(sqlite: Database) -> None:
    sqlite.execute("create table t (n int)")
    assert_sink(
        lambda: SqlSink(sqlite.url, "t", key=()),
        lambda: [{"n": n} for (n,) in sqlite.rows()],
        make_value=lambda number: {"n": number},
        copy_output=lambda: copied_folder(Path(sqlite.url.database or "")),
    )


@pytest.mark.parametrize(
    "database",
    ["sqlite", *(pytest.param(it, marks=[*SERVER, pytest.mark.nightly]) for it in ("postgres", "mariadb"))],
    indirect=True,
)
def test_laws_of_a_table_with_a_key(database: Database) -> None:
    database.execute("create table t (n int primary key, note varchar(20))")
    assert_sink(
        lambda: SqlSink(database.url, "t"),
        lambda: [{"n": n, "note": note} for n, note in database.rows()],
        make_value=lambda number: {"n": number, "note": str(number)},
    )


def test_laws_of_a_server_that_goes_back(own_mariadb: Callable[[], MariaDB]) -> None:
    server = own_mariadb()
    with made(sa.make_url(server.address), "law") as database:
        database.execute("create table t (n int primary key)")
        assert_sink(
            lambda: SqlSink(database.url, "t"),
            lambda: [{"n": n} for (n,) in database.rows()],
            make_value=lambda number: {"n": number},
            copy_output=lambda: copied(server),
            without=[law for law in SINK_LAWS if law != "restored"],
        )


def test_laws_of_rows_that_sqlite_refuses(sqlite: Database) -> None:
    sqlite.execute(
        "create table t (n int primary key)",
        "create trigger no before insert on t when new.n < 0 begin select raise(abort, 'negative'); end",
    )
    assert_sink(
        lambda: SqlSink(sqlite.url, "t"),
        lambda: [{"n": n} for (n,) in sqlite.rows()],
        make_value=lambda number: {"n": number},
        refuse=lambda number: {"n": -number},
        mend=lambda: sqlite.execute("drop trigger no"),
        without=[law for law in SINK_LAWS if law not in REFUSAL_LAWS],
    )


def test_laws_of_rows_that_mariadb_refuses(mariadb: Database) -> None:
    mariadb.execute("create table t (n int, note varchar(20), constraint no check (n >= 0))")
    assert_sink(
        lambda: SqlSink(mariadb.url, "t", key=()),
        lambda: [{"n": n, "note": note} for n, note in mariadb.rows()],
        make_value=lambda number: {"n": number, "note": str(number)},
        refuse=lambda number: {"n": -number, "note": "refused"},
        mend=lambda: mariadb.execute("alter table t drop constraint no"),
        without=[law for law in SINK_LAWS if law not in REFUSAL_LAWS],
    )

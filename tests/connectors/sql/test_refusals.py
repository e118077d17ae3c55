"""Rows whose values fit their columns by type, and that the database refuses: known before the snapshot."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import pytest

from malflow.connectors.sql import SqlError, SqlSink
from malflow.connectors.sql.described import described
from malflow.connectors.sql.doubts import Doubts
from tests.connectors.sql.kit import Database, owner, write
from tests.servers.plugin import SERVER

Make = Callable[..., Any]


@pytest.fixture
def fenced(mariadb: Database) -> Iterator[Callable[..., SqlSink]]:
    """Return what makes a table t, and a sink of it that has an owner."""
    sinks: list[SqlSink] = []

    def make(definition: str, **options: Any) -> SqlSink:
        mariadb.execute(f"create table t {definition}".replace("%", "%%"))
        sinks.append(SqlSink(mariadb.url, "t", retry_for=timedelta(seconds=5), **options))
        sinks[-1].fence(owner())
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


REFUSED: list[tuple[str, Any, Any]] = [
    ("text character set utf8mb3", "é", "\U0001f600"),
    ("varchar(9) character set latin1", "é", "\u0142"),
    ("text character set utf16", "a" * 32_000, "a" * 33_000),
    ("timestamp null", datetime(2037, 12, 31), datetime(2039, 1, 1)),
    ("timestamp null", datetime(1970, 1, 2), datetime(1969, 12, 31)),
    ("time", timedelta(hours=-838), timedelta(hours=839)),
    ("year", 1901, 1800),
    ("bit(1)", 1, 2),
    ("uuid", "123e4567-e89b-12d3-a456-426614174000", "x"),
    ("inet6", "::1", "::x"),
    ("point", None, "x"),
    ("json", "{}", "{"),
    ("enum('a') character set utf8mb4 collate utf8mb4_bin", "a", "A"),
    ("set('a', 'b')", "a,b", "a,c"),
    ("int check (v < 5)", 4, 5),
    ("tinyint, w tinyint as (v * 100) stored", 1, 2),
]


@pytest.mark.slow
def test_values_that_only_mariadb_can_refuse(mariadb: Database) -> None:
    assert [kind for kind, *values in REFUSED if not _is_known_in_time(mariadb, kind, *values)] == []


def _is_known_in_time(database: Database, kind: str, good: Any, bad: Any) -> bool:
    """Whether a bad value is refused before the snapshot, and good ones are written before and after it."""
    database.execute("drop table if exists t, malflow_ledger", f"create table t (id int primary key, v {kind})")
    sink: Any
    with closing(SqlSink(database.url, "t")) as sink:
        sink.fence(owner())
        write(sink, {"id": 1, "v": good}, {"id": 2, "v": None})
        sink.commit([sink.prepare(1)])
        write(sink, {"id": 3, "v": good}, {"id": 4, "v": bad})
        with pytest.raises(SqlError, match=r"rejects the row .*'id': 4"):
            sink.prepare(2)
        write(sink, {"id": 3, "v": good})
        sink.commit([sink.prepare(2)])
    return database.rows("select id from t order by id") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("zone", ["utc", "fixed", "changing"])
def test_timestamps_are_doubtful_where_a_zone_leaves_times_out(zone: Any, mariadb: Database) -> None:
    mariadb.execute("create table t (id int primary key, v timestamp null)")
    with mariadb.engine.connect() as connection:
        table = described(connection, "t", "test", "here", needs_undo=True)
    assert table.zone == "utc", "the test's server is in UTC"
    doubts = Doubts(dataclasses.replace(table, zone=zone), "mariadb")
    assert doubts.are_in([("upsert", ("id", "v"), [(1, datetime(2024, 3, 31, 2, 30))])]) is (zone == "changing")


def test_key_to_delete_that_the_column_cannot_have(fenced: Callable[..., SqlSink]) -> None:
    sink = fenced("(id varchar(9) character set latin1 primary key, v int)")
    write(sink, {"id": "\u0142", "v": 1})
    with pytest.raises(SqlError, match="Incorrect string value"):
        sink.prepare(1)


def test_row_that_no_partition_takes(fenced: Callable[..., SqlSink]) -> None:
    sink = fenced("(id int primary key) partition by range (id) (partition p values less than (10))")
    write(sink, {"id": 9}, {"id": 10})
    with pytest.raises(SqlError, match=r"rejects the row \{'id': 10\}.*partition"):
        sink.prepare(1)


def test_row_that_a_trigger_refuses(mariadb: Database) -> None:
    mariadb.execute("create table t (id int primary key)")
    mariadb.execute(
        "create trigger odd before insert on t for each row "
        "if new.id % 2 = 1 then signal sqlstate '45000' set message_text = 'odd'; end if".replace("%", "%%")
    )
    with closing(SqlSink(mariadb.url, "t")) as sink:
        sink.fence(owner())
        write(sink, {"id": 2}, {"id": 3})
        with pytest.raises(SqlError, match=r"rejects the row \{'id': 3\}.*odd"):
            sink.prepare(1)


def test_row_that_a_trigger_of_sqlite_refuses(sqlite: Database) -> None:
    sqlite.execute("create table t (id int primary key)")
    sqlite.execute("create trigger odd before insert on t when new.id = 3 begin select raise(abort, 'odd'); end")
    with closing(SqlSink(sqlite.url, "t")) as sink:
        sink.fence(owner())
        write(sink, {"id": 2}, {"id": 3})
        with pytest.raises(SqlError, match=r"rejects the row \{'id': 3\}.*odd"):
            sink.prepare(1)


@pytest.mark.parametrize("value", [2**70, float, "\ud800"])
def test_values_of_a_column_of_sqlite_without_a_type(sqlite: Database, value: Any) -> None:
    sqlite.execute("create table t (id int primary key, v)")
    with closing(SqlSink(sqlite.url, "t")) as sink:
        sink.fence(owner())
        write(sink, {"id": 2, "v": value})
        with pytest.raises(SqlError, match=r"'id': 2"):
            sink.prepare(1)


def test_column_without_a_default_is_known_by_the_first_row(database: Database, sinks: Make) -> None:
    database.execute("create table t (id int primary key, v int not null)")
    sink = sinks(columns=["id"])
    sink.fence(owner())
    write(sink, (1,))
    with pytest.raises(SqlError, match=r"rejects the row \{'id': 1\}"):
        sink.prepare(1)


def test_row_that_refers_to_a_later_one_is_checked_all_the_same(mariadb: Database) -> None:
    mariadb.execute("create table u (id int primary key)")
    mariadb.execute("create table t (id int primary key, u int references u (id), v text character set utf8mb3)")
    with closing(SqlSink(mariadb.url, "t")) as sink:
        sink.fence(owner())
        write(sink, {"id": 1, "u": 7, "v": "\U0001f600"})
        with pytest.raises(SqlError, match="Incorrect string value"):
            sink.prepare(1)
        write(sink, {"id": 1, "u": 7, "v": "é"})
        handle = sink.prepare(1)
        mariadb.execute("insert into u values (7)")
        sink.commit([handle])
    assert mariadb.rows() == [(1, 7, "é")]


@pytest.mark.parametrize("key", ["id", "100%"])
def test_column_with_a_per_cent_sign(key: str, fenced: Callable[..., SqlSink], mariadb: Database) -> None:
    sink = fenced(f"(id int, `100%` int, primary key (`{key}`))")
    for transaction in (1, 2):
        write(sink, {"id": 1, "100%": 5}, {"id": 2, "100%": 6 + transaction})
        sink.commit([sink.prepare(transaction)])
    assert mariadb.rows("select id from t order by `100%%` desc limit 1") == [(2,)]


@pytest.mark.parametrize("engine", ["myisam", "aria", "memory"])
def test_ledger_without_transactions_is_refused(engine: str, mariadb: Database) -> None:
    mariadb.execute("create table t (id int primary key)")
    mariadb.execute(
        "create table malflow_ledger (id varchar(64) primary key, job varchar(99) not null, sink varchar(99) not null, "
        f"epoch bigint not null, claim bigint not null, committed_at timestamp not null) engine = {engine}"
    )
    with closing(SqlSink(mariadb.url, "t")) as sink, pytest.raises(SqlError, match=r"malflow_ledger .*no transactions"):
        sink.fence(owner())


def test_view_of_a_table_without_transactions_is_refused(mariadb: Database) -> None:
    mariadb.execute("create table base (id int) engine = myisam", "create view t as select id from base")
    with pytest.raises(SqlError, match="MyISAM, which has no transactions"):
        SqlSink(mariadb.url, "t", key=()).fence(owner())


LENIENT = {"connect_args": {"init_command": "set sql_mode = 'EMPTY_STRING_IS_NULL,NO_BACKSLASH_ESCAPES'"}}


def test_lenient_session_keeps_values(mariadb: Database, fenced: Callable[..., SqlSink]) -> None:
    sink = fenced("(id int auto_increment primary key, v text, b blob)", settings=LENIENT)
    write(sink, (0, "", b"\\'\0"), (1, "\\'\n", b""))
    sink.commit([sink.prepare(1)])
    assert mariadb.rows() == [(0, "", b"\\'\0"), (1, "\\'\n", b"")]


def test_text_is_whole_though_settings_name_another_character_set(
    mariadb: Database, fenced: Callable[..., SqlSink]
) -> None:
    narrow = {"connect_args": {"init_command": "set names latin1"}}
    sink = fenced("(id int primary key, v text character set utf8mb4)", settings=narrow)
    write(sink, (1, "\u0142\U0001f600"))
    sink.commit([sink.prepare(1)])
    assert mariadb.rows("select hex(v) from t") == [("C582F09F9880",)]


@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("mariadb", marks=SERVER)])
def test_only_doubtful_rows_are_tried_out(dialect: str, request: pytest.FixtureRequest) -> None:
    """A table whose types tell costs one row of each statement, whatever the number of rows."""
    database: Database = request.getfixturevalue(dialect)
    database.execute("create table t (id int primary key, v varchar(20))", "create table seen (n int)")
    with closing(SqlSink(database.url, "t")) as sink:
        sink.fence(owner())
        tried: list[int] = []
        write_all = sink._write_and_undo
        sink._write_and_undo = lambda handles, **options: (  # type: ignore[method-assign] # counts, and goes on
            tried.append(sum(len(batch[2]) for _, _, batches in handles for batch in batches)),
            write_all(handles, **options),
        )[1]
        for transaction in (1, 2, 3):
            write(sink, *((number, "plain") for number in range(transaction * 10)))
            sink.commit([sink.prepare(transaction)])
    assert tried == [1]

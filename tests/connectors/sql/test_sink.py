"""Rows in tables of SQL databases."""

from __future__ import annotations

import pickle
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.postgres import UNCHANGED, Change
from malflow.connectors.sql import SqlError, SqlSink
from malflow.connectors.sql.described import described
from malflow.connectors.sql.writing import TableWriter
from malflow.connectors.tables.transaction_rows import RowBatch
from malflow.errors import FencedError, GraphError, MissingDependency, OperatorError
from malflow.sinks import SinkOwner
from malflow.sources import JsonLinesSource
from tests.connectors.sql.kit import Database, made, owner, write
from tests.kit.backends import at_once
from tests.kit.nights import NIGHTLY
from tests.servers.mariadb import MariaDB
from tests.servers.plugin import SERVER

TABLE = "create table t (id int primary key, a int, note varchar(5) not null)"
Make = Callable[..., Any]


def change(kind: Any, old: Any, new: Any) -> Change:
    return Change(kind, "public.t", old, new, 1, datetime(2024, 1, 1, tzinfo=UTC))


@dataclass
class Total:
    id: int
    a: int
    note: str


def test_transactions_and_what_other_runs_do(database: Database, sinks: Make) -> None:
    database.execute(TABLE)
    first, second = sinks(), sinks()
    assert first.fence(owner(1)) == 0
    write(first, {"id": 1, "a": 1, "note": "x"}, Total(2, 2, "y"), [1, 3, "z"])
    handles = [first.prepare(1)]
    assert database.rows() == []
    write(first, (2, None, "w"))
    handles.append(first.prepare(2))
    assert first.prepare(3) is None
    first.commit(handles[:1])
    assert database.rows() == [(1, 3, "z"), (2, 2, "y")]
    assert second.fence(owner(2)) == 1
    second.commit(pickle.loads(pickle.dumps(handles)))
    assert database.rows() == [(1, 3, "z"), (2, None, "w")]
    with pytest.raises(FencedError, match="taken over by run 2"):
        first.commit(handles[1:])
    with pytest.raises(FencedError):
        first.fence(owner(1))
    other = sinks()
    assert other.fence(SinkOwner("Job", "totals", 1)) == 0, "names differ by their case"
    assert sinks().fence(owner(3)) == 2


def test_changes_are_applied(database: Database, sinks: Make) -> None:
    database.execute(TABLE, "insert into t values (1, 1, 'old'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'old')")
    sink = sinks()
    sink.fence(owner())
    write(
        sink,
        change("update", None, {"id": 1, "a": 10, "note": UNCHANGED}),
        change("delete", {"id": 2}, None),
        change("update", {"id": 3}, {"id": 30, "a": 3, "note": "c"}),
        change("update", {"id": 4}, {"id": 40, "a": 5, "note": UNCHANGED}),
    )
    sink.commit([sink.prepare(1)])
    assert database.rows() == [(1, 10, "old"), (30, 3, "c"), (40, 5, "old")]
    write(sink, change("truncate", None, None), (7, 7, ""), None, keys=[None, None, 40])
    sink.commit([sink.prepare(2)])
    assert database.rows() == [(7, 7, "")]
    write(sink, change("update", None, {"id": 8, "a": 8, "note": UNCHANGED}))
    with pytest.raises(SqlError, match="1 rows to be updated are missing"):
        sink.commit([sink.prepare(3)])


def test_columns_with_hostile_names_and_keys_alone(database: Database, sinks: Make) -> None:
    quote = "`" if database.dialect == "mariadb" else '"'
    columns = ", ".join(f"{quote}{name}{quote} int" for name in ("a b", "select", "%(x)s", "c0"))
    database.execute(f"create table t ({columns}, primary key (c0, {quote}a b{quote}))".replace("%", "%%"))
    sink = sinks(delivery="at-least-once", key=["c0", "a b"])
    write(sink, (1, 2, 3, 4), (1, 5, 6, 4), (7, 8, 9, 4))
    sink.flush()
    alone = sinks(delivery="at-least-once", key=["c0", "a b"], columns=["a b", "c0"])
    write(alone, (1, 4), None, keys=[None, (4, 7)])
    alone.flush()
    assert database.rows() == [(1, 5, 6, 4)]


def test_rows_by_an_update_and_an_insert(database: Database) -> None:
    database.execute(TABLE, "insert into t values (1, 1, 'a')")
    with database.engine.begin() as connection:
        table = described(connection, "t", "test", "here", needs_undo=True)
        writer = TableWriter(table, ("id",), database.dialect, portable=True)
        upsert = RowBatch("upsert", ("a", "note", "id"), [(5, "b", 1), (6, "c", 2)])
        writer.write(connection, upsert, strict=True)
        writer.write(connection, upsert, strict=True)
        writer.write(connection, RowBatch("upsert", ("id",), [(1,)]), strict=True)
    assert database.rows() == [(1, 5, "b"), (2, 6, "c")]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("one", 1, ""), r"column 'id': 'one' is str, not an integer; the row is \{'a': 1, 'id': 'one', 'note': ''\}"),
        ((1, 1.5, ""), "column 'a': 1.5 is float"),
        ((1, 2**63, ""), "out of the column's range"),
        ((1, 1, None), "is NULL"),
        ((1, 1, b"x"), "is bytes, not text"),
        ((1, 1, "\ud800"), "surrogate"),
        ((None, 1, ""), "key has NULL"),
        ((1, 1), "2 values for 3 columns"),
        ({"id": 1, "a": 1, "note": "", "x": 1}, r"\['x'\] are not columns"),
    ],
)
def test_rows_that_are_refused_before_the_snapshot(sqlite: Database, row: Any, words: str) -> None:
    sqlite.execute(TABLE)
    sink: Any = SqlSink(sqlite.url, "t")
    sink.fence(owner())
    with pytest.raises(SqlError, match=words):
        write_and_prepare(sink, (5, 5, "fine"), row)
    sink.close()


def write_and_prepare(sink: SqlSink, *values: Any) -> None:
    write(sink, *values)
    sink.prepare(1)


def test_text_that_is_too_long_or_out_of_the_character_set(database: Database, sinks: Make) -> None:
    database.execute(TABLE)
    sink = sinks()
    sink.fence(owner())
    if database.dialect != "sqlite":
        with pytest.raises(SqlError, match="has 6 characters; the column takes 5"):
            write_and_prepare(sink, (1, 1, "123456"))
    if database.dialect == "postgresql":
        with pytest.raises(SqlError, match="NUL"):
            write_and_prepare(sink, (1, 1, "\0"))


def test_numbers_that_are_too_large(database: Database, sinks: Make) -> None:
    database.execute("create table t (id int primary key, n numeric(4, 1), b boolean)")
    sink = sinks()
    sink.fence(owner())
    write(sink, (1, Decimal("-999.9"), True))
    sink.commit([sink.prepare(1)])
    assert database.rows("select id from t") == [(1,)]
    if database.dialect != "sqlite":
        with pytest.raises(SqlError, match="below 1000"):
            write_and_prepare(sink, (2, 1000, True))
    if database.dialect == "postgresql":
        with pytest.raises(SqlError, match="not a boolean"):
            write_and_prepare(sink, (2, 1, 1))


@pytest.mark.parametrize("value", [float("nan"), Decimal("NaN"), Decimal("12345678901234567.89"), 2**53 + 1, 10**400])
def test_numbers_that_sqlite_does_not_keep(sqlite: Database, value: Any) -> None:
    sqlite.execute("create table t (id integer primary key, n numeric(20, 2))")
    with closing(SqlSink(sqlite.url, "t")) as sink:
        sink.fence(owner())
        write_and_prepare(sink, (1, Decimal("1234567.89")), (2, 2**53), (3, 2**60))
        with pytest.raises(SqlError, match=r"column 'n'.*SQLite"):
            write_and_prepare(sink, (1, value))


LIMITS: dict[str, tuple[Any, Any]] = {
    "a": (-128, 128),
    "b": (2**24 - 1, 2**24),
    "c": ("ü" * 255, "ü" * 256),
    "d": (b"x" * 255, b"x" * 256),
    "e": (b"xx", b"xxx"),
    "f": ("A", "c"),
    "g": ("a,b", 7),
}


def test_limits_of_the_types_of_mariadb(mariadb: Database) -> None:
    mariadb.execute(
        "create table t (id int primary key, a tinyint, b mediumint unsigned, c tinytext character set latin1, "
        "d tinyblob, e varbinary(2), "
        "f enum('a', 'b'), g set('a', 'b'), y year)"
    )
    lenient = {"connect_args": {"init_command": "set sql_mode = ''"}}
    with closing(SqlSink(mariadb.url, "t", columns=["id", "y"], delivery="at-least-once", settings=lenient)) as sink:
        write(sink, (1, 1800))
        with pytest.raises(SqlError, match="Out of range value for column 'y'"):
            sink.flush()
    with closing(SqlSink(mariadb.url, "t", columns=["id", *LIMITS])) as sink:
        sink.fence(owner())
        good = {name: values[0] for name, values in LIMITS.items()}
        write(sink, {"id": 1, **good})
        handle: Any = sink.prepare(1)
        sink.commit([handle])
        assert len(mariadb.rows()) == 1
        for name, (_, bad) in LIMITS.items():
            with pytest.raises(SqlError, match=f"column '{name}'"):
                write_and_prepare(sink, {"id": 2, **good, name: bad})


def test_runs_that_make_the_ledger_at_once(database: Database, sinks: Make) -> None:
    database.execute(TABLE)
    for _ in range(20 if NIGHTLY else 2):
        database.execute("drop table if exists malflow_ledger")
        runs = [sinks() for _ in range(3)]
        barrier = threading.Barrier(len(runs))
        lost: list[int] = []

        def run(claim: int, sink: Any, barrier: Any = barrier, lost: list[int] = lost) -> None:
            barrier.wait()
            try:
                assert sink.fence(owner(claim)) == 0
            except FencedError:
                lost.append(claim)

        threads = [threading.Thread(target=run, args=(claim, sink)) for claim, sink in enumerate(runs, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert database.rows("select claim from malflow_ledger") == [(3,)]
        assert 3 not in lost


def test_ledger_that_was_made_before_the_run(database: Database, sinks: Make) -> None:
    """The table and the key of a row must stay as they are: ledgers of older versions have them."""
    database.execute(TABLE)
    database.execute(
        "create table malflow_ledger (id varchar(64) primary key, job text not null, sink text not null, "
        "epoch bigint not null, claim bigint not null, committed_at timestamp not null)"
    )
    database.execute(
        "insert into malflow_ledger values ("
        "'71917f99409179fda21f88f9ecc20a07e70b5e756c6c22feec9a1fd6e54d0dec', 'job', 'totals', 3, 5, current_timestamp)"
    )
    with pytest.raises(FencedError, match="taken over by run 5; this is run 4"):
        sinks().fence(owner(4))
    sink = sinks()
    assert sink.fence(owner(6)) == 3
    write(sink, (1, 1, "x"))
    sink.commit([sink.prepare(3)])
    assert database.rows() == [], "transaction 3 is not written twice"
    write(sink, (1, 1, "x"))
    sink.commit([sink.prepare(4)])
    assert database.rows("select job, sink, epoch, claim from malflow_ledger") == [("job", "totals", 4, 6)]


def test_two_writers_in_opposite_orders(database: Database, sinks: Make) -> None:
    database.execute(TABLE)
    numbers = list(range(200))

    def run(number: int) -> None:
        sink = sinks(delivery="at-least-once")
        for attempt in range(5):
            write(sink, *[(it, attempt, "x") for it in (numbers if number else reversed(numbers))])
            sink.flush()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert database.rows() == [(number, 4, "x") for number in numbers]


def test_row_that_violates_a_constraint(database: Database, sinks: Make) -> None:
    database.execute("create table t (id int primary key, a int, check (a < 10))")
    sink = sinks()
    sink.fence(owner())
    write(sink, (1, 1), (2, 77), (3, 3))
    with pytest.raises(SqlError, match=r"rejects the row \{'a': 77, 'id': 2\}"):
        sink.prepare(1)
    assert database.rows() == []


def test_values_of_many_types(database: Database, sinks: Make) -> None:
    kinds = {"mariadb": ("blob", "datetime(6)", "double"), "postgresql": ("bytea", "timestamp", "double precision")}
    blob, moment, double = kinds.get(database.dialect, ("blob", "datetime", "double"))
    database.execute(
        f"create table t (id int primary key, b boolean, n numeric(10, 2), f {double}, y {blob}, d date, m {moment}, "
        "j json, s text)"
    )
    now = datetime(2024, 2, 29, 23, 59, 59, 999999)
    document = '{"a": [1, null]}' if database.dialect == "mariadb" else {"a": [1, None]}  # its JSON is text
    full = (1, True, Decimal("12.25"), 0.5, b"\0\xff", date(1999, 12, 31), now, document, "ü € ' \\ %s :x")
    sink = sinks()
    sink.fence(owner())
    write(sink, full, (2, *[None] * 8))
    sink.commit([sink.prepare(1)])
    with database.engine.connect() as connection:
        table = described(connection, "t", "test", "here", needs_undo=True).table
        found = [tuple(row) for row in connection.execute(table.select().order_by(table.c.id))]
    assert found[0] == full
    assert database.rows("select count(*) from t where id = 2 and j is null and n is null") == [(1,)]
    with pytest.raises(SqlError, match="column 'j'"):
        write_and_prepare(sink, (3, None, None, None, None, None, None, {1}, None))


def test_values_of_numpy_and_pandas(database: Database, sinks: Make) -> None:
    kinds = {"mariadb": ("datetime(6)", "double"), "postgresql": ("timestamp", "double precision")}
    moment, double = kinds.get(database.dialect, ("datetime", "double"))
    database.execute(
        f"create table t (id bigint primary key, n bigint, w numeric(10, 2), b boolean, f {double}, m {moment}, s text)"
    )
    at = pd.Timestamp("2024-02-29T23:59:59.123456")
    first = (np.int64(1), np.int8(-5), np.int32(7), np.True_, np.float32(0.5), at, np.str_("x"))
    sink = sinks()
    sink.fence(owner())
    write(sink, first, (2, np.uint16(3), np.float64(0.25), np.False_, np.int64(4), at, ""))
    sink.commit([sink.prepare(1)])
    write(sink, None, (3, *[None] * 6), keys=[np.int64(2), None])
    sink.commit([sink.prepare(2)])
    with database.engine.connect() as connection:
        table = described(connection, "t", "test", "here", needs_undo=True).table
        found = [tuple(row) for row in connection.execute(table.select().order_by(table.c.id))]
    assert found == [(1, -5, 7, True, 0.5, at.to_pydatetime(), "x"), (3, *[None] * 6)]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("m", pd.NaT, "NaT is not a value; write None"),
        ("m", pd.Timestamp("2024-01-01T00:00:00.000000001"), "has nanoseconds"),
        ("m", np.datetime64("2024-01-01"), "is datetime64, not a datetime"),
        ("i", Fraction(1, 2), "is Fraction, not an integer"),
        ("w", pd.NA, "is not a value; write None"),
    ],
)
def test_values_that_no_driver_takes(database: Database, sinks: Make, column: str, value: object, words: str) -> None:
    moment = "timestamp" if database.dialect == "postgresql" else "datetime"
    database.execute(f"create table t (id int primary key, i int, w numeric(10, 2), m {moment})")
    sink = sinks(columns=["id", column])
    sink.fence(owner())
    with pytest.raises(SqlError, match=words):
        write_and_prepare(sink, (1, value))


def test_fractions_get_into_a_snapshot_only_where_the_driver_takes_them(database: Database, sinks: Make) -> None:
    database.execute("create table t (id int primary key, f double precision)")
    sink = sinks()
    sink.fence(owner())
    write(sink, (1, Fraction(1, 2)))
    if database.dialect == "sqlite":
        sink.commit([sink.prepare(1)])
        assert database.rows() == [(1, 0.5)]
        return
    with pytest.raises(SqlError, match=r"column 'f': Fraction\(1, 2\) is Fraction, which the driver does not accept"):
        sink.prepare(1)


def test_second_unique_index_of_a_mariadb_table(mariadb: Database) -> None:
    mariadb.execute("create table t (id int primary key, mail varchar(20) unique)", "insert into t values (1, 'a')")
    sink: Any = SqlSink(mariadb.url, "t")
    sink.fence(owner())
    write(sink, (2, "a"))
    with pytest.raises(SqlError, match=r"rejects the row \{'id': 2.*Duplicate entry"):
        sink.commit([sink.prepare(1)])
    write(sink, (1, "b"), (3, "c"))
    sink.commit([sink.prepare(2)])
    sink.close()
    assert mariadb.rows() == [(1, "b"), (3, "c")]


@pytest.mark.parametrize(
    ("statement", "options", "words"),
    [
        ("create table t (a int)", {}, "no primary key"),
        ("create table t (a int)", {"key": ["a"]}, "no unique index"),
        ("create table t (a int); create unique index i on t (a) where a > 1", {"key": ["a"]}, "no unique index"),
        ("create table t (a int primary key)", {"columns": ["b"]}, "no column b"),
        ("create table t (a int primary key, b int)", {"columns": ["b"]}, "must contain the key"),
        ("create table u (a int)", {}, "table 't' does not exist in sqlite:///.*; "),
    ],
)
def test_tables_that_do_not_fit(sqlite: Database, statement: str, options: Any, words: str) -> None:
    sqlite.execute(*statement.split(";"))
    sink: Any = SqlSink(sqlite.url, "t", **options)
    with pytest.raises(SqlError, match=words):
        sink.fence(owner())
    sink.close()


def test_table_whose_engine_has_no_transactions(mariadb: Database) -> None:
    mariadb.execute("create table t (n int) engine = myisam")
    with pytest.raises(SqlError, match="MyISAM, which has no transactions"):
        SqlSink(mariadb.url, "t", key=()).fence(owner())
    sink: Any = SqlSink(mariadb.url, "t", key=(), delivery="at-least-once")
    write(sink, (1,))
    sink.flush()
    sink.close()
    assert mariadb.rows() == [(1,)]


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("sqlite://", {"key": "id"}, r"\['id'\]"),
        ("sqlite://", {"delivery": "twice"}, "delivery"),
        ("sqlite://", {"settings": {"isolation_level": "AUTOCOMMIT"}}, "transactions"),
        ("sqlite://", {"settings": {"hide_parameters": False}}, "hide_parameters"),
        ("sqlite://", {"settings": {"pol_size": 1}}, "pol_size"),
        ("sqlite://", {"retry_for": -timedelta(1)}, "retry_for must be a time of zero or more"),
        ("nothing", {}, "can't parse"),
        ("fox://h/d", {}, "no dialect 'fox'"),
        ("mysql+aiomysql://h/d", {}, "asyncio"),
    ],
)
def test_arguments_that_make_no_sense(url: str, options: Any, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        SqlSink(url, "t", **options)


def test_driver_that_is_not_installed() -> None:
    with pytest.raises(MissingDependency, match="pip install oracledb, or name another one in the URL: oracle"):
        SqlSink("oracle+oracledb://h/d", "t")


def test_driver_that_commits_by_itself(database: Database, sinks: Make) -> None:
    database.execute(TABLE)
    options = {"isolation_level": None} if database.dialect == "sqlite" else {"autocommit": True}
    with pytest.raises(SqlError, match="remove autocommit"):
        sinks(settings={"connect_args": options}).fence(owner())


def test_database_that_is_locked_for_a_while(sqlite: Database) -> None:
    sqlite.execute(TABLE)
    sink: Any = SqlSink(sqlite.url, "t", settings={"connect_args": {"timeout": 0.01}})
    sink.fence(owner())
    write(sink, (1, 1, "x"))
    handle = sink.prepare(1)
    locker = sqlite3.connect(str(sqlite.url.database), check_same_thread=False)
    locker.execute("begin immediate")
    thread = threading.Timer(0.2, locker.rollback)
    thread.start()
    sink.commit([handle])
    thread.join()
    locker.close()
    sink.close()
    assert sqlite.rows() == [(1, 1, "x")]


def test_commit_waits_for_another_runs_transaction(database: Database, sinks: Make) -> None:
    database.execute(TABLE)
    zombie, heir = sinks(), sinks()
    zombie.fence(owner(1))
    write(zombie, (1, 1, "old"))
    handle = zombie.prepare(1)
    with database.engine.begin() as connection:  # the heir's, while it takes over
        connection.exec_driver_sql("update malflow_ledger set claim = 2")
        errors: list[str] = []
        thread = threading.Thread(target=lambda: errors.append(refused(zombie, handle)))
        thread.start()
        time.sleep(0.2)
        assert thread.is_alive(), "it waits for the row of the ledger"
    thread.join(30)
    assert "taken over by run 2" in errors[0]
    assert heir.fence(owner(2)) == 0
    assert database.rows() == []


def refused(sink: SqlSink, handle: Any) -> str:
    with pytest.raises(FencedError) as caught:
        sink.commit([handle])
    return str(caught.value)


def test_server_killed_between_prepare_and_commit(own_mariadb: Callable[[], MariaDB]) -> None:
    server = own_mariadb()
    with made(sa.make_url(server.address), "kept") as database:
        database.execute("create table t (id int primary key)")
        sink: Any = SqlSink(database.url, "t")
        sink.fence(owner())
        for transaction in (1, 2):
            write(sink, (transaction,))
            handle = sink.prepare(transaction)
            server.kill()
            thread = threading.Timer(0.3, server.start)
            thread.start()
            sink.commit([handle])
            thread.join()
        sink.close()
        assert database.rows() == [(1,), (2,)]


def append_rows(path: Path, *numbers: int) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f'{{"id": {number}}}\n' for number in numbers)


def test_database_restored_from_a_backup(sqlite: Database, tmp_path: Path) -> None:
    sqlite.execute("create table t (id int primary key)")
    source, file, backup = tmp_path / "in.jsonl", Path(str(sqlite.url.database)), tmp_path / "backup.db"

    def run(**options: Any) -> None:
        def build(provider: StreamProvider) -> None:
            provider.new_stream().source("rows", JsonLinesSource(source)).sink("t", SqlSink(sqlite.url, "t", **options))

        SingleThreadRuntime(build, at_once(tmp_path / "state", job="job")).execute()

    append_rows(source, 1)
    run()
    shutil.copy(file, backup)
    append_rows(source, 2)
    run()
    shutil.copy(backup, file)
    append_rows(source, 3)
    lost = r"at transaction 1, and transaction 2 was committed: .* pass on_data_loss='continue'"
    with pytest.raises(OperatorError, match=lost):
        run()
    assert sqlite.rows() == [(1,)]
    run(on_data_loss="continue")
    assert sqlite.rows() == [(1,), (3,)]
    run()


@pytest.mark.parametrize(
    ("dialect", "kind", "one", "other"),
    [
        ("sqlite", "text collate nocase", "A", "a"),
        ("sqlite", "numeric", 1, 1.0),
        pytest.param("mariadb", "varchar(5)", "A", "a", marks=SERVER),
        pytest.param("mariadb", "varchar(5)", "é", "E ", marks=SERVER),
        pytest.param("postgres", "char(5)", "a", "a  ", marks=SERVER),
    ],
)
@pytest.mark.parametrize("unique", [False, True])
def test_keys_that_only_the_database_takes_for_equal(
    dialect: str, kind: str, one: Any, other: Any, unique: bool, request: pytest.FixtureRequest
) -> None:
    database: Database = request.getfixturevalue(dialect)
    database.execute(f"create table t (id {kind} primary key, a int not null{' unique' if unique else ''})")
    with closing(SqlSink(database.url, "t")) as sink:
        sink.fence(owner())
        cases: list[tuple[list[tuple[Any, int | None]], list[int]]] = [
            ([(one, 1), (other, 2)], [2]),
            ([(one, 3), (other, None)], []),
            ([(one, 4), (other, None), (one, 5)], [5]),
            ([(one, None), (other, 7), (one, 8), (other, 9)], [9]),
            ([(other, 10), (one, None)], []),
        ]
        for transaction, (events, expected) in enumerate(cases, 1):
            values = [None if a is None else {"id": key, "a": a} for key, a in events]
            write(sink, *values, keys=[key for key, _ in events])
            handle = sink.prepare(transaction)
            assert handle is not None
            sink.commit([handle])
            assert [a for (a,) in database.rows("select a from t")] == expected, events
        write(sink, {"id": one, "a": None})
        with pytest.raises(SqlError, match="column 'a': None is NULL"):
            sink.prepare(7)


@pytest.mark.parametrize(
    ("kind", "key", "reason"),
    [
        ("decimal(5, 1)", Decimal("1.01"), "has more than 1 decimals"),
        ("datetime(3)", datetime(2024, 1, 1, 0, 0, 0, 1), "has more than 3 decimals of a second"),
    ],
)
def test_keys_that_the_database_would_round(kind: str, key: Any, reason: str, mariadb: Database) -> None:
    mariadb.execute(f"create table t (id {kind} primary key, a int)")
    with closing(SqlSink(mariadb.url, "t")) as sink:
        sink.fence(owner())
        for value in ({"id": key, "a": 1}, None):
            write(sink, value, keys=[key])
            with pytest.raises(SqlError, match=f"column 'id': .* {reason}"):
                sink.prepare(1)


def test_rows_that_the_table_refuses_do_not_get_into_a_snapshot(database: Database, sinks: Make) -> None:
    database.execute("create table t (id int primary key, a int unique, check (a < 100))")
    sink = sinks()
    sink.fence(owner())
    write(sink, {"id": 1, "a": 1}, {"id": 2, "a": 2})
    sink.commit([sink.prepare(1)])
    write(sink, {"id": 1, "a": 2}, {"id": 2, "a": 1})
    with pytest.raises(SqlError, match=r"rejects the row .*'id': 1\}: "):
        sink.prepare(2)
    write(sink, {"id": 3, "a": 100})
    with pytest.raises(SqlError, match=r"rejects the row .*'id': 3\}: "):
        sink.prepare(2)
    write(sink, {"id": 3, "a": 3})
    first = sink.prepare(2)
    write(sink, {"id": 3, "a": 5}, {"id": 4, "a": 3})
    second = sink.prepare(3)
    sink.commit([first, second])
    assert database.rows() == [(1, 1), (2, 2), (3, 5), (4, 3)]


def test_rows_that_are_too_large_for_the_server(own_mariadb: Callable[[], MariaDB]) -> None:
    sink: Any
    with made(sa.make_url(own_mariadb().address), "large") as database:
        database.execute("create table t (id int primary key, a longtext)", "set global max_allowed_packet = 65536")
        with closing(SqlSink(database.url, "t")) as sink:
            sink.fence(owner())
            write(sink, *({"id": number, "a": "x" * 1000} for number in range(200)))
            sink.commit([sink.prepare(1)])  # together they are larger than a statement
            for text in ("y" * 70_000, "'" * 40_000, "ä" * 40_000):
                write(sink, {"id": 201, "a": text})
                with pytest.raises(SqlError, match=r"bytes, and the server takes .* at most 65,536; .*'id': 201"):
                    sink.prepare(2)
            write(sink, {"id": 201, "a": "'" * 28_000})
            sink.commit([sink.prepare(2)])
        assert database.rows("select count(*) from t") == [(201,)]


def test_query_that_is_killed_amid_a_commit_is_tried_again(mariadb: Database) -> None:
    lock = mariadb.url.database
    mariadb.execute(TABLE)
    with closing(SqlSink(mariadb.url, "t")) as sink, mariadb.engine.connect() as holder:
        sink.fence(owner())
        write(sink, {"id": 1, "a": 1, "note": "x"})
        handle = sink.prepare(1)
        holder.exec_driver_sql(f"do get_lock('{lock}', 300)")
        mariadb.execute(f"create trigger slowly before insert on t for each row do get_lock('{lock}', 300)")
        commit = threading.Thread(target=sink.commit, args=([handle],))
        commit.start()
        query = "select id from information_schema.processlist where db = database() and state = 'User lock'"
        while not (found := mariadb.rows(query)):
            assert commit.is_alive()
            time.sleep(0.02)
        mariadb.execute(f"kill query {found[0][0]}")
        holder.exec_driver_sql(f"do release_lock('{lock}')")
        commit.join()
    assert mariadb.rows() == [(1, 1, "x")]

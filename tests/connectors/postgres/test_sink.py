import logging
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas
import pytest

from malflow.connectors.postgres import UNCHANGED, Change, PostgresError, PostgresSink
from malflow.errors import FencedError, GraphError
from malflow.failures import stops_if
from malflow.sinks import SinkOwner
from tests.connectors.postgres.kit import Database
from tests.kit.nights import at_night

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def owner(claim: int = 1) -> SinkOwner:
    return SinkOwner("job", "totals", claim)


def change(kind: Any, old: Any, new: Any) -> Change:
    return Change(kind, "public.t", old, new, 1, NOW)


def write(sink: PostgresSink, *values: Any, keys: Any = None) -> None:
    sink.sink_batch(keys or [None] * len(values), values, [0] * len(values))


@pytest.fixture
def sinks(database: Database) -> Iterator[Any]:
    made: list[PostgresSink] = []

    def make(**options: Any) -> PostgresSink:
        made.append(PostgresSink(database.dsn, "t", **options))
        return made[-1]

    yield make
    for sink in made:
        sink.close()


@pytest.fixture
def table(database: Database) -> Database:
    database.execute("create table t (id int primary key, a int, note text)")
    return database


def rows(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("select * from t order by 1")


def test_transaction_is_visible_by_its_commit_and_once(table: Database, sinks: Any) -> None:
    sink = sinks()
    assert sink.fence(owner()) == 0
    write(sink, {"id": 1, "a": 1, "note": "x"}, {"id": 2, "a": 2, "note": None}, {"id": 1, "a": 3, "note": "y"})
    handle = sink.prepare(1)
    assert rows(table) == []
    sink.commit([handle])
    assert rows(table) == [(1, 3, "y"), (2, 2, None)]
    table.execute("update t set a = 0")
    sink.commit([handle])
    assert rows(table) == [(1, 0, "y"), (2, 0, None)]
    assert sink.prepare(2) is None


def test_handle_is_committed_by_another_process(table: Database, sinks: Any) -> None:
    first, second = sinks(), sinks()
    first.fence(owner(1))
    write(first, {"id": 1, "a": 1, "note": "x"})
    handles = [first.prepare(1)]
    write(first, {"id": 1, "a": 2, "note": "y"})
    handles.append(first.prepare(2))
    assert second.fence(owner(2)) == 0
    second.commit(pickle.loads(pickle.dumps(handles)))
    assert rows(table) == [(1, 2, "y")]
    second.abort([])
    with pytest.raises(FencedError, match="taken over by run 2"):
        first.commit(handles[1:])
    with pytest.raises(FencedError):
        first.fence(owner(1))
    assert sinks().fence(owner(3)) == 2


def test_transaction_that_is_aborted(table: Database, sinks: Any) -> None:
    sink = sinks()
    sink.fence(owner())
    write(sink, (1, 1, "x"))
    sink.prepare(1)
    write(sink, (2, 2, "x"))
    sink.abort([])
    write(sink, (3, 3, "x"))
    sink.commit([sink.prepare(1)])
    assert rows(table) == [(3, 3, "x")]


def test_ledger_that_lacks_a_transaction(table: Database, sinks: Any) -> None:
    sink = sinks()
    sink.fence(owner())
    write(sink, (1, 1, "x"))
    sink.commit([sink.prepare(1)])
    knows_more = SinkOwner("job", "totals", 2, transaction=2)
    with pytest.raises(PostgresError, match="at transaction 1, and transaction 2 was committed"):
        sinks().fence(knows_more)
    assert table.rows("select claim from malflow_ledger") == [(1,)], "a run that is refused takes nothing over"
    table.execute("delete from malflow_ledger")
    with pytest.raises(PostgresError, match="at transaction 0, and transaction 2 was committed"):
        sinks().fence(knows_more)
    heir = sinks(on_data_loss="continue")
    assert heir.fence(knows_more) == 0
    write(heir, (3, 3, "x"))
    heir.commit([heir.prepare(3)])
    assert rows(table) == [(1, 1, "x"), (3, 3, "x")]


def test_two_sinks_of_a_job_in_one_ledger(table: Database, sinks: Any) -> None:
    one, two = sinks(), sinks()
    one.fence(owner())
    two.fence(SinkOwner("job", "other", 1))
    write(one, (1, 1, "x"))
    write(two, (2, 2, "x"))
    one.commit([one.prepare(1)])
    two.commit([two.prepare(7)])
    assert rows(table) == [(1, 1, "x"), (2, 2, "x")]
    assert table.rows("select sink, epoch, claim from malflow_ledger order by 1") == [
        ("other", 7, 1),
        ("totals", 1, 1),
    ]


def test_deletes_by_the_key_of_the_record(database: Database, sinks: Any) -> None:
    database.execute("create table t (a int, b text, primary key (a, b)); insert into t values (1, 'x'), (2, 'y')")
    sink = sinks(delivery="at-least-once")
    write(sink, None, (3, "z"), keys=[(1, "x"), None])
    sink.flush()
    assert rows(database) == [(2, "y"), (3, "z")]


def test_changes_are_applied(table: Database, sinks: Any) -> None:
    table.execute("insert into t values (1, 1, 'large'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'large')")
    sink = sinks()
    sink.fence(owner())
    write(
        sink,
        change("update", None, {"id": 1, "a": 10, "note": UNCHANGED}),
        change("update", None, {"id": 1, "a": 11, "note": UNCHANGED}),
        change("delete", {"id": 2}, None),
        change("update", {"id": 3}, {"id": 30, "a": 3, "note": "c"}),
        change("update", {"id": 4}, {"id": 40, "a": 5, "note": UNCHANGED}),
        change("insert", None, {"id": 4, "a": 0, "note": "again"}),
        change("insert", None, {"id": 5, "a": 5, "note": "e"}),
        change("update", None, {"id": 5, "a": 6, "note": UNCHANGED}),
        change("update", {"id": 5}, {"id": 50, "a": 7, "note": UNCHANGED}),
    )
    sink.commit([sink.prepare(1)])
    assert rows(table) == [(1, 11, "large"), (4, 0, "again"), (30, 3, "c"), (40, 5, "large"), (50, 7, "e")]
    write(sink, change("insert", None, {"id": 6, "a": 6, "note": ""}), change("truncate", None, None), (7, 7, ""))
    sink.commit([sink.prepare(2)])
    assert rows(table) == [(7, 7, "")]


def test_rows_that_change_places(table: Database, sinks: Any) -> None:
    table.execute("insert into t values (1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three')")
    sink = sinks()
    sink.fence(owner())
    write(sink, *(moved(*keys) for keys in ((1, 9), (2, 1), (9, 2))))
    write(sink, change("delete", {"id": 3}, None), moved(1, 3), change("insert", None, {"id": 1, "a": 0, "note": ""}))
    write(sink, change("delete", {"id": 1}, None))
    sink.commit([sink.prepare(1)])
    assert rows(table) == [(2, 0, "one"), (3, 0, "two")]


def moved(before: int, after: int) -> Change:
    return change("update", {"id": before}, {"id": after, "a": 0, "note": UNCHANGED})


def test_numbers_that_the_server_would_give_itself(database: Database, sinks: Any) -> None:
    database.execute("create table t (id int generated always as identity primary key, a int, note text)")
    sink = sinks()
    sink.fence(owner())
    write(sink, (7, 1, "x"), change("insert", None, {"id": 8, "a": 1, "note": "y"}))
    sink.commit([sink.prepare(1)])
    write(sink, change("update", None, {"id": 8, "a": 2, "note": UNCHANGED}))
    sink.commit([sink.prepare(2)])
    assert rows(database) == [(7, 1, "x"), (8, 2, "y")]


def test_unchanged_value_of_a_row_that_is_missing(table: Database, sinks: Any) -> None:
    sink = sinks()
    sink.fence(owner())
    write(sink, change("update", None, {"id": 1, "a": 10, "note": UNCHANGED}))
    with pytest.raises(PostgresError, match="1 rows to be updated are missing"):
        sink.commit([sink.prepare(1)])


def test_append_without_a_key(database: Database, sinks: Any) -> None:
    database.execute("create table t (id serial, a int, note text default 'd')")
    sink = sinks(key=(), columns=["a"])
    sink.fence(owner())
    write(sink, {"a": 1}, {"a": 1}, (2,))
    handle = sink.prepare(1)
    sink.commit([handle])
    sink.commit([handle])
    assert rows(database) == [(1, 1, "d"), (2, 1, "d"), (3, 2, "d")]
    with pytest.raises(PostgresError, match="without key"):
        write(sink, None)


@pytest.mark.parametrize("stopping", [False, True])
def test_connection_lost_between_prepare_and_commit(table: Database, sinks: Any, stopping: bool) -> None:
    sink = sinks()
    sink.fence(owner())
    sessions = "pg_stat_activity where application_name = 'malflow' and datname = current_database()"
    kill = f"select pg_terminate_backend(pid) from {sessions}"
    with stops_if(lambda: stopping):
        for transaction in (1, 2):
            write(sink, (transaction, transaction, "x"))
            handle = sink.prepare(transaction)
            table.execute(kill)
            sink.commit([handle])
            table.execute(kill)
    assert rows(table) == [(1, 1, "x"), (2, 2, "x")]


def test_times_with_a_zone_in_columns_without(database: Database, sinks: Any) -> None:
    database.execute("create table t (id int primary key, ts timestamp, d date, tz timestamptz)")
    sink, moment = (
        sinks(delivery="at-least-once", round=True),
        datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))),
    )
    write(sink, (1, moment, moment, moment), (2, moment.replace(tzinfo=None), moment.date(), None))
    sink.flush()
    utc = datetime(2023, 12, 31, 23)
    database.execute("set timezone to 'UTC'")
    assert rows(database) == [
        (1, utc, utc.date(), utc.replace(tzinfo=UTC)),
        (2, datetime(2024, 1, 1, 1), date(2024, 1, 1), None),
    ]


def test_commits_where_the_server_does_not_wait_for_its_disk(table: Database, sinks: Any) -> None:
    table.execute("create function waits() returns trigger language plpgsql as $$ begin "
                  "new.note = current_setting('synchronous_commit'); return new; end $$")  # fmt: skip
    table.execute("create trigger waits before insert on t for each row execute function waits()")
    for given, wanted in (("off", "local"), ("remote_apply", "remote_apply")):
        table.execute(f"alter database {table.connection.info.dbname} set synchronous_commit = {given}")
        sink = sinks()
        sink.fence(SinkOwner("job", given, 1))
        write(sink, (1, 1, "x"))
        sink.commit([sink.prepare(1)])
        assert rows(table) == [(1, 1, wanted)]
        table.execute("delete from t")


TYPES = """
create type mood as enum ('sad', 'ok');
create table t (id int primary key, b bool, i8 bigint, f float8, n numeric, s text, c char(3), y bytea, d date,
  ts timestamp, tz timestamptz, iv interval, u uuid, j json, jb jsonb, a int[], aa text[], m mood, "q""uo%te {}" text)
"""
HOSTILE: list[tuple[Any, ...]] = [
    (1, True, 2**63 - 1, float("nan"), Decimal(10**300), "\\N\\.\t\r\n\\\\", "ab", b"\0\\\xff", date(1, 1, 1),
     datetime(2024, 2, 29, 23, 59, 59, 999999), datetime(2024, 2, 29, tzinfo=UTC), timedelta(days=-1, microseconds=1),
     UUID(int=7), {"a": [None, "\\"]}, "text", [1, None], ["a,b", "{}", "NULL", None, '"'], "sad", "it's"),
    (2, False, -(2**63), float("-inf"), Decimal("NaN"), "", "", b"", date(9999, 12, 31), None, None, None,
     None, [1], [], [], [], None, "\\."),
    (3, None, 0, 1e-300, Decimal("1e-26"), "ü€😀\u2028\x7f", None, None, None, None, None, None, None, None, 1.5,
     None, None, "ok", None),
]  # fmt: skip


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_hostile_values(database: Database, sinks: Any, delivery: Any) -> None:
    database.execute(TYPES)
    sink = sinks(delivery=delivery)
    if delivery == "exactly-once":
        sink.fence(owner())
    write(sink, *HOSTILE)
    if delivery == "exactly-once":
        sink.commit([sink.prepare(1)])
    sink.flush()
    wanted = [(*row[:6], row[6] and f"{row[6]:3}", *row[7:]) if row[6] is not None else row for row in HOSTILE]
    wanted[1] = (*wanted[1][:6], "   ", *wanted[1][7:])
    assert repr(rows(database)) == repr(wanted)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((1, 1, "a\0b"), r"column 'note': 'a\\x00b' can't be written: .* NUL"),
        ((1, 1, "\ud800"), "column 'note'.*surrogate"),
        ((1, "one", ""), "column a.*one.*the row is id=1, a=one"),
        ((1, 1.5, ""), "integer.*1.5"),
        ((1, 2**31, ""), "out of range"),
        ((None, 1, ""), "key has NULL"),
        ((1, 1, {"no": "json"}), "column 'note'.*dict"),
        ((1, 1), "2 values for 3 columns"),
        ({"id": 1, "a": 1}, r"lacks \['note'\]"),
        ({"id": 1, "a": 1, "note": "", "x": 1}, r"\['x'\] are not columns"),
        (([], 1, ""), "key"),
        (object(), "not a row of columns"),
    ],
)
def test_rows_that_are_refused_before_the_snapshot(table: Database, sinks: Any, row: Any, words: str) -> None:
    sink = sinks()
    sink.fence(owner())
    with pytest.raises(PostgresError, match=words):
        write_and_prepare(sink, (5, 5, "fine"), row)
    assert rows(table) == []


def test_a_text_of_numpy_that_ends_with_nul_is_named(database: Database, sinks: Any) -> None:
    database.execute("create table t (id int primary key, a int[])")
    sink = sinks()
    sink.fence(owner())
    with pytest.raises(PostgresError, match=r"column 'a': .* can't be written: .* NUL"):
        write_and_prepare(sink, (1, np.str_("\0")))


def write_and_prepare(sink: PostgresSink, *values: Any) -> None:
    write(sink, *values)
    sink.prepare(1)


def test_null_where_there_may_be_none(database: Database, sinks: Any) -> None:
    database.execute("create table t (id int primary key, a int not null)")
    sink = sinks()
    sink.fence(owner())
    with pytest.raises(PostgresError, match="NULL in column a"):
        write_and_prepare(sink, (1, None))


@dataclass
class Total:
    id: int
    a: int
    note: str


def test_shapes_of_rows(table: Database, sinks: Any) -> None:
    sink = sinks(delivery="at-least-once")
    write(sink, Total(1, 1, "dataclass"), [2, 2, "list"], {"note": "dict", "a": 3, "id": 3})
    sink.flush()
    assert rows(table) == [(1, 1, "dataclass"), (2, 2, "list"), (3, 3, "dict")]


@pytest.mark.parametrize(
    ("statement", "options", "words"),
    [
        ("create table t (a int)", {}, "no primary key"),
        ("create table t (a int)", {"key": ["a"]}, "no unique index"),
        ("create table t (a int primary key deferrable)", {}, "no unique index of a that is not deferrable"),
        ("create table t (a int primary key)", {"columns": ["b"]}, "no column b"),
        ("create table t (a int primary key, b int)", {"columns": ["b"]}, "must contain the key"),
        ("create table u (a int)", {}, "table 't' does not exist"),
    ],
)
def test_tables_that_do_not_fit(database: Database, sinks: Any, statement: str, options: Any, words: str) -> None:
    database.execute(statement)
    with pytest.raises(PostgresError, match=words):
        sinks(**options).fence(owner())


def test_arguments_that_make_no_sense() -> None:
    for options in ({"key": "id"}, {"columns": "id"}, {"delivery": "twice"}):
        with pytest.raises(GraphError):
            PostgresSink("host=h", "t", **options)


def test_keys_that_are_equal_to_the_server_only(database: Database, sinks: Any) -> None:
    database.execute("create table t (id char(3) primary key, a int)")
    sink = sinks()
    sink.fence(owner())
    write(sink, ("a", 1), ("a ", 2))
    sink.commit([sink.prepare(1)])
    assert rows(database) == [("a  ", 2)]


def test_words_of_a_failure_show_no_password(table: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sink = PostgresSink(f"{table.dsn} password=s3cr3t", "t")
    sink.fence(owner())
    with pytest.raises(PostgresError) as caught:
        write_and_prepare(sink, (1, "x", ""))
    sink.close()
    assert "s3cr3t" not in f"{caught.value!r} {caplog.text} {sink!r}"


def test_rows_that_a_formatter_makes(table: Database, sinks: Any) -> None:
    sink = sinks(formatter=lambda msg: (msg.key, msg.timestamp, msg.value), delivery="at-least-once")
    sink.sink_batch([1, 2], ["one", "two"], [10, 20])
    sink.flush()
    assert rows(table) == [(1, 10, "one"), (2, 20, "two")]


UPPER = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"
EQUAL = [
    ("citext", "A", "a"),
    ("text collate ignoring_case", "A", "a"),
    ("uuid", UPPER, UPPER.lower()),
    ("uuid", UPPER, UUID(UPPER)),
    ("char(5)", "a", "a  "),
    ("int", "1", 1),
    ("numeric", "1.0", "1.00"),
    ("numeric(5, 1)", Decimal("1.01"), Decimal("1.02")),
    ("date", "2024-01-01", "20240101"),
    ("timestamptz", NOW, NOW.replace(tzinfo=None)),
    ("float8", float("nan"), float("nan")),
]


@pytest.mark.parametrize(("kind", "one", "other"), EQUAL)
def test_keys_that_only_the_server_takes_for_equal(
    kind: str, one: Any, other: Any, database: Database, sinks: Any
) -> None:
    database.execute("create extension if not exists citext schema public")
    database.execute("create collation ignoring_case (provider=icu, locale='und-u-ks-level2', deterministic=false)")
    database.execute(f"create table t (id {kind.replace('citext', 'public.citext')} primary key, a int not null)")
    sink = sinks(round=True)
    sink.fence(owner())
    cases: list[tuple[list[tuple[Any, int | None]], list[int]]] = [
        ([(one, 1), (other, 2)], [2]),
        ([(one, 3), (other, None)], []),
        ([(one, 4), (other, None), (one, 5)], [5]),
        ([(other, None), (one, 6)], [6]),
        ([(one, None), (other, 7), (one, 8), (other, 9)], [9]),
        ([(other, 10), (one, None)], []),
    ]
    for transaction, (events, expected) in enumerate(cases, 1):
        values = [None if a is None else {"id": key, "a": a} for key, a in events]
        write(sink, *values, keys=[key for key, _ in events])
        sink.commit([sink.prepare(transaction)])
        assert [a for (a,) in database.rows("select a from t")] == expected, events
    write(sink, {"id": one, "a": None})
    with pytest.raises(PostgresError, match="NULL in column a, which is not null"):
        sink.prepare(7)


def test_spelling_of_a_key_is_the_last_one_wherever_transactions_end(database: Database, sinks: Any) -> None:
    database.execute("create extension if not exists citext schema public")
    database.execute("create table t (id public.citext primary key, a int)")
    sink = sinks()
    sink.fence(owner())
    write(sink, {"id": "A", "a": 1}, {"id": "a", "a": 2})
    sink.commit([sink.prepare(1)])
    assert database.rows("select id::text, a from t") == [("a", 2)]
    write(sink, {"id": "A", "a": 3})
    sink.commit([sink.prepare(2)])
    assert database.rows("select id::text, a from t") == [("A", 3)]


def test_rows_that_the_table_refuses_do_not_get_into_a_snapshot(database: Database, sinks: Any) -> None:
    database.execute("create table t (id int primary key, a int constraint one unique, check (a < 100))")
    database.execute("create table other (id int primary key); alter table t add b int references other")
    sink = sinks()
    sink.fence(owner())
    write(sink, {"id": 1, "a": 1, "b": None}, {"id": 2, "a": 2, "b": None})
    sink.commit([sink.prepare(1)])
    write(sink, {"id": 1, "a": 2, "b": None}, {"id": 2, "a": 1, "b": None})
    with pytest.raises(PostgresError, match=r"Key \(a\)=\(.\) already exists.*deferrable initially deferred"):
        sink.prepare(2)
    write(sink, {"id": 3, "a": 100, "b": None})
    with pytest.raises(PostgresError, match=r"violates check constraint"):
        sink.prepare(2)
    database.execute("alter table t drop constraint one; alter table t add unique (a) deferrable initially deferred")
    write(sink, {"id": 1, "a": 2, "b": None}, {"id": 2, "a": 1, "b": None})
    first = sink.prepare(2)
    write(sink, {"id": 3, "a": 3, "b": 7})  # another sink has yet to write what it refers to
    second = sink.prepare(3)
    write(sink, {"id": 4, "a": 3, "b": None})
    write(sink, {"id": 3, "a": 4, "b": 7})
    third = sink.prepare(4)
    database.execute("insert into other values (7)")
    sink.commit([first, second, third])
    assert rows(database) == [(1, 2, None), (2, 1, None), (3, 4, 7), (4, 3, None)]
    write(sink, {"id": 5, "a": 4, "b": None})
    with pytest.raises(PostgresError, match=r"Key \(a\)=\(4\) already exists"):
        sink.prepare(5)


def test_statement_that_is_cancelled_amid_a_commit_is_tried_again(table: Database, sinks: Any) -> None:
    sink = sinks()
    sink.fence(owner())
    write(sink, {"id": 1, "a": 1, "note": "x"})
    handle = sink.prepare(1)
    table.execute("create sequence tries")
    table.execute(
        "create function cancel_once() returns trigger language plpgsql as $$ begin "
        "if nextval('tries') = 1 then perform pg_cancel_backend(pg_backend_pid()), pg_sleep(5); end if; "
        "return new; end $$"
    )
    table.execute("create trigger cancel before insert on t for each row execute function cancel_once()")
    sink.commit([handle])
    assert rows(table) == [(1, 1, "x")]
    assert table.rows("select last_value from tries") == [(2,)]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_bytes_of_every_value_in_keys_values_and_arrays(database: Database, sinks: Any, delivery: str) -> None:
    database.execute("create table t (id bytea primary key, v bytea, a bytea[])")
    sink = sinks(delivery=delivery)
    every = bytes(range(256))
    given = [(b"'", every, [b"''", None, every]), (b"\\", bytearray(b"'"), []), (every, memoryview(b"\\'"), None)]
    if delivery == "exactly-once":
        sink.fence(owner())
    write(sink, *given)
    if delivery == "exactly-once":
        sink.commit([sink.prepare(1)])
    sink.flush()
    wanted = [(key, bytes(value), array) for key, value, array in given]
    assert sorted(rows(database)) == sorted(wanted)


BEYOND = [
    (
        "numeric(6, 2)",
        Decimal("1.005"),
        r"Decimal\('1.005'\) can't be written: it has more digits than numeric\(6,2\) keeps",
    ),
    ("numeric(6, 2)", "1.005", "more digits"),
    ("numeric(6, 2)[]", [1, 0.125], r"0.125, in \[1, 0.125\], can't be written: it has more digits"),
    ("money", 1.005, "more digits"),
    ("double precision", 2**53 + 1, "more digits than double precision keeps"),
    ("timestamp(3)", datetime(2024, 1, 1, microsecond=1), "more digits"),
    ("timestamptz(0)", "2024-01-01 12:00:00.5+00", "more digits"),
    ("interval(1)", timedelta(milliseconds=10), "more digits"),
    ("date", datetime(2024, 1, 1, 12), "has a time of day"),
]
NEVER = [
    ("time", time(12, tzinfo=UTC), "has a zone"),
    ("timestamp", "2024-01-01 12:00+02", "has a zone"),
    ("time", datetime(2024, 1, 1, 12), "has a date"),
    ("varchar(3)", "abc  ", "has 5 characters"),
    ("text", True, "is bool, not text"),
    ("text", b"'", "is bytes, not text"),
    ("bytea", 5, "is int, not bytes"),
    ("date", 20240101, "is int, not a date"),
    ("jsonb", {1: "a", "1": "b"}, "two names that are one in JSON"),
    ("jsonb", float("nan"), "is not JSON"),
    ("int[]", [[1], []], "has an empty list in it"),
    ("timestamp", pandas.NaT, "write None"),
    ("timestamp", pandas.Timestamp("2024-01-01 00:00:00.000000001"), "has nanoseconds"),
]


@pytest.mark.parametrize(("kind", "value", "words"), at_night([*BEYOND, *NEVER], but=[*BEYOND[::2], *NEVER[::2]]))
def test_values_that_a_column_does_not_keep(database: Database, sinks: Any, kind: str, value: Any, words: str) -> None:
    database.execute(f"create table t (id int primary key, v {kind})")
    sink = sinks()
    sink.fence(owner())
    with pytest.raises(PostgresError, match=rf"table public.t, column 'v': .*{words}"):
        write_and_prepare(sink, (1, None), (2, value))


def test_texts_of_the_server_that_a_column_does_not_keep(database: Database, sinks: Any) -> None:
    database.execute("create table t (id int primary key, n numeric(6, 2), ts timestamp(0), i interval)")
    sink = sinks(text=["n", "ts", "i"], delivery="at-least-once")
    write(sink, (1, "1.10", "2024-01-01 12:00:00+00", "1 mon"))
    sink.flush()
    assert database.rows("select n::text, ts::text, i::text from t") == [("1.10", "2024-01-01 12:00:00", "1 mon")]
    for row in ((2, "1.005", None, None), (2, None, "2024-01-01 12:00:00.5", None)):
        write(sink, row)
        with pytest.raises(PostgresError, match=f"'{row[1] or row[2]}' can't be written: it has more digits"):
            sink.flush()


@pytest.mark.parametrize(("kind", "value"), [it[:2] for it in BEYOND])
def test_values_that_are_rounded_if_asked(database: Database, sinks: Any, kind: str, value: Any) -> None:
    database.execute(f"create table t (id int primary key, v {kind})")
    sink = sinks(round=True, delivery="at-least-once")
    write(sink, (1, value))
    sink.flush()
    assert len(rows(database)) == 1

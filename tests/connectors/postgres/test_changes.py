import logging
import math
import pickle
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from malflow.connectors.postgres import (
    UNCHANGED,
    Change,
    NotSent,
    PositionLost,
    PostgresChanges,
    PostgresError,
    PostgresSource,
)
from malflow.connectors.postgres.changes.first_copy import CopyReader
from malflow.connectors.postgres.changes.reader import ChangesPartition
from malflow.connectors.postgres.connection import PostgresServer
from malflow.connectors.postgres.source import SourcePartition
from malflow.errors import GraphError
from tests.connectors.postgres.kit import PATIENCE, Database, StrictCopy, cut_off_at, poll_until, read_all, slot_name
from tests.connectors.postgres.writer import TABLE, writing
from tests.kit.nights import NIGHTLY, at_night
from tests.kit.waiting import wait_until
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.slow

END_READERS = """
select pg_terminate_backend(active_pid) from pg_replication_slots where active and database = current_database()
"""
TYPES = """
create domain positive as int check (value > 0);
create domain small as positive check (value < 10);
create type mood as enum ('sad', 'ok');
create table t (id small primary key, b bool, i8 bigint, f float8, n numeric, s text, c char(3), v varchar(9),
  y bytea, d date, ts timestamp, tz timestamptz, iv interval, u uuid, j json, jb jsonb, a int[], aa text[][], m mood,
  ip inet, r int4range, "q""uo%te" text)
"""
ROWS = [
    """insert into t values (1, true, 9223372036854775807, 'NaN', 1e300, 'tab\\t\\\\N''"', 'a', '', '\\x00ff',
    '0001-01-01', '2024-02-29 23:59:59.999999',
    '2024-03-31 02:30+02', '1 day 02:03:04.5', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
    '{"a": [1, null]}', '"x"', '{1,NULL,3}', '{{"a b","c,d"},{"{}","NULL"}}', 'sad', '10.0.0.1', '[1,5)', 'q')""",
    "insert into t values (2, false, -1, '-Infinity', 'NaN', E'line\\nbreak', null, null, '', '9999-12-31')",
    "insert into t values (3, null, 0, 1e-300, 0.00000000000000000000000001, 'ü€😀', 'abc', 'x')",
]


class Job:
    """A source with a slot, and the readers that follow each other on it."""

    def __init__(self, database: Database, tables: list[str], **options: Any) -> None:
        self.source = PostgresChanges(database.dsn, tables, slot=slot_name(), **options)
        self.slot = self.source.list_parts()[0]
        self.readers: list[ChangesPartition] = []

    def reader(self, position: Any = None) -> ChangesPartition:
        for old in self.readers:
            old.suspend()
        self.readers.append(self.source.build_part(self.slot, position))
        return self.readers[-1]

    def started(self, rows: int) -> ChangesPartition:
        """Return a reader that has copied so many rows, and streams."""
        reader = self.reader()
        poll_until(reader, lambda values: len(values) == rows and reader.snapshot()[0] == "stream")
        return reader


@pytest.fixture
def new_job(database: Database) -> Iterator[Any]:
    jobs: list[Job] = []

    def make(tables: list[str], **options: Any) -> Job:
        jobs.append(Job(database, tables, **options))
        return jobs[-1]

    yield make
    for job in jobs:
        for reader in job.readers:
            reader.suspend()


def caught_up(reader: ChangesPartition, database: Database) -> bool:
    """Whether the reader is at the end of the log."""
    ((end,),) = database.rows("select (pg_current_wal_flush_lsn() - '0/0')::bigint")
    position = reader.snapshot()
    return position[0] == "stream" and position[2] >= end


def confirmed(database: Database) -> int:
    """Return up to where the one slot of the database is confirmed."""
    query = "select (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots where database = current_database()"
    return int(database.rows(query)[0][0])


@pytest.mark.parametrize("seed", at_night(range(2), but=[0]))
def test_copy_of_a_table_that_changes_and_truncates(database: Database, new_job: Any, seed: int) -> None:
    database.execute(TABLE)
    rng, job, copy = random.Random(seed), new_job(["orders"], page_rows=100), StrictCopy()
    reader = job.reader()
    durable = pickle.dumps((reader.snapshot(), copy))
    restarts, phases = 0, {reader.snapshot()[0]}
    while "copy" not in phases:  # before the table is changed: a slow reader would find it truncated
        for change in reader.poll_batch(1)[0]:
            copy.apply(change)
        phases.add(reader.snapshot()[0])
    with writing(database.dsn, seed):
        enough, at_most = time.monotonic() + (5 if NIGHTLY else 2), time.monotonic() + PATIENCE
        while time.monotonic() < (enough if restarts > 3 and len(phases) == 3 else at_most):
            changes, _ = reader.poll_batch(rng.randint(1, 60))
            for change in changes:
                copy.apply(change)
            phases.add(reader.snapshot()[0])
            if rng.random() < 0.2:
                durable = pickle.dumps((reader.snapshot(), copy))
                reader.committed(reader.snapshot())
            if changes and rng.random() < 0.05:  # the process dies, and resumes from its last snapshot
                restarts += 1
                position, copy = pickle.loads(durable)
                reader = job.reader(position)
            if not changes:
                time.sleep(0.001)
    until = time.monotonic() + PATIENCE
    while not caught_up(reader, database):
        for change in reader.poll_batch(1000)[0]:
            copy.apply(change)
        assert time.monotonic() < until
    assert copy.rows("public.orders") == database.rows("select * from orders order by id")
    assert restarts > 3
    assert phases == {"start", "copy", "stream"}


def test_values_of_the_copy_and_of_the_stream(database: Database, new_job: Any) -> None:
    database.execute(TYPES)
    for row in ROWS:
        database.execute(row)
    job = new_job(["t"])
    reader = job.reader()
    copied = [change.new for change in poll_until(reader, lambda values: len(values) == 3)]
    database.execute("create temp table old as select * from t; truncate t; insert into t select * from old")
    streamed = [change.new for change in poll_until(reader, lambda values: len(values) == 4)[1:]]
    assert repr(copied) == repr(streamed)
    one, two, three = copied
    assert one["i8"] == 2**63 - 1
    assert math.isnan(one["f"])
    assert one["n"] == Decimal("1e300")
    assert one["s"] == "tab\\t\\\\N'\""
    assert one["c"] == "a  "
    assert one["y"] == b"\0\xff"
    assert one["d"] == date(1, 1, 1)
    assert one["ts"] == datetime(2024, 2, 29, 23, 59, 59, 999999)
    assert one["tz"] == datetime(2024, 3, 31, 0, 30, tzinfo=UTC)
    assert one["iv"] == timedelta(days=1, hours=2, minutes=3, seconds=4.5)
    assert one["u"] == UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
    assert one["j"] == {"a": [1, None]}
    assert one["jb"] == "x"
    assert one["a"] == [1, None, 3]
    assert one["aa"] == [["a b", "c,d"], ["{}", "NULL"]]
    assert one["m"] == "sad"
    assert one['q"uo%te'] == "q"
    assert (two["f"], str(two["n"]), two["c"], two["y"], two["b"]) == (-math.inf, "NaN", None, b"", False)
    assert (three["id"], three["n"], three["s"]) == (3, Decimal("1e-26"), "ü€😀")


def test_dates_that_python_does_not_have(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key, d date)")
    strict, loose = new_job(["t"]), new_job(["t"], text=["d"])
    readers = [strict.started(0), loose.started(0)]
    database.execute("insert into t values (1, 'infinity')")
    with pytest.raises(PostgresError, match=r"public.t, column 'd': .*'infinity'.*text=\['d'\]"):
        poll_until(readers[0], len)
    ((change,),) = [poll_until(readers[1], len)]
    assert change.new == {"id": 1, "d": "infinity"}
    copying = new_job(["t"]).reader()
    with pytest.raises(PostgresError, match=r"public.t, column 'd': .*'infinity'.*text=\['d'\]"):
        poll_until(copying, len)


def test_kinds_of_change_and_what_they_carry(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key, a int, big text); create table u (id int primary key)")
    database.execute("alter table t alter big set storage external")
    reader = new_job(["t", "u"]).started(0)
    database.execute("insert into t values (1, 1, repeat('x', 5000))")
    database.execute("update t set a = 2")
    database.execute("update t set id = 9")
    database.execute("alter table t replica identity full")
    database.execute("update t set a = 3")
    database.execute("delete from t")
    database.execute("truncate t, u")
    changes = poll_until(reader, lambda values: len(values) == 7)
    big = "x" * 5000
    assert [change.kind for change in changes] == [
        "insert",
        "update",
        "update",
        "update",
        "delete",
        "truncate",
        "truncate",
    ]
    assert [change.new for change in changes[:3]] == [
        {"id": 1, "a": 1, "big": big},
        {"id": 1, "a": 2, "big": UNCHANGED},
        {"id": 9, "a": 2, "big": UNCHANGED},
    ]
    assert [change.old for change in changes[:3]] == [None, None, {"id": 1}]
    assert changes[3][2:4] == ({"id": 9, "a": 2, "big": big}, {"id": 9, "a": 3, "big": big})
    assert changes[4][2:4] == ({"id": 9, "a": 3, "big": big}, None)
    assert sorted(change.table for change in changes[5:]) == ["public.t", "public.u"]
    assert pickle.loads(pickle.dumps(UNCHANGED)) is UNCHANGED
    assert all(earlier.lsn < later.lsn for earlier, later in pairwise(changes[:6]))


def test_keys_that_are_too_large_to_be_sent_again(database: Database, new_job: Any) -> None:
    database.execute("create table t (id text primary key, a int); alter table t alter id set storage external")
    reader = new_job(["t"]).started(0)
    database.execute("insert into t select repeat('x', 2300) || n, 0 from generate_series(1, 2) n")
    database.execute("update t set a = 1 where id like '%1'; update t set a = 2 where id like '%2'")
    updates = poll_until(reader, lambda values: len(values) == 4)[2:]
    assert [change.old for change in updates] == [None, None]
    assert [tuple(change.new.values()) for change in updates] == database.rows("select * from t order by a")


def test_columns_that_are_added_while_it_streams(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key)")
    reader = new_job(["t"]).started(0)
    database.execute("insert into t values (1)")
    database.execute("alter table t add b text default 'x'")
    database.execute("insert into t values (2)")
    assert [change.new for change in poll_until(reader, lambda values: len(values) == 2)] == [
        {"id": 1},
        {"id": 2, "b": "x"},
    ]


def test_one_transaction_read_in_pieces(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key)")
    job = new_job(["t"])
    reader = job.started(0)
    database.execute("insert into t select generate_series(1, 3000)")
    database.execute("insert into t values (3001)")
    ids: list[int] = []
    while len(ids) < 3001:
        ids += [change.new["id"] for change in poll_until(reader, len, limit=400)]
        position = reader.snapshot()
        reader.committed(position)
        reader = job.reader(position)
    assert ids == list(range(1, 3002))


def test_small_transactions_are_not_parted(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key)")
    job = new_job(["t"])
    reader = job.started(0)
    for start in (1, 101, 201):
        database.execute(f"insert into t select generate_series({start}, {start + 99})")
    time.sleep(0.3)
    for limit, counts in ((7, {100}), (200, {100, 200})):
        assert len(poll_until(reader, len, limit=limit)) in counts
    poll_until(reader, lambda _: caught_up(reader, database))
    database.execute("insert into t values (0), (-1)")
    while (record := reader.poll()) is None:
        time.sleep(0.001)
    assert record[0].new == {"id": 0}
    assert [change.new for change in poll_until(job.reader(reader.snapshot()), len)] == [{"id": -1}]


def test_reader_that_ends_when_all_is_read(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key); insert into t values (1)")
    job = new_job(["t"], until="now")
    reader = job.reader()
    assert len(read_all(reader)) == 1
    database.execute("insert into t values (2)")
    assert [change.new for change in read_all(job.reader(reader.snapshot()))] == [{"id": 2}]


def test_confirmed_position_of_a_quiet_table_moves(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key); create table busy (id int)")
    job = new_job(["t"])
    reader = job.started(0)
    before = reader.snapshot()[2]
    database.execute("insert into busy select generate_series(1, 1000)")
    deadline = time.monotonic() + PATIENCE
    while reader.snapshot()[2] <= before and time.monotonic() < deadline:
        assert reader.poll_batch(10) == ([], [])
        time.sleep(0.01)
    assert confirmed(database) < reader.snapshot()[2]  # nothing is confirmed by reading
    reader.committed(reader.snapshot())
    while confirmed(database) < reader.snapshot()[2] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert confirmed(database) >= reader.snapshot()[2]


def test_lag_in_bytes(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key)")
    reader = new_job(["t"]).started(0)
    database.execute("insert into t select generate_series(1, 1000)")
    deadline = time.monotonic() + PATIENCE
    while not reader.lag() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reader.lag() > 10_000


def test_connection_made_again_confirms_nothing(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key)")
    job = new_job(["t"])
    reader = job.started(0)
    durable = reader.snapshot()
    reader.committed(durable)
    database.execute("insert into t values (1)")
    poll_until(reader, lambda values: len(values) == 1)
    database.execute(END_READERS)
    database.execute("insert into t values (2)")
    poll_until(reader, lambda values: len(values) == 1)
    poll_for(reader, 0.5)
    heir = job.reader(durable)  # the first one is gone before a snapshot
    assert len(poll_until(heir, lambda values: len(values) == 2)) == 2


def test_server_that_is_shut_down_before_a_confirmation(own_postgres: Callable[[], Postgres]) -> None:
    server = own_postgres()
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute("create table t (id int primary key)")
        job = Job(Database(server.address, connection), ["t"])
        reader = job.started(0)
        connection.execute("insert into t values (1)")
        poll_until(reader, lambda values: len(values) == 1)
    ended = threading.Thread(target=server.stop)
    ended.start()
    while ended.is_alive():
        reader.poll_batch(10)
        time.sleep(0.005)
    assert not server.is_running
    reader.suspend()


def poll_for(reader: ChangesPartition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert list(reader.poll_batch(10)[0]) == []
        time.sleep(0.01)


def test_connection_that_is_cut_off(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key)")
    reader = new_job(["t"]).started(0)
    ids: list[int] = []
    for number in range(3):
        database.execute("insert into t values (%s)", number)
        ids += [change.new["id"] for change in poll_until(reader, len)]
        database.execute(END_READERS)
    assert ids == [0, 1, 2]


@pytest.mark.parametrize("command", [b"CREATE_REPLICATION_SLOT", b"START_REPLICATION"])
def test_connection_that_is_lost_amid_a_command(database: Database, new_job: Any, command: bytes) -> None:
    database.execute("create table t (id int primary key); insert into t values (1)")
    job = new_job(["t"])
    with cut_off_at(command, database.connection.info.port) as port:
        dsn = make_conninfo(database.dsn, port=port, sslmode="disable")
        job.source = PostgresChanges(dsn, ["t"], slot=job.slot)
        reader = job.started(1)
        database.execute("insert into t values (2)")
        assert len(poll_until(reader, len)) == 1
        reader.suspend()


def test_snapshot_whose_connection_is_lost(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key); insert into t values (1)")
    job = new_job(["t"])
    end = (
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where backend_type = 'walsender' and datname = %s"
    )

    def end_sender() -> None:
        with psycopg.connect(database.dsn) as connection:
            connection.execute(end, (database.connection.info.dbname,))

    with cut_off_at(b"set transaction snapshot", database.connection.info.port, end_sender) as port:
        job.source = PostgresChanges(make_conninfo(database.dsn, port=port, sslmode="disable"), ["t"], slot=job.slot)
        job.started(1).suspend()


def test_server_that_is_impatient(database: Database, new_job: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "malflow")
    database.execute("create table t (id int primary key)")
    job = new_job(["t"])
    impatient = f"{database.dsn} options='-c wal_sender_timeout=2000'"
    job.source = PostgresChanges(impatient, ["t"], slot=job.slot)
    reader = job.started(0)
    database.execute("insert into t select generate_series(1, 20000)")
    ids: list[int] = []
    while len(ids) < 20000:  # for longer than the server waits
        ids += [change.new["id"] for change in poll_until(reader, len, limit=500)]
        time.sleep(0.075)
    assert "disconnected" not in caplog.text
    time.sleep(3)
    database.execute("insert into t values (20001)")
    ids += [change.new["id"] for change in poll_until(reader, len)]
    assert "disconnected" in caplog.text
    assert ids == list(range(1, 20002))


def test_copy_whose_transaction_is_ended(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key); insert into t select generate_series(1, 100)")
    reader = new_job(["t"], page_rows=10).reader()
    copy = StrictCopy()
    for change in poll_until(reader, len, limit=10):
        copy.apply(change)
    database.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction' "
        "and datname = current_database()"
    )
    database.execute("update t set id = id + 1000 where id % 7 = 0")
    for change in poll_until(reader, lambda _: caught_up(reader, database)):
        copy.apply(change)
    assert copy.rows("public.t") == database.rows("select * from t order by id")
    assert PostgresServer.is_lost(psycopg.errors.IdleInTransactionSessionTimeout("timeout"))


def test_slot_that_another_reader_holds(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key)")
    job = new_job(["t"])
    zombie = job.started(0)
    job.readers.clear()
    heir = job.reader(zombie.snapshot())
    database.execute("insert into t values (1)")
    assert len(poll_until(heir, len)) == 1
    zombie.suspend()


def test_positions_that_the_slot_does_not_have(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key)")
    job = new_job(["t"])
    reader = job.started(0)
    old = reader.snapshot()
    database.execute("insert into t values (1)")
    poll_until(reader, len)
    reader.poll_batch(1)
    database.execute("insert into t values (2)")
    poll_until(reader, len)
    reader.committed(reader.snapshot())
    reader.suspend()
    with pytest.raises(PositionLost, match="beyond the position"):
        poll_until(job.reader(old), len)
    with pytest.raises(PositionLost, match="restored from an older copy"):
        poll_until(job.reader((*old[:2], old[2] + 2**40, *old[3:])), len)
    with pytest.raises(PositionLost, match="belongs to server 42"):
        poll_until(job.reader((old[0], "42", *old[2:])), len)
    job.source.drop_slot()
    with pytest.raises(PositionLost, match="the slot is gone"):
        poll_until(job.reader(old), len)


def test_slot_of_another_job(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key)")
    database.execute("insert into t values (1)")
    job = new_job(["t"])
    reader = job.started(1)
    reader.committed(reader.snapshot())
    reader.suspend()
    with pytest.raises(PostgresError, match="exists, but this job has no position"):
        job.source.build_part(job.slot, None)
    other = PostgresChanges(database.dsn, ["t"], slot=job.slot, replace_slot=True)
    reader = other.build_part(job.slot, None)
    assert len(poll_until(reader, len)) == 1
    reader.suspend()


def test_start_that_was_cut_short(database: Database, new_job: Any) -> None:
    """Before the first snapshot is durable the slot is nobody's; a second start makes it again."""
    database.execute("create table t (id int primary key)")
    database.execute("insert into t values (1)")
    job = new_job(["t"])
    job.started(1).suspend()
    database.execute("insert into t values (2)")
    reader = job.started(2)
    reader.committed(("start",))  # is of a snapshot that says nothing of the slot
    reader.suspend()
    reader = job.started(2)
    durable = reader.snapshot()
    reader.committed(durable)
    reader.suspend()
    with pytest.raises(PostgresError, match="exists, but this job has no position"):
        job.source.build_part(job.slot, None)
    database.execute("insert into t values (3)")
    assert len(poll_until(job.reader(durable), len)) == 1


@pytest.mark.parametrize("comment", ["the team's", None])
def test_publication_with_a_comment(database: Database, new_job: Any, comment: str | None) -> None:
    """A comment of somebody else stays; the slot of a start that was cut short is then refused, as any other."""
    database.execute("create table t (id int primary key); create publication p for table t")
    database.execute("insert into t values (1)")
    if comment is not None:
        database.execute("comment on publication p is 'the team''s'")
    job = new_job(["t"], publication="p")
    reader = job.started(1)
    if comment is not None:
        with pytest.raises(PostgresError, match="exists, but this job has no position"):
            job.source.build_part(job.slot, None)
    reader.committed(reader.snapshot())
    reader.suspend()
    found = database.rows("select obj_description(oid, 'pg_publication') from pg_publication where pubname = 'p'")
    assert found == [(comment,)]


def test_stream_without_a_copy(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int); insert into t values (1); alter table t replica identity full")
    job = new_job(["t"], copy=False)
    for number in (2, 3):
        reader = job.reader()
        while reader.snapshot()[0] != "stream":
            assert reader.poll_batch(10) == ([], [])
        database.execute("insert into t values (%s)", number)
        assert [change.new for change in poll_until(reader, len)] == [{"id": number}]
        job.source = PostgresChanges(database.dsn, ["t"], slot=job.slot, copy=False, replace_slot=True)


def test_tables_that_could_not_be_updated_any_more(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int); insert into t values (1)")
    for copy, words in ((True, "can't be copied: public.t"), (False, "would reject updates .*replica identity full")):
        with pytest.raises(PostgresError, match=words):
            poll_until(new_job(["t"], copy=copy).reader(), len)
    database.execute("update t set id = 2")
    assert database.rows("select pubname from pg_publication") == []


def test_publication_that_was_dropped(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key)")
    job = new_job(["t"])
    position = job.started(0).snapshot()
    job.readers[0].suspend()
    database.execute(f"drop publication {job.slot}; insert into t values (1)")
    with pytest.raises(PostgresError, match=f"publication '{job.slot}' is gone"):
        poll_until(job.reader(position), len)
    assert database.rows("select pubname from pg_publication") == []


def test_tables_and_publications_that_do_not_fit(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int); create table u (id int primary key); create publication p for table u")
    with pytest.raises(PostgresError, match=r"without a primary key .*public\.t"):
        poll_until(new_job(["t"]).reader(), len)
    with pytest.raises(PostgresError, match="table 'gone' does not exist"):
        poll_until(new_job(["gone"]).reader(), len)
    with pytest.raises(PostgresError, match=r"publication 'p' lacks public\.t"):
        poll_until(new_job(["t"], publication="p").reader(), len)
    for slot in ("Upper", "", "x" * 64):
        with pytest.raises(GraphError, match="slot"):
            PostgresChanges(database.dsn, ["t"], slot=slot)


def test_publication_with_columns_and_a_condition(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key, a int, secret text)")
    database.execute("insert into t values (1, 1, 's'), (20, 2, 's')")
    database.execute("create publication p for table t (id, a) where (id < 10) with (publish = 'insert')")
    job = new_job([], publication="p")
    reader = job.reader()
    assert [change.new for change in poll_until(reader, len)] == [{"id": 1, "a": 1}]
    database.execute("insert into t values (2, 2, 's'), (30, 3, 's')")
    assert [change.new for change in poll_until(reader, len)] == [{"id": 2, "a": 2}]


def test_publication_with_tables_of_others(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key); create table u (id int primary key)")
    database.execute("create table heir (primary key (id)) inherits (t); create publication p for table t, u")
    database.execute("insert into t values (1); insert into heir values (2); insert into u values (3)")
    job = new_job(["t"], publication="p", page_rows=1)
    reader = job.started(1)
    database.execute("insert into u values (4); insert into heir values (5); truncate u; insert into t values (6)")
    assert [change.new for change in poll_until(reader, len)] == [{"id": 6}]
    database.execute("alter table t rename to v")
    database.execute("insert into v values (7)")
    assert [change.new for change in poll_until(reader, len)] == [{"id": 7}]


@pytest.mark.parametrize("kind", ["changes", "source"])
def test_reader_that_leaves_while_a_page_is_fetched(
    database: Database, new_job: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection stays open until the thread that uses it has gone: else the process might crash."""
    database.execute("create table t (id int primary key); insert into t values (1), (2), (3)")
    place, name = (CopyReader, "_read") if kind == "changes" else (SourcePartition, "_fetch")
    fetch, begun, ends = getattr(place, name), threading.Event(), list[bool]()

    def slow(self: Any, *arguments: Any) -> Any:
        page = fetch(self, *arguments)
        if page.rows and page.rows[0][0] == 2:
            connection = self._connection
            begun.set()
            try:
                connection.execute("select pg_sleep(600)")
            finally:
                ends.append(connection.closed)
        return page

    monkeypatch.setattr(place, name, slow)
    reader = (
        new_job(["t"], page_rows=1).reader()
        if kind == "changes"
        else PostgresSource(database.dsn, "t", page_rows=1).build_part("t", None)
    )
    assert len(poll_until(reader, len, limit=1)) == 1
    assert begun.wait(PATIENCE)
    sleeping = "select 1 from pg_stat_activity where query = 'select pg_sleep(600)' and state = 'active'"
    wait_until(lambda: database.rows(sleeping) != [])  # the server forgets to end a query that has not begun
    reader.suspend()
    wait_until(lambda: ends == [False])


def test_tables_that_join_a_copy(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key); create table u (id int primary key)")
    database.execute("create publication p for table t, u; insert into t values (1), (2)")
    job = new_job(["t"], publication="p", page_rows=1)
    reader = job.reader()
    poll_until(reader, len, limit=1)
    job.source = PostgresChanges(database.dsn, ["t", "u"], slot=job.slot, publication="p")
    with pytest.raises(PostgresError, match=r"began without public\.u: it has public\.t"):
        poll_until(job.reader(reader.snapshot()), len)


def test_roles_that_may_not_do_everything(database: Database, new_job: Any) -> None:
    role = slot_name()
    database.execute(f"create role {role} login replication; create table t (id int primary key)")
    database.execute(f"grant select on t to {role}")
    job, dsn = new_job(["t"]), make_conninfo(database.dsn, user=role)
    job.source = PostgresChanges(dsn, ["t"], slot=job.slot)
    with pytest.raises(PostgresError, match=f'let the owner .*create publication "{job.slot}" for table "public"."t"'):
        poll_until(job.reader(), len)
    database.execute(f"create publication {job.slot} for table t; alter table t enable row level security")
    with pytest.raises(PostgresError, match="row-level security"):
        poll_until(job.reader(), len)
    job.source.drop_slot()
    database.execute("alter table t disable row level security; insert into t values (1)")
    assert len(poll_until(job.reader(), len)) == 1
    job.readers[-1].suspend()
    database.execute(f"drop owned by {role}; drop role {role}")


def test_partitioned_table_as_one(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key) partition by range (id)")
    database.execute("create table t1 partition of t for values from (0) to (10)")
    database.execute("create table t2 partition of t for values from (10) to (20)")
    database.execute("insert into t values (1), (11)")
    reader = new_job(["t"]).started(2)
    database.execute("insert into t values (2), (12)")
    changes = poll_until(reader, lambda values: len(values) == 2)
    assert [(change.table, change.new) for change in changes] == [("public.t", {"id": 2}), ("public.t", {"id": 12})]


def test_truncation_between_two_readers_of_a_copy(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key); insert into t select generate_series(1, 50)")
    job = new_job(["t"], page_rows=10)
    reader, copy = job.reader(), StrictCopy()
    for change in poll_until(reader, lambda values: len(values) >= 20, limit=10):
        copy.apply(change)
    position = reader.snapshot()
    reader.suspend()
    database.execute("update t set id = id + 1000 where id < 5; truncate t; insert into t values (7), (8)")
    reader = job.reader(position)
    for change in poll_until(reader, lambda _: caught_up(reader, database)):
        copy.apply(change)
    assert copy.rows("public.t") == [(7,), (8,)]


def test_change_is_a_plain_tuple() -> None:
    change = Change("insert", "public.t", None, {"id": 1}, 5, datetime(2024, 1, 1, tzinfo=UTC))
    assert pickle.loads(pickle.dumps(change)) == change


def read_old(database: Database, slot: str, position: Any, **options: Any) -> tuple[list[Change], Any]:
    reader = PostgresChanges(database.dsn, ["t"], slot=slot, until="now", **options).build_part(slot, position)
    try:
        return read_all(reader), reader.snapshot()
    finally:
        reader.suspend()


def test_key_that_is_left_as_text_is_copied_in_its_own_order(database: Database, new_job: Any) -> None:
    database.execute("create table t (id int primary key); insert into t values (2), (10), (9)")
    reader = new_job(["t"], text=["id"], page_rows=1, until="now", require_old=False).reader()
    assert [change.new["id"] for change in read_all(reader)] == ["2", "9", "10"]


def test_rows_before_changes_that_are_not_sent(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    database.execute("create table t (id int primary key, amount int); insert into t values (1, 10), (2, 5)")
    slot = slot_name()
    _, position = read_old(database, slot, None)
    assert "`old` is None, or only the key" in caplog.text
    assert "public.t" in caplog.text
    database.execute(
        "update t set amount = 11 where id = 1; update t set id = 3 where id = 2; delete from t where id = 3"
    )
    caplog.clear()
    [update, moved, delete], _ = read_old(database, slot, position, require_old=False)
    assert caplog.text == ""
    assert update.old is None
    for change, key in ((moved, 2), (delete, 3)):
        assert change.old == {"id": key}
        with pytest.raises(NotSent, match=r"column 'amount' of the old row was not sent.*identity full"):
            change.old["amount"]
        with pytest.raises(KeyError):
            change.old["amount"]
        assert type(pickle.loads(pickle.dumps(change)).old) is dict
    with pytest.raises(PostgresError, match=r"needs the old row .*public.t lack it; alter table .*identity full"):
        read_old(database, slot, position, require_old=True)
    database.execute("alter table t replica identity full")
    with pytest.raises(PostgresError, match=r"table public.t: an update at .* arrived without the old row"):
        read_old(database, slot, position, require_old=True)


def test_rows_before_changes_of_partitions(database: Database) -> None:
    database.execute("create table t (id int primary key, amount int) partition by range (id)")
    database.execute("create table a partition of t for values from (0) to (100); insert into t values (1, 10)")
    database.execute("alter table t replica identity full")
    slot = slot_name()
    with pytest.raises(PostgresError, match=r"public.t lack it; .*of partitions too"):
        read_old(database, slot, None, require_old=True)
    database.execute("alter table a replica identity full")
    _, position = read_old(database, slot, None, require_old=True)
    database.execute("update t set amount = 11")
    [change], _ = read_old(database, slot, position, require_old=True)
    assert (change.old, change.new) == ({"id": 1, "amount": 10}, {"id": 1, "amount": 11})


def test_value_of_the_copy_that_python_lacks(database: Database) -> None:
    database.execute("create table t (id int primary key, until date); insert into t values (1, 'infinity')")
    with pytest.raises(PostgresError, match=r"table public.t, column 'until'.*'infinity'.*text=\['until'\]"):
        read_old(database, slot_name(), None)

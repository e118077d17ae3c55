"""Rows that a worker copies to Postgres before the driver merges them, and all that may happen in between."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from malflow import FencedError
from malflow.connectors.postgres import UNCHANGED, Change, PostgresError, PostgresSink
from malflow.runtime.transport.pickling import dumps_by_value
from malflow.sinks import Share, SinkOwner
from malflow.store.opening import open_store
from tests.connectors.postgres.kit import Database
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.slow

NOW = datetime(2024, 1, 1, tzinfo=UTC)


class Job:
    """Calls a sink as the driver and the tasks do; each task has a copy of its own.

    Args:
        folder: the store of the snapshots.
        make: makes the sink.
    """

    def __init__(self, folder: Path, make: Callable[[], PostgresSink]) -> None:
        self._folder = folder
        self._make = make
        self._claim = 0
        self._sealed = 0
        self._pending: list[Any] = []
        self.sink = make()
        self.restart()

    def restart(self, *, transaction: int = 0, **options: Any) -> None:
        """Begin the next run, with the pending transactions of the last."""
        self.sink.close()
        self.sink, self._claim = self._make(), self._claim + 1
        self.sink.use_store(open_store(str(self._folder), {}))
        self.sink.fence(SinkOwner("job", "out", self._claim, transaction))
        self.commit()
        self.sink.abort([])

    def copy(self) -> PostgresSink:
        """Return the sink as a task has it."""
        copy: PostgresSink = pickle.loads(dumps_by_value(self.sink))
        return copy

    def seal(self, *batches: Sequence[Any], keys: Sequence[Any] | None = None, mark: str = "t") -> Any:
        """Write a transaction of batches, and check it; return its handle."""
        pieces = [
            self.copy().encode((keys or [None] * len(batch))[: len(batch)], batch, [None] * len(batch))
            for batch in batches
        ]
        writer = self.copy().open_writer(Share(self._sealed + 1, 0, 1, mark))
        for piece in pieces:
            writer.write(pickle.loads(pickle.dumps(piece)))
        sealed = writer.seal()
        handle = self._sealed + 1, (sealed,)
        self.sink.check_sealed([*self._pending, handle])
        self._sealed += 1
        self._pending.append(handle)
        return handle

    def commit(self) -> None:
        """Commit the pending transactions."""
        self.sink.commit(self._pending)
        self._pending = []


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Return a function that begins a job on a server, and ends it with the test."""
    jobs: list[Job] = []

    def begun(dsn: str, **options: Any) -> Job:
        jobs.append(Job(tmp_path / str(len(jobs)), lambda: PostgresSink(dsn, "t", **options)))
        return jobs[-1]

    yield begun
    for job in jobs:
        job.sink.close()


@pytest.fixture
def job(database: Database, begin: Callable[..., Job]) -> Job:
    database.execute("create table t (id int primary key, text text, large text)")
    return begin(database.dsn)


def staged(database: Database) -> list[str]:
    return [name for (name,) in database.rows("select tablename from pg_tables where tablename like 'malflow\\_%\\_%'")]


def rows(database: Database) -> list[Any]:
    return database.rows("select * from t order by 1")


def test_rows_are_on_the_server_before_the_commit_and_merged_by_it(database: Database, job: Job) -> None:
    handle = job.seal([(1, "a", "x"), (2, "b", "x")], [{"id": 1, "text": "c", "large": "y"}])
    assert len(staged(database)) == 1
    assert rows(database) == []
    assert len(pickle.dumps(handle)) < 300
    job.commit()
    assert rows(database) == [(1, "c", "y"), (2, "b", "x")]
    assert staged(database) == []


def test_changes_of_a_table_are_applied_in_their_order(database: Database, job: Job) -> None:
    """Moved keys, values that are not known, a row that is deleted by its key, and a truncation."""
    job.seal([(1, "a", "large"), (2, "b", "large"), (9, "gone", "")])
    changes = [
        Change("update", "t", {"id": 1}, {"id": 5, "text": "moved", "large": UNCHANGED}, 0, NOW),
        Change("insert", "t", None, {"id": 1, "text": "new", "large": "new"}, 0, NOW),
        Change("delete", "t", {"id": 2}, None, 0, NOW),
        None,
    ]
    job.seal(changes, keys=[None, None, None, 9])
    job.commit()
    assert rows(database) == [(1, "new", "new"), (5, "moved", "large")]
    truncated = Change("truncate", "t", None, None, 0, NOW)
    job.seal([(7, "before", ""), truncated, (8, "after", "")], keys=[None] * 3)
    assert len(staged(database)) == 1
    job.commit()
    assert rows(database) == [(8, "after", "")]


def test_keys_that_only_the_server_finds_equal_are_one_row(database: Database, begin: Callable[..., Job]) -> None:
    database.execute("create table t (id numeric(6, 2) primary key, n int)")
    job = begin(database.dsn, round=True)
    job.seal([(1.001, 1), (2, 2)], [(1, 3)])
    job.commit()
    assert rows(database) == [(1, 3), (2, 2)]


def test_appended_rows_stay_in_order_and_may_empty_the_table(database: Database, begin: Callable[..., Job]) -> None:
    database.execute("create table t (n serial, text text)")
    job = begin(database.dsn, key=(), columns=["text"])
    job.seal([("a",), ("b\t\\",)], [{"text": "c"}])
    job.commit()
    assert rows(database) == [(1, "a"), (2, "b\t\\"), (3, "c")]
    truncated = Change("truncate", "t", None, None, 0, NOW)
    inserted = Change("insert", "t", None, {"text": "y"}, 0, NOW)
    job.seal([("gone",)], [("x",), truncated, inserted], [("z",)], keys=[None] * 3)
    job.commit()
    assert [text for _, text in rows(database)] == ["y", "z"]
    with pytest.raises(PostgresError, match=r"can't be deleted without key"):
        job.seal([None], keys=[1])


@pytest.mark.fault("I28")
@pytest.mark.parametrize("loss", ["drop table {}", "truncate {}", "delete from {} where c0 = 1"])
def test_staged_rows_that_are_gone_are_copied_again(database: Database, job: Job, loss: str) -> None:
    job.seal([(1, "a", ""), (2, "b", "")])
    (name,) = staged(database)
    database.execute(loss.format(name))
    job.seal([(2, "c", "")], mark="u")
    job.commit()
    assert rows(database) == [(1, "a", ""), (2, "c", "")]
    assert staged(database) == []


@pytest.mark.fault("I28")
def test_a_server_that_crashes_between_copy_and_merge_loses_nothing(
    own_postgres: Callable[[], Postgres], begin: Callable[..., Job]
) -> None:
    """A crash empties unlogged tables."""
    server = own_postgres()
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute("create table t (id int primary key, n int)")
    job = begin(server.address)
    job.seal([(number, number) for number in range(100)])
    server.kill()
    server.start()
    job.commit()
    job.seal([(number, -number) for number in range(50, 150)])
    server.kill()
    server.start()
    job.restart(transaction=1)
    with psycopg.connect(server.address) as connection:
        found = connection.execute("select count(*), sum(n) from t").fetchone()
        left = connection.execute("select count(*) from pg_class where relpersistence = 'u'").fetchone()
    assert found == (150, sum(range(50)) - sum(range(50, 150)))
    assert left == (0,)


@pytest.mark.fault("I29")
def test_a_role_that_may_not_create_tables_is_told_once(
    database: Database, begin: Callable[..., Job], caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("create table t (id int primary key, text text, large text)")
    database.execute("create role plain login; grant all on t to plain; grant create on schema public to public")
    try:
        begin(database.dsn)  # makes the ledger
        database.execute("grant all on malflow_ledger to plain; revoke create on schema public from public")
        job = begin(f"{database.dsn} user=plain")
        job.seal([(1, "a", "")])
        assert staged(database) == []
        with pytest.raises(PostgresError, match=r"rejects a row: invalid input syntax .*the row is id=x"):
            job.seal([("x", "a", "")])
        job.commit()
    finally:
        database.execute("drop owned by plain; drop role plain")
    assert rows(database) == [(1, "a", "")]
    (told,) = [it.getMessage() for it in caplog.records if "may not create" in it.getMessage()]
    assert "sink 'out'" in told
    assert "grant create on the schema" in told


def test_rows_that_the_table_rejects_fail_before_the_snapshot(database: Database, begin: Callable[..., Job]) -> None:
    database.execute("create table t (id int primary key, name text unique, n int check (n > 0))")
    job = begin(database.dsn)
    with pytest.raises(PostgresError, match=r"rejects a row: invalid input syntax for type integer"):
        job.seal([("one", "a", 1)])
    with pytest.raises(PostgresError, match="violates check"):
        job.seal([(1, "a", -1)], mark="u")
    job.seal([(1, "a", 1)], mark="v")
    job.seal([{"id": 1, "name": "b", "n": 1}], mark="w")
    job.seal([(2, "a", 1)], mark="x")  # the name is free once the transaction before is committed
    with pytest.raises(PostgresError, match="violates unique"):
        job.seal([(3, "b", 1)], mark="y")
    job.commit()
    assert rows(database) == [(1, "b", 1), (2, "a", 1)]
    job.sink.abort([])
    assert staged(database) == []


def test_the_next_run_drops_what_is_not_committed(database: Database, job: Job) -> None:
    job.seal([(1, "a", "")])
    job.seal([(2, "b", "")])
    kept = job._pending[0]
    late = job.copy()
    job._pending = [kept]
    assert len(staged(database)) == 2
    job.restart()
    assert rows(database) == [(1, "a", "")]
    assert staged(database) == []
    writer = late.open_writer(Share(3, 0, 1, "late"))
    writer.write(late.encode([None], [(3, "c", "")], [None]))
    sealed = writer.seal()
    with pytest.raises(FencedError):
        late.commit([(3, (sealed,))])
    late.close()
    job.restart(transaction=1)
    assert rows(database) == [(1, "a", "")]
    assert staged(database) == []


def test_a_run_that_is_replaced_leaves_the_rows_of_the_next(database: Database, job: Job) -> None:
    former = job.sink
    job.sink = job._make()
    job.restart()
    job.seal([(1, "a", "")])
    former.abort([])
    assert len(staged(database)) == 1
    with pytest.raises(FencedError):
        former.commit([(1, ())])
    former.close()
    job.commit()
    assert rows(database) == [(1, "a", "")]

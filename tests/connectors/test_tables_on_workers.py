"""Tables whose rows workers keep: each row is there once, and the snapshots have only names."""

from __future__ import annotations

import pickle
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import redis
from hypothesis import HealthCheck, given, settings

from malflow import OperatorError, SingleThreadRuntime, StreamProvider
from malflow.connectors.postgres import PostgresSink
from malflow.connectors.redis import RedisSink
from malflow.connectors.sql import SqlSink
from malflow.engine import sink_transactions
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program
from malflow.engine.sink_transactions import SinkTransactions
from malflow.graph import Graph
from malflow.runtime.transport.pickling import dumps_by_value
from malflow.sinks import Share, SinkOwner
from malflow.snapshot import FsspecBackend
from malflow.store.opening import open_store
from malflow.testing import ScriptedSource
from malflow.testing.faults import Crash
from tests.kit.nights import at_night
from tests.spark.simulation import Cluster, Later, Plan, settings_at, simulated
from tests.spark.test_distributed_sinks import KEYS, PARTS, POINTS, SIZE, Pieces, assert_once, count, paused, plans

pytest.importorskip("pyspark")

pytestmark = pytest.mark.slow

ROW_KEYS = 7
"""The keys of the rows; those of the stream are others."""

OFTEN = [
    Plan(asks=True, doubled=True, again=frozenset({1, 3})),
    Plan(rescale=3),
    Plan(asks=True),
    Plan(crash=True),
    Plan(asks=True, doubled=True, down=True),
    Plan(),
    Plan(asks=True, killed=0),
]
"""Faults of each kind."""


@dataclass
class Table:
    """A new table in some system.

    Attributes:
        append: makes a sink that keeps all rows; None if the system has none.
        upsert: makes a sink that keeps the last row of each key.
        read: returns the rows.
        staged: returns the names of staged tables that are not committed.
    """

    append: Callable[[], Any] | None
    upsert: Callable[[], Any]
    read: Callable[[], list[dict[str, int]]]
    staged: Callable[[], list[Any]] = list


def sqlite(folder: Path) -> Table:
    path = folder / f"{uuid4().hex}.db"

    def query(text: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(text).fetchall()

    query("create table rows (n int, nth int)")
    query("create table last (key int primary key, n int unique check (n >= 0))")

    def read() -> list[dict[str, int]]:
        rows = [{"n": n, "nth": nth} for n, nth in query("select n, nth from rows order by rowid")]
        return rows or [{"key": key, "n": n} for key, n in query("select key, n from last")]

    url = f"sqlite:///{path}"
    return Table(lambda: SqlSink(url, "rows", key=()), lambda: SqlSink(url, "last"), read)


@pytest.fixture
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Table]]:
    """Return a function that makes a table in the system of the test's parameter."""
    if request.param == "sqlite":
        yield lambda: sqlite(tmp_path)
    elif request.param == "postgres":
        with psycopg.connect(request.getfixturevalue("postgres_dsn"), autocommit=True) as connection:
            yield lambda: postgres(connection, request.getfixturevalue("postgres_dsn"))
    else:
        url = request.getfixturevalue("redis_url")
        with redis.Redis.from_url(url) as client:
            yield lambda: in_redis(client, url)


def postgres(connection: psycopg.Connection[Any], dsn: str) -> Table:
    schema = f"s_{uuid4().hex[:12]}"
    connection.execute(
        f"create schema {schema}; create table {schema}.rows (at serial, n int, nth int);"
        f"create table {schema}.last (key int primary key, n int unique check (n >= 0))".encode()
    )

    def query(text: str) -> list[Any]:
        return connection.execute(
            text.replace("schema.", f"{schema}.").replace("'schema'", f"'{schema}'").encode()
        ).fetchall()

    def read() -> list[dict[str, int]]:
        rows = [{"n": n, "nth": nth} for n, nth in query("select n, nth from schema.rows order by at")]
        return rows or [{"key": key, "n": n} for key, n in query("select key, n from schema.last")]

    def staged() -> list[Any]:
        return query("select tablename from pg_tables where schemaname = 'schema' and tablename like 'malflow%'")

    rows = f"{schema}.rows"
    return Table(
        lambda: PostgresSink(dsn, rows, key=(), columns=["n", "nth"]),
        lambda: PostgresSink(dsn, f"{schema}.last"),
        read,
        staged,
    )


class KeyedRedisSink(RedisSink[Any, Any, Any]):
    """Takes the row's key from the value."""

    def encode(self, keys: Any, values: Any, timestamps: Any) -> Any:
        return super().encode([it["key"] for it in values], [it["n"] for it in values], timestamps)


def in_redis(client: Any, url: str) -> Table:
    name = f"t-{uuid4().hex}"

    def sink() -> RedisSink[Any, Any, Any]:
        return KeyedRedisSink(url, table=name)

    def read() -> list[dict[str, int]]:
        return [{"key": int(key), "n": int(value)} for key, value in client.hgetall(name).items()]

    return Table(None, sink, read)


def numbers_of(provider: StreamProvider) -> Any:
    script = {part: paused(range(SIZE * number, SIZE * number + SIZE)) for number, part in enumerate(PARTS)}
    return provider.new_stream().source("numbers", ScriptedSource(script))


def rows_into(provider: StreamProvider, sink: Any, of: Callable[[int], int] = int) -> None:
    """Write each number under one of seven keys; rows of a key come from all workers."""
    keyed = numbers_of(provider).key_distribute("number", lambda msg: msg.value)
    keyed.map("row", lambda n: {"key": n % ROW_KEYS, "n": of(n)}).sink("out", sink)


def latest(sink: Any, of: Callable[[int], int] = int) -> Program:
    graph = Graph()
    rows_into(StreamProvider(graph), sink, of)
    return compile_graph(graph)


def counted(sink: Any) -> Program:
    """Return a program that writes each number, with the count of earlier ones of its key."""
    graph = Graph()
    keyed = numbers_of(StreamProvider(graph)).key_distribute("key", lambda msg: msg.value % KEYS)
    keyed.stateful_map("count", count, default=int).sink("out", sink)
    return compile_graph(graph)


def assert_latest(rows: list[dict[str, int]]) -> None:
    """Check that each key has the last of the rows that some part has for it, each of them read in another tick."""
    parts = [range(SIZE * number, SIZE * number + SIZE) for number in range(len(PARTS))]
    last = {key: {max(n for n in part if n % ROW_KEYS == key) for part in parts} for key in range(ROW_KEYS)}
    assert sorted(row["key"] for row in rows) == sorted(last)
    for row in rows:
        assert row["n"] in last[row["key"]]


SYSTEMS = ["sqlite", "postgres", "redis"]


@pytest.mark.parametrize("table", SYSTEMS[:2], indirect=True)
def test_each_row_is_appended_once(table: Callable[[], Table], tmp_path: Path) -> None:
    it = table()
    assert it.append is not None
    backend = FsspecBackend(str(tmp_path / "state"), job="rows")
    with simulated():
        Cluster(OFTEN).run(counted(it.append()), settings_at(str(tmp_path / "scratch"), backend), 2)
    assert_once(it.read())
    assert not it.staged()
    assert not [*tmp_path.glob("state/rows/s/*/*")]


@pytest.mark.parametrize("table", SYSTEMS[:2], indirect=True)
def test_a_row_that_the_table_rejects_ends_the_run_before_its_snapshot(
    table: Callable[[], Table], tmp_path: Path
) -> None:
    it, backend = table(), FsspecBackend(str(tmp_path / "state"), job="rows")
    program = latest(it.upsert(), lambda n: n if n < SIZE - 1 else -n)
    cluster = Cluster([Plan(), Plan(asks=True)])
    with simulated(), pytest.raises(OperatorError, match=r"'out' failed at check_sealed: .*rejects (the|a) row.*-"):
        cluster.run(program, settings_at(str(tmp_path / "scratch"), backend), 2)
    assert all(row["n"] >= 0 for row in it.read())
    with simulated():
        Cluster([]).run(latest(it.upsert()), settings_at(str(tmp_path / "scratch"), backend), 2)
    assert_latest(it.read())


@pytest.mark.parametrize("table", SYSTEMS[:2], indirect=True)
def test_a_row_is_checked_after_those_that_are_not_committed(table: Callable[[], Table], tmp_path: Path) -> None:
    """A row takes the unique name that another row gives up in a transaction before."""
    it = table()
    store, copies = open_store(str(tmp_path), {}), []
    sink = it.upsert()
    sink.use_store(store)
    sink.fence(SinkOwner("job", "out", 1))
    transactions = SinkTransactions("out", sink, Pieces())
    for number, row in enumerate(({"key": 1, "n": 7}, {"key": 1, "n": 8}, {"key": 2, "n": 7}), 1):
        copies.append(pickle.loads(dumps_by_value(sink)))
        writer = copies[-1].open_writer(Share(number, 0, 1, f"t{number}"))
        writer.write(copies[-1].encode([None], [row], [None]))
        cut = transactions.cut()
        assert cut is not None
        cut.sealed = [writer.seal()]
        transactions.check(cut)
        transactions.add(cut)
        if number == 1:
            transactions.commit(transactions.position)
    transactions.commit(transactions.position)
    sink.close()
    assert sorted(row["n"] for row in it.read()) == [7, 8]


@pytest.mark.fault("I24")
@pytest.mark.parametrize("table", SYSTEMS, indirect=True)
@pytest.mark.parametrize(
    "point",
    at_night(
        ["share-sealed", "before-manifest", "manifest-written", "before-commit", "committed"],
        but=["share-sealed", "manifest-written", "before-commit"],
    ),
)
def test_a_run_that_is_killed_at_any_point_continues(table: Callable[[], Table], point: str, tmp_path: Path) -> None:
    it, later, passed = table(), Later(), 0
    backend = FsspecBackend(str(tmp_path / "state"), job="rows")
    backend._executor = lambda: later  # type: ignore[assignment] # a crash ends it, too

    def crash(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed in (1, 3):
            raise Crash(name)

    with simulated(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(POINTS[point], "failpoint", crash)
        plans = [Plan(asks=True), Plan(), Plan(asks=True, rescale=3), Plan(asks=True)] * 2
        Cluster(plans, later=later).run(latest(it.upsert()), settings_at(str(tmp_path / "scratch"), backend), 2)
    assert passed > 3
    assert_latest(it.read())
    assert not it.staged()


@pytest.mark.parametrize("table", SYSTEMS, indirect=True)
def test_one_thread_continues_what_workers_have_sealed(table: Callable[[], Table], tmp_path: Path) -> None:
    it, backend = table(), FsspecBackend(str(tmp_path / "state"), job="rows")

    def leave(name: str) -> None:
        if name == "before-commit":
            raise KeyboardInterrupt

    with simulated(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(sink_transactions, "failpoint", leave)
        cluster, program = Cluster([Plan(), Plan(asks=True)]), latest(it.upsert())
        with pytest.raises(KeyboardInterrupt):
            cluster.run(program, settings_at(str(tmp_path / "scratch"), backend), 2)
    assert it.read() == []
    SingleThreadRuntime(lambda provider: rows_into(provider, it.upsert()), backend, timedelta(seconds=1)).execute()
    assert_latest(it.read())
    assert not it.staged()
    assert not [*tmp_path.glob("state/rows/s/*/*")]


@pytest.mark.parametrize("table", SYSTEMS, indirect=True)
@settings(
    max_examples=max(5, settings().max_examples // 8), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(plans=plans)
def test_of_the_rows_with_a_key_the_last_is_there(table: Callable[[], Table], plans: list[Plan]) -> None:
    it, later = table(), Later()
    with tempfile.TemporaryDirectory() as folder, simulated():
        backend = FsspecBackend(f"{folder}/state", job="rows")
        backend._executor = lambda: later  # type: ignore[assignment] # the test runs its work by hand
        sink = it.upsert()
        sink.max_pending = 100
        Cluster(plans, later=later).run(latest(sink), settings_at(f"{folder}/scratch", backend), 2)
        assert_latest(it.read())
        assert not it.staged()
        assert not [*Path(folder).glob("state/rows/s/*/*")]

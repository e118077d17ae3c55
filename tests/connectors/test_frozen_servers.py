"""Frozen servers: a run waits for them up to its limit, then ends with an error, and responds to signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from itertools import count, islice
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import sqlalchemy as sa

from malflow.connectors.postgres import PostgresChanges, PostgresError, PostgresSink, PostgresSource
from malflow.connectors.redis import RedisSink, RedisStreamSource
from malflow.connectors.sql import SqlError, SqlSink
from malflow.testing import assert_sink, assert_source
from malflow.testing.sink_laws import SINK_LAWS
from malflow.testing.source_laws import SOURCE_LAWS
from tests.connectors.postgres.kit import poll_until
from tests.kit.freezing import frozen
from tests.kit.nights import at_night
from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.redis_server import RedisServer
from tests.servers.server import Server

pytestmark = pytest.mark.slow

RETRY = timedelta(seconds=4)
PATIENCE = 30
"""Seconds within which a wait of `RETRY` must have ended on any machine."""


def postgres(start: Callable[[], Postgres]) -> tuple[Postgres, str]:
    server = start()
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute("create table t (n int primary key); create table u (n int)")
        connection.execute("insert into t select generate_series(1, 50)")
    return server, server.address


def mariadb(start: Callable[[], MariaDB]) -> tuple[MariaDB, str]:
    server = start()
    with sa.create_engine(server.address).connect() as connection:
        connection.execute(sa.text("create database d"))
        connection.execute(sa.text("create table d.t (n int)"))
    return server, f"{server.address}/d"


@pytest.fixture(params=at_night(["postgres", "mariadb"], but=["postgres"]))
def written(request: pytest.FixtureRequest) -> tuple[Server, Any, type[Exception]]:
    """Return a server, a sink to it, and the class of its errors."""
    if request.param == "postgres":
        server, address = postgres(request.getfixturevalue("own_postgres"))
        return server, PostgresSink(address, "u", key=(), delivery="at-least-once", retry_for=RETRY), PostgresError
    other, url = mariadb(request.getfixturevalue("own_mariadb"))
    return other, SqlSink(url, "t", key=(), delivery="at-least-once", retry_for=RETRY), SqlError


def write(sink: Any, number: int) -> None:
    sink.sink_batch([None], [{"n": number}], [0])
    sink.flush()


@pytest.mark.nightly
def test_sink_whose_server_is_frozen(written: Any) -> None:
    server, sink, error = written
    with closing(sink):
        write(sink, 1)
        with frozen(server):
            begun = time.monotonic()
            with pytest.raises(error, match=r"has not answered for|timeout expired|timed out|can't connect"):
                write(sink, 2)
            assert RETRY.total_seconds() - 0.5 <= time.monotonic() - begun < PATIENCE
        write(sink, 3)  # it may be asked again


def test_sink_whose_server_thaws_in_time(written: Any) -> None:
    server, sink, _ = written
    with closing(sink):
        write(sink, 1)
        with frozen(server):
            waiting = threading.Thread(target=write, args=(sink, 2))
            waiting.start()
            waiting.join(RETRY.total_seconds() / 2)
            assert waiting.is_alive()
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
        write(sink, 3)


@pytest.mark.nightly
def test_statement_that_takes_longer_than_a_lost_connection_is_tried_again(own_postgres: Any) -> None:
    _, address = postgres(own_postgres)
    with psycopg.connect(address) as other:
        other.execute("lock table u")
        sink = PostgresSink(address, "u", key=(), delivery="at-least-once", retry_for=timedelta(seconds=1))
        waiting = threading.Thread(target=write, args=(sink, 1))
        waiting.start()
        waiting.join(4)
        assert waiting.is_alive()  # the server answers others: it is not frozen
        other.rollback()
    waiting.join(PATIENCE)
    sink.close()
    with psycopg.connect(address) as connection:
        assert connection.execute("select n from u").fetchall() == [(1,)]


@pytest.mark.parametrize("kind", ["changes", "source"])
@pytest.mark.nightly
def test_source_whose_server_is_frozen(kind: str, own_postgres: Any) -> None:
    server, address = postgres(own_postgres)
    source: Any = (
        PostgresChanges(address, ["t"], slot="s", copy=False, retry_for=RETRY)
        if kind == "changes"
        else PostgresSource(address, "t", poll_every=timedelta(seconds=0.1), page_rows=10, retry_for=RETRY)
    )
    [part] = source.list_parts()
    reader = source.build_part(part, None)
    if kind == "changes":
        poll_until(reader, lambda _: reader.snapshot()[0] == "stream")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("insert into t values (100)")
        poll_until(reader, len)
    else:
        poll_until(reader, lambda got: len(got) == 50)
    with frozen(server):
        time.sleep(RETRY.total_seconds() / 4)
        assert not reader.poll_batch(10)[0]
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("insert into t values (101)")
    assert len(poll_until(reader, len)) == 1  # it thawed in time
    with frozen(server), pytest.raises(PostgresError, match=r"has not answered for|timeout expired"):
        poll_until(reader, lambda _: False)
    reader.suspend()


@contextmanager
def program(kind: str, address: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a job until it has seen a record."""
    command = [sys.executable, "-m", "tests.connectors.frozen_program", kind, address, str(folder)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if kind == "postgres changes":
            with psycopg.connect(address, autocommit=True) as connection:
                query = "select from pg_replication_slots where slot_name = 'frozen' and active"
                while connection.execute(query).fetchone() is None:
                    time.sleep(0.05)
                connection.execute("insert into t values (1000)")
        assert child.stdout is not None
        assert child.stdout.readline()
        time.sleep(1)  # it writes a few times
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("kind", ["postgres sink", "postgres changes", "mariadb sink"])
@pytest.mark.nightly
def test_signal_while_the_server_is_frozen(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server: Server
    if kind == "mariadb sink":
        server, address = mariadb(request.getfixturevalue("own_mariadb"))
    else:
        server, address = postgres(request.getfixturevalue("own_postgres"))
        if kind == "postgres sink":
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute("drop table t; create table t (n int)")
    with program(kind, address, tmp_path) as child, frozen(server):
        time.sleep(1)
        child.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        child.wait(PATIENCE)
        assert time.monotonic() - begun < 8  # a second or two, but on a busy machine


def only(law: str, laws: Sequence[str]) -> list[str]:
    """Return the other laws, but those on which it builds."""
    return [it for it in laws if it not in (law, "parts", "records")]


@pytest.mark.nightly
def test_law_of_a_table_of_postgres_as_a_source(own_postgres: Any) -> None:
    server, address = postgres(own_postgres)
    numbers = count(51)

    def add(size: int) -> None:
        with psycopg.connect(address, autocommit=True) as connection:
            for number in islice(numbers, size):
                connection.execute("insert into t values (%s)", (number,))

    options: Any = {"poll_every": timedelta(seconds=0.05), "retry_for": RETRY}
    assert_source(
        lambda: PostgresSource(address, "t", **options),
        count=50,
        add_records=add,
        freeze=lambda: frozen(server),
        without=only("frozen", SOURCE_LAWS),
    )


@pytest.mark.nightly
def test_law_of_a_stream_of_redis_as_a_source(own_redis: Any) -> None:
    server: RedisServer = own_redis()

    def add(size: int) -> None:
        with redis.Redis.from_url(server.address) as client:
            for number in range(size):
                client.xadd("s", {"n": number})

    add(5)
    assert_source(
        lambda: RedisStreamSource(server.address, "s", retry_for=RETRY),
        count=5,
        add_records=add,
        freeze=lambda: frozen(server),
        timeout=60,
        without=only("frozen", SOURCE_LAWS),
    )


@pytest.mark.nightly
def test_law_of_a_table_of_postgres_as_a_sink(own_postgres: Any) -> None:
    server, address = postgres(own_postgres)

    def read() -> list[Any]:
        with psycopg.connect(address) as connection:
            return [{"n": n} for (n,) in connection.execute("select n from u")]

    assert_sink(
        lambda: PostgresSink(address, "u", key=(), retry_for=RETRY),
        read,
        make_value=lambda number: {"n": number},
        freeze=lambda: frozen(server),
        without=only("frozen", SINK_LAWS),
    )


@pytest.mark.nightly
def test_law_of_a_table_of_mariadb_as_a_sink(own_mariadb: Any) -> None:
    server, url = mariadb(own_mariadb)

    def read() -> list[Any]:
        with sa.create_engine(url).connect() as connection:
            return [{"n": n} for (n,) in connection.execute(sa.text("select n from t"))]

    assert_sink(
        lambda: SqlSink(url, "t", key=(), retry_for=RETRY),
        read,
        make_value=lambda number: {"n": number},
        freeze=lambda: frozen(server),
        without=only("frozen", SINK_LAWS),
    )


@pytest.mark.nightly
def test_law_of_a_table_of_redis_as_a_sink(own_redis: Any) -> None:
    server: RedisServer = own_redis()

    def read() -> list[int]:
        with redis.Redis.from_url(server.address) as client:
            return [int(value) for value in client.hgetall("table").values()]

    assert_sink(
        lambda: RedisSink(server.address, table="table", retry_for=RETRY),
        read,
        freeze=lambda: frozen(server),
        timeout=60,
        without=only("frozen", SINK_LAWS),
    )

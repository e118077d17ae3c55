"""Look-ups in real systems: rows by key, keys without rows, servers that are restarted in the middle, bad answers."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import redis
import sqlalchemy as sa

from malflow import GraphError, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.connectors.http import HttpLookup, HttpLookupError
from malflow.connectors.postgres import PostgresError, PostgresLookup
from malflow.connectors.redis import RedisFailed, RedisLookup
from malflow.connectors.sql import SqlError, SqlLookup
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from tests.connectors.postgres.kit import Database
from tests.connectors.sql.kit import made
from tests.kit.nights import at_night
from tests.servers.postgres import Postgres
from tests.servers.redis_server import RedisServer

pytestmark = pytest.mark.slow

SECRET = "hidden-token-of-the-path"  # noqa: S105 - of a server of this test


# Postgres


def test_rows_of_postgres(database: Database) -> None:
    database.execute(
        "create table users (id int primary key, name text, born date);"
        "insert into users select n, 'n' || n, date '2000-01-01' + n from generate_series(1, 25000, 2) n"
    )
    table = PostgresLookup(database.dsn, "users")
    assert table.get_many([3, 2, 1]) == {
        3: {"id": 3, "name": "n3", "born": date(2000, 1, 4)},
        1: {"id": 1, "name": "n1", "born": date(2000, 1, 2)},
    }
    copy: Any = pickle.loads(pickle.dumps(table))
    assert len(copy.get_many(range(25_000))) == 12_500
    copy.close()
    table.close()
    assert table.get_many([2]) == {}
    with pytest.raises(PostgresError, match=r"looking up rows of users failed.*invalid input syntax for type integer"):
        table.get_many(["one"])
    assert len(table.get_many([5])) == 1, "after an error"
    table.close()


def test_keys_are_equal_as_the_server_has_them(database: Database) -> None:
    database.execute(
        "create collation nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
        "create table t (name text collate nocase, code char(4), n numeric(8, 2), v int, primary key (name, code));"
        "insert into t values ('Ann', 'ab', 1.50, 1), ('bob', 'cd', 2, 2)"
    )
    table = PostgresLookup(database.dsn, "t", columns=["v"], row=tuple)
    found = table.get_many([("ann", "ab"), ("Ann", "ab"), ("BOB", "cd  "), ("bob", "xx")])
    assert found == {("ann", "ab"): (1,), ("Ann", "ab"): (1,), ("BOB", "cd  "): (2,)}
    table.close()
    by_number = PostgresLookup(database.dsn, "t", key=["n"], columns=["v"], row=tuple)
    assert by_number.get_many([1.5, 2]) == {1.5: (1,), 2: (2,)}
    by_number.close()
    with pytest.raises(
        PostgresError, match=r"looked up by name, code, so a key must be a tuple of 2 values; got 'ann'"
    ):
        table.get_many(["ann"])
    table.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, r"table public\.t has no primary key; pass key="),
        ({"key": ["b"]}, r"several rows whose b is 1; look up by columns that are unique"),
        ({"key": ["x"]}, r"has no column x; it has a, b"),
        ({"key": ["a"], "columns": ["y"]}, r"has no column y; it has a, b"),
    ],
)
def test_a_table_that_does_not_fit(database: Database, options: Any, problem: str) -> None:
    database.execute("create table t (a int, b int); insert into t values (1, 1), (2, 1)")
    table = PostgresLookup(database.dsn, "t", **options)
    with pytest.raises(PostgresError, match=problem):
        table.get_many([1])
    table.close()


# SQL


def name_of(name: str) -> str:
    return name


def test_rows_of_a_database(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "users.db")) as connection, connection:
        connection.execute("create table users (id int, city text, name text, primary key (id, city))")
        connection.executemany("insert into users values (?, ?, ?)", [(n, "x", f"n{n}") for n in range(0, 3000, 3)])
    table = SqlLookup(f"sqlite:///{tmp_path}/users.db", "users", columns=["name"], row=name_of)
    keys = [(n, "x") for n in range(2000)]
    assert table.get_many(keys) == {(n, "x"): f"n{n}" for n in range(0, 2000, 3)}
    copy: Any = pickle.loads(pickle.dumps(table))
    assert copy.get_many([(3, "x"), (4, "x")]) == {(3, "x"): "n3"}
    for it in (copy, table):
        it.close()
    with pytest.raises(SqlError, match=r"table none in .* does not exist|'none' does not exist"):
        SqlLookup(f"sqlite:///{tmp_path}/users.db", "none").get_many([1])


def test_a_spelling_that_only_the_database_finds_is_an_error(mariadb_url: str) -> None:
    with made(sa.make_url(mariadb_url), f"t_{uuid4().hex}") as database:
        database.execute(
            "create table t (name varchar(20) primary key, n int)", "insert into t values ('Ann', 1), ('bob', 2)"
        )
        table = SqlLookup(database.url, "t", columns=["n"], row=tuple)
        assert table.get_many(["Ann", "bob", "cid"]) == {"Ann": (1,), "bob": (2,)}
        for keys in (["ann"], ["Ann", "ann"]):
            with pytest.raises(
                SqlError, match=r"a row for another spelling of '(A|a)nn'.*in the spelling of the table"
            ):
                table.get_many(keys)
        table.close()


# Redis


def test_values_of_redis(redis_url: str) -> None:
    name = f"t-{uuid4().hex}"
    with redis.Redis.from_url(redis_url) as client:
        client.hset(name, mapping={str(n): json.dumps({"n": n}) for n in range(0, 3000, 2)})
        client.mset({f"{name}:a": b"1", f"{name}:b": b"\xff"})
    table = RedisLookup(redis_url, table=name, decode="json")
    assert table.get_many(range(3000)) == {n: {"n": n} for n in range(0, 3000, 2)}
    copy: Any = pickle.loads(pickle.dumps(table))
    assert copy.get_many([4]) == {4: {"n": 4}}
    copy.close()
    table.close()
    by_prefix = RedisLookup(redis_url, prefix=f"{name}:", decode="text")
    assert by_prefix.get_many(["a", "c"]) == {"a": "1"}
    with pytest.raises(
        RedisFailed, match=r"the value of key 'b' in RedisLookup\(.*\) can't be decoded: UnicodeDecodeError"
    ):
        by_prefix.get_many(["a", "b"])
    with pytest.raises(RedisFailed, match=r"key \('a',\) can't be encoded.*pass encode_key='json'"):
        by_prefix.get_many([("a",)])
    no_hash = RedisLookup(redis_url, table=f"{name}:a")
    with pytest.raises(RedisFailed, match="WRONGTYPE"):
        no_hash.get_many(["a"])
    no_hash.close()
    by_prefix.close()


# HTTP


@dataclass
class Server:
    """A server that knows users by number, and answers as it is told before that.

    Attributes:
        answers: a status and a body for each request that it does not answer itself.
    """

    url: str = ""
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    told = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            told.requests.append((self.command, self.path, body))
            if told.answers:
                self.reply(*told.answers.pop(0))
            elif self.command == "POST":
                self.reply(200, json.dumps([n * 2 if n % 3 else None for n in json.loads(body)]).encode())
            else:
                n = int(self.path.rpartition("/")[2])
                self.reply(*((200, json.dumps(n * 2).encode()) if n % 3 else (404, b"none")))

        do_GET = do_POST  # noqa: N815 - as http.server names it

        def reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) if status != 206 else len(body) + 9))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        told.url = f"http://127.0.0.1:{http.server_port}/{SECRET}/users"
        yield told
        http.shutdown()


@pytest.mark.parametrize("suffix", ["", "/{}"])
def test_answers_of_a_web_server(server: Server, suffix: str) -> None:
    table = HttpLookup(f"{server.url}{suffix}", batch=10, at_once=3)
    assert {key: row for key, row in table.get_many(range(35)).items() if row is not None} == {
        n: n * 2 for n in range(35) if n % 3
    }
    assert len(server.requests) == (35 if suffix else 4)
    copy: Any = pickle.loads(pickle.dumps(table))
    assert copy.get_many([1]) == {1: 2}
    copy.close()
    server.answers = [(503, b""), (429, b"")]
    table._options["retries"] = 3
    assert table.get_many([2]) == {2: 4}
    table.close()


def test_keys_are_escaped_in_their_url(server: Server) -> None:
    server.answers = [(200, b'"x"')]
    table = HttpLookup(f"{server.url}/{{}}?full=1")
    assert table.get_many(["a/b ?&"]) == {"a/b ?&": "x"}
    assert server.requests[0][1].endswith("/users/a%2Fb%20%3F%26?full=1")
    table.close()


@pytest.mark.parametrize("suffix", ["", "/{}"])
def test_none_is_not_asked_for_and_equal_numbers_are_one(server: Server, suffix: str) -> None:
    table = HttpLookup(f"{server.url}{suffix}")
    assert table.get_many([None]) == {}
    assert table.get_many([2.0, None]) == {2: 4}
    assert server.requests == [("GET", f"/{SECRET}/users/2", b"") if suffix else ("POST", f"/{SECRET}/users", b"[2]")]
    table.close()


@pytest.mark.parametrize("key", ["", ".", "..", True, (1, 2), b"1", float("nan"), "\ud800"])
def test_a_key_that_would_ask_for_something_else_is_refused(server: Server, key: object) -> None:
    table = HttpLookup(f"{server.url}/{{}}", retries=0)
    with pytest.raises(HttpLookupError, match=r"can't be asked: .*\(for key ") as caught:
        table.get_many([key])
    assert repr(key).strip("'") in str(caught.value)
    assert server.requests == []
    table.close()


def test_a_part_of_a_segment_may_be_dots(server: Server) -> None:
    server.answers = [(200, b"1"), (200, b"2")]
    table = HttpLookup(f"{server.url}/u{{}}.json?k={{}}", at_once=1)
    assert table.get_many(["..", ""]) == {"..": 1, "": 2}
    assert sorted(path for _, path, _ in server.requests) == [
        f"/{SECRET}/users/u...json?k=..",
        f"/{SECRET}/users/u.json?k=",
    ]
    table.close()


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, b'{"1": 5, "7": 6}', "answered with a row of '7', which was not asked for"),
        (200, b"[1]", r"must answer with an array of 2 rows, or an object; got an array of 1"),
        (200, b"null", r"must answer with an array of 2 rows, or an object; got None"),
        (200, b"<html>", "answered with a body that can't be decoded: JSONDecodeError"),
        (200, b"[" + b"1" * 3000 + b"]", "answered more than 2,000 bytes"),
        (206, b"[1, 2]", "broke off its response"),
        (403, f"no {SECRET}".encode(), r"answered 403 Forbidden: no \*\*\*"),
        (301, b"", "answered 301 Moved Permanently; pass the URL that it redirects to"),
    ],
)
def test_an_answer_that_does_not_fit_names_the_key_and_no_secret(
    server: Server, status: int, body: bytes, problem: str
) -> None:
    server.answers = [(status, body)]
    table = HttpLookup(server.url, retries=0, largest=2_000, timeout=0.5)
    with pytest.raises(HttpLookupError, match=problem) as caught:
        table.get_many([1, 2])
    assert "(for key 1)" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(table)
    server.answers = [(200, b'{"1": 5}')]
    assert table.get_many([1, 2]) == {1: 5}, "the next request"
    table.close()


def test_a_server_that_is_too_slow_is_named(server: Server) -> None:
    table = HttpLookup("http://127.0.0.1:9/", retries=0, timeout=0.2)
    with pytest.raises(HttpLookupError, match=r"http://127.0.0.1:9 could not be reached"):
        table.get_many([1])


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: HttpLookup("http://h/{}", encode=lambda keys: repr(keys).encode()), "requests each key by itself"),
        (lambda: HttpLookup("ftp://h"), "HttpLookup url must be one such as"),
        (lambda: HttpLookup("http://h", headers={"a": "b\n"}), "HttpLookup header 'a' has a line break"),
        (lambda: RedisLookup("redis://h", table="a", prefix="b"), "needs table='...', a hash, or prefix="),
        (lambda: PostgresLookup("host=h", ""), "table"),
        (lambda: SqlLookup("sqlite://", ""), "table"),
    ],
)
def test_arguments_are_checked(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        make()


# In a dataflow, with servers that are restarted


def looked_up(numbers: Sequence[int], table: Any, crash: Callable[[int], None] = lambda _: None) -> list[Any]:
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("numbers", SingleIteratorSource(numbers))
        seen = stream.inspect("crash", lambda msg, _: crash(msg.value))
        seen.lookup("names", None, table, lambda n, row: (n, row)).sink("out", sink)

    SingleThreadRuntime(build).execute()
    return [message.value for message in sink]


@pytest.mark.fault("F17")
@pytest.mark.parametrize("kind", at_night(["postgres", "redis"], but=["redis"]))
def test_a_server_that_is_killed_in_the_middle_loses_no_answer(
    kind: str, own_postgres: Callable[[], Postgres], own_redis: Callable[[], RedisServer]
) -> None:
    table: Any
    server: Any
    if kind == "postgres":
        server = own_postgres()
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute("create table t (n int primary key, name text)")
            connection.execute("insert into t select n, 'n' || n from generate_series(0, 299) n")
        table = PostgresLookup(server.address, "t", columns=["name"], row=lambda name: name)
    else:
        server = own_redis()
        with redis.Redis.from_url(server.address) as client:
            client.mset({f"n:{n}": f"n{n}" for n in range(300)})
            client.save()
        table = RedisLookup(server.address, prefix="n:", decode="text")

    def crash(number: int) -> None:
        if number in (50, 200):
            server.kill()
            server.start()

    assert looked_up(range(300), table, crash) == [(n, f"n{n}") for n in range(300)]


@pytest.mark.fault("F17")
def test_a_server_that_stays_away_is_named_with_the_key(own_redis: Callable[[], RedisServer]) -> None:
    server = own_redis()
    table = RedisLookup(server.address, prefix="n:", retry_for=timedelta(0))
    with pytest.raises(
        OperatorError, match=r"'names' failed at .*value 7, .*look-up of 7 .*in RedisLookup\(.*looking up 7 failed"
    ):
        looked_up([7], table, lambda _: server.kill())

"""The servers of a session: each answers, keeps its data through a crash, and ends with the session."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import psycopg
import pymysql
import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # it is documented there

from tests.kit.freezing import frozen
from tests.kit.waiting import wait_until
from tests.servers import debian, watch
from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDB
from tests.servers.plugin import missing_servers
from tests.servers.postgres import Postgres
from tests.servers.redis_server import RedisServer
from tests.servers.server import Server, ServerError
from tests.servers.sessions import Session

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def new_topic(servers: str) -> str:
    topic = f"t-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    return topic


def produce(servers: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    producer.produce(topic, value)
    assert producer.flush(60) == 0


def consume(servers: str, topic: str) -> bytes:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        [message] = consumer.consume(1, 60)
        return bytes(message.value() or b"")
    finally:
        consumer.close()


def test_shared_servers_answer(kafka_servers: str, postgres_dsn: str, redis_url: str) -> None:
    topic = new_topic(kafka_servers)
    produce(kafka_servers, topic, b"hello")
    assert consume(kafka_servers, topic) == b"hello"
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("show wal_level").fetchone() == ("logical",)
        assert connection.execute("show max_prepared_transactions").fetchone() == ("10",)
    with redis.Redis.from_url(redis_url) as client:
        assert client.config_get("appendfsync") == {"appendfsync": "always"}


def test_shared_server_of_two_objects(server_session: Session, redis_url: str) -> None:
    assert server_session.shared(RedisServer).address == redis_url


@pytest.mark.nightly
def test_shared_server_that_dies_is_started_again(tmp_path: Path) -> None:
    session, told = Session(os.getpid()), list[str]()
    session.folder = tmp_path / "session"
    session.folder.mkdir()
    try:
        server = session.shared(RedisServer)
        session.revive(told.append)
        assert told == []
        server.kill()
        session.revive(told.append)
        assert server.answers()
        assert len(told) == 1
        assert "Redis has died:\n" in told[0]
    finally:
        session.end()


@pytest.mark.nightly
def test_records_of_kafka_through_a_crash(own_kafka: Callable[[], Kafka]) -> None:
    broker = own_kafka()
    topic = new_topic(broker.address)
    produce(broker.address, topic, b"kept")
    broker.kill()
    assert not broker.is_running
    broker.start()
    assert consume(broker.address, topic) == b"kept"


@pytest.mark.nightly
def test_rows_of_postgres_through_a_crash(own_postgres: Callable[[], Postgres]) -> None:
    server = own_postgres()
    with psycopg.connect(server.address) as connection:
        connection.execute("create table t as select 1 as n")
    with psycopg.connect(server.address) as connection:
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    server.start()
    with psycopg.connect(server.address) as connection:
        assert connection.execute("select n from t").fetchall() == [(1,)]
    server.stop()
    server.start()
    assert "database system was shut down" in server.log


@pytest.mark.nightly
def test_rows_of_mariadb_through_a_crash(own_mariadb: Callable[[], MariaDB]) -> None:
    server = own_mariadb()
    with pymysql.connect(host="127.0.0.1", port=server.port, user="any", autocommit=True) as connection:
        connection.query("create database kept")
        connection.query("create table kept.t as select 1 as n")
        server.kill()
        with pytest.raises(pymysql.OperationalError):
            connection.query("select 1")
    server.start()
    with pymysql.connect(host="127.0.0.1", port=server.port, user="any") as connection:
        assert connection.query("select n from kept.t") == 1
    server.stop()
    server.start()


@pytest.mark.nightly
def test_keys_of_redis_through_a_crash(own_redis: Callable[[], RedisServer]) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.address) as client:
        client.set("k", "v")
        server.kill()
        server.start()
        assert client.get("k") == b"v"


def start_elsewhere() -> tuple[subprocess.Popen[str], Path]:
    """Return a process with a Redis of its own session, and the session's folder."""
    program = (
        "import os; from tests.servers.sessions import Session; from tests.servers.redis_server import RedisServer\n"
        "session = Session(os.getpid()); print(session.shared(RedisServer).folder, flush=True); input(); session.end()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.usefixtures("server_session", "redis_url")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, 0])
@pytest.mark.nightly
def test_end_of_servers_after_the_end_of_their_session(number: int) -> None:
    process, folder = start_elsewhere()
    found = watch.read_pid(folder)
    assert found is not None
    if number:
        process.send_signal(number)
    process.communicate("\n")
    wait_until(lambda: not folder.parent.exists(), 30)
    assert not watch.is_running(found[0])


def test_process_with_the_number_of_a_server_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / watch.PID_FILE).write_text(f"{os.getpid()} SIGKILL\n", encoding="utf-8")
    assert watch.read_pid(tmp_path) is None
    watch.end(tmp_path)
    assert not tmp_path.exists()


class _Broken(Server):
    name = "Broken"

    @classmethod
    def missing(cls) -> str | None:
        return None

    @classmethod
    def install(cls) -> None:
        raise ServerError

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return ["sh", "-c", "echo no memory; exit 3"]


def test_server_that_does_not_start(server_session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.servers.server._LAUNCH_SECONDS", 0.2)
    with pytest.raises(ServerError, match=r"Broken did not start within .* s:\nno memory"):
        _Broken(tmp_path).start()
    for _ in range(2):
        with pytest.raises(ServerError, match=r"Broken did not start within .* s:\nno memory"):
            server_session.shared(_Broken)


def test_last_line_of_a_run_without_servers() -> None:
    class Report:
        longrepr: object = ("file", 1, "Skipped: needs a server, Kafka: Java 17 is not installed")

    class Other:
        longrepr: object = ("file", 1, "Skipped: no reason")

    [line] = missing_servers([Report(), Other(), Report()])
    assert line.endswith("Kafka: Java 17 is not installed: 2 tests skipped")
    assert missing_servers([Other()]) == []


@pytest.mark.nightly
def test_a_server_that_was_frozen_ends_while_connections_say_nothing(own_postgres: Callable[[], Postgres]) -> None:
    server = own_postgres()
    with socket.socket() as early, socket.socket() as late:
        with frozen(server):
            for client in (early, late):
                client.connect(("127.0.0.1", server.port))
                client.sendall(bytes.fromhex("00000008 04d2162f"))  # asks for TLS, and says no more
        begun = time.monotonic()
        watch.end(server.folder)
        assert time.monotonic() - begun < 20


@pytest.mark.parametrize("own", [None, "#!/bin/sh\nexit 104\n"])
def test_packages_start_no_services(own: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(debian, "_POLICY", policy)
    if own is not None:
        policy.write_text(own)
    with debian._no_services():
        assert policy.read_text() == (own or "#!/bin/sh\nexit 101\n")
        assert own is not None or os.access(policy, os.X_OK)
    assert policy.exists() == (own is not None)

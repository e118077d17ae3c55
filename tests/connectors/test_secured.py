"""Servers that require TLS and a password: jobs that use them, and errors if one of the two is wrong."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest
import redis

from malflow import MalflowError, SingleThreadRuntime, StreamProvider
from malflow.connectors.kafka import KafkaSink, KafkaSource
from malflow.connectors.postgres import Change, PostgresChanges, PostgresSink
from malflow.connectors.redis import RedisSink, RedisStreamSource
from tests.connectors.kafka.kit import Broker
from tests.kit.backends import at_once
from tests.servers.certificates import AUTHORITY, PASSWORD, USER
from tests.servers.kafka import Kafka
from tests.servers.plugin import shared
from tests.servers.postgres import Postgres
from tests.servers.redis_server import RedisServer
from tests.servers.sessions import Session

NUMBERS = range(20)
WRONG = "no-such-password"


class System(ABC):
    """A server with numbers in it, and a place for their doubles."""

    def __init__(self, session: Session) -> None:
        self.name = f"secured_{uuid4().hex[:8]}"

    @abstractmethod
    def ends(self, password: str, authority: Path | None) -> tuple[Any, Any]:
        """Return a source and a sink that log in so, and trust an authority, or those of the system."""

    def row(self, number: int) -> Any:
        """Return a number as the sink takes it."""
        return number

    @abstractmethod
    def doubles(self) -> list[int]:
        """Return what was written, sorted."""

    @abstractmethod
    def close(self) -> None:
        """Remove it all."""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The server's."""


class OfKafka(System):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.server = shared(session, Kafka)
        self.broker = Broker(self.server.address)
        self.broker.topic(1, self.name)
        self.broker.topic(1, f"{self.name}_out")
        self.broker.write(self.name, [b"%d" % it for it in NUMBERS])

    @property
    def folder(self) -> Path:
        return self.server.folder

    def ends(self, password: str, authority: Path | None) -> tuple[Any, Any]:
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": password,
            **({"ssl.ca.location": str(authority)} if authority else {}),
        }
        how: Any = {"servers": self.server.secured, "settings": settings}
        source = KafkaSource(self.name, stop="latest", decode=int, **how)
        sink = KafkaSink(f"{self.name}_out", delivery="exactly-once", encode=lambda number: b"%d" % number, **how)
        return source, sink

    def doubles(self) -> list[int]:
        return sorted(map(int, self.broker.values(f"{self.name}_out")))

    def close(self) -> None:
        self.broker.delete(self.name)
        self.broker.delete(f"{self.name}_out")


class OfPostgres(System):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.server = shared(session, Postgres)
        self.connection = psycopg.connect(self.server.address, autocommit=True)
        if not self._execute("select 1 from pg_roles where rolname = %s", USER).fetchone():
            self._execute(f"create role {USER} superuser login password '{PASSWORD}'")
        self._execute(f"create table {self.name} (n int primary key)")
        self._execute(f"create table {self.name}_out (n int primary key)")
        self._execute(f"insert into {self.name} select generate_series(0, {len(NUMBERS) - 1})")

    @property
    def folder(self) -> Path:
        return self.server.folder

    def ends(self, password: str, authority: Path | None) -> tuple[Any, Any]:
        dsn = f"host=127.0.0.1 port={self.server.port} user={USER} dbname=postgres password={password} "
        dsn += f"sslmode=verify-full sslrootcert={authority or 'system'}"
        source = PostgresChanges(dsn, [self.name], slot=self.name, until="now")
        return source, PostgresSink(dsn, f"{self.name}_out", columns=["n"])

    def row(self, number: int) -> Any:
        return (number,)

    def doubles(self) -> list[int]:
        return sorted(n for (n,) in self._execute(f"table {self.name}_out"))

    def close(self) -> None:
        slots = "pg_replication_slots where slot_name = %s"
        self._execute(f"select pg_drop_replication_slot(slot_name) from {slots}", self.name)  # noqa: S608 - ours
        self._execute(f"drop table {self.name}, {self.name}_out")
        self.connection.close()

    def _execute(self, query: str, *arguments: str) -> psycopg.Cursor[Any]:
        return self.connection.execute(query.encode(), arguments or None)


class OfRedis(System):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.server = shared(session, RedisServer)
        self.client: Any = redis.Redis.from_url(self.server.address)
        for number in NUMBERS:
            self.client.xadd(self.name, {"n": number})

    @property
    def folder(self) -> Path:
        return self.server.folder

    def ends(self, password: str, authority: Path | None) -> tuple[Any, Any]:
        settings: Any = {"password": password, **({"ssl_ca_certs": str(authority)} if authority else {})}
        source = RedisStreamSource(
            self.server.secured, self.name, field="n", decode=int, stop="latest", settings=settings
        )
        return source, RedisSink(self.server.secured, table=f"{self.name}_out", settings=settings)

    def doubles(self) -> list[int]:
        return sorted(map(int, self.client.hvals(f"{self.name}_out")))

    def close(self) -> None:
        self.client.delete(self.name, f"{self.name}_out")
        self.client.close()


@pytest.fixture(params=[OfKafka, OfPostgres, OfRedis], ids=["kafka", "postgres", "redis"])
def system(request: pytest.FixtureRequest, server_session: Session) -> Iterator[System]:
    made = cast("System", request.param(server_session))
    yield made
    made.close()


def number_of(value: Any) -> Any:
    """Return a number, also of a change."""
    return value.new["n"] if isinstance(value, Change) and value.new is not None else value


def run(system: System, ends: tuple[Any, Any], folder: Path) -> None:
    """Double the numbers, exactly once."""
    source, sink = ends

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", source)
        numbers = numbers.map("number", number_of)
        numbers.key_distribute("key", lambda msg: msg.value).map("double", lambda it: system.row(2 * it)).sink(
            "doubles", sink
        )

    SingleThreadRuntime(build, at_once(folder, job="doubles")).execute()


def test_job_by_tls_and_password(system: System, tmp_path: Path) -> None:
    run(system, system.ends(PASSWORD, system.folder / AUTHORITY), tmp_path)
    assert system.doubles() == [2 * number for number in NUMBERS]


@pytest.mark.parametrize("wrong", ["password", "authority"])
@pytest.mark.nightly
def test_login_that_fails(system: System, tmp_path: Path, wrong: str) -> None:
    ends = system.ends(WRONG, system.folder / AUTHORITY) if wrong == "password" else system.ends(PASSWORD, None)
    with pytest.raises(MalflowError) as caught:
        run(system, ends, tmp_path)
    reason = "auth|password" if wrong == "password" else "certificate verify failed"
    assert re.search(reason, str(caught.value), re.IGNORECASE)
    assert WRONG not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert system.doubles() == []

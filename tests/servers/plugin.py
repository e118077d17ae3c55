"""Fixtures of real servers: an address for a session of tests, or a private server that can be killed.

A test that asks for one is marked `servers` and `slow`; one that asks at run time, by `getfixturevalue`, marks itself
by `SERVER`. Where the server is missing the test is skipped, and the last
line of the run says why; with CI=true it fails.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import pytest

from tests.servers.chromium import Chromium
from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.prometheus import Prometheus
from tests.servers.redis_server import RedisServer
from tests.servers.server import Program, Server, ServerError
from tests.servers.sessions import Session
from tests.servers.valkey_server import ValkeyServer
from tests.servers.versitygw import Versitygw

__all__ = [
    "SERVER",
    "chromium",
    "kafka_servers",
    "mariadb_url",
    "own_kafka",
    "own_mariadb",
    "own_postgres",
    "own_prometheus",
    "own_redis",
    "own_valkey",
    "own_versitygw",
    "postgres_dsn",
    "redis_url",
    "server_session",
    "versitygw",
]

S = TypeVar("S", bound=Server)

SERVER = (pytest.mark.servers, pytest.mark.slow)
"""The marks of a test or a parameter for which a server is asked only at run time."""

_SESSION = pytest.StashKey[Session]()
_NEED = "needs a server, "


def pytest_configure(config: pytest.Config) -> None:
    """Name the session by the process that ends last: with pytest-xdist, the parent of those that test."""
    if sys.platform == "linux":
        config.stash[_SESSION] = Session(os.getppid() if hasattr(config, "workerinput") else os.getpid())


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers, and print which were missing."""
    if hasattr(config, "workerinput"):
        return
    if _SESSION in config.stash:
        config.stash[_SESSION].end()
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    for line in missing_servers(reporter.stats.get("skipped", ())) if reporter else ():
        reporter.write_line(line, yellow=True)


def missing_servers(skipped: Any) -> list[str]:
    """Return a line that names the servers for whose lack tests were skipped, if there are any."""
    reasons = [str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)]
    needs = [reason.partition(_NEED)[2].split("\n")[0].rstrip(":") for reason in reasons if _NEED in reason]
    missing = {need: needs.count(need) for need in sorted({*needs})}
    told = "; ".join(f"{reason}: {count} tests skipped" for reason, count in missing.items())
    return [f"missing servers (`make servers` installs them): {told}"] if told else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a server."""
    for item in items:
        if "server_session" in getattr(item, "fixturenames", ()):
            for mark in SERVER:
                item.add_marker(mark)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start a shared server again that has died, so that the tests after it don't fail as well."""
    if _SESSION in item.config.stash and "server_session" in getattr(item, "fixturenames", ()):
        item.config.stash[_SESSION].revive(lambda told: warnings.warn(told, stacklevel=1))


@pytest.fixture(scope="session")
def server_session(pytestconfig: pytest.Config) -> Session:
    """Return the servers of this session; none of them is started."""
    if _SESSION not in pytestconfig.stash:
        _unavailable("a server", "this is not Linux")
    return pytestconfig.stash[_SESSION]


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of the browser; skip the test if there is none."""
    _require(Chromium)
    return Chromium.path()


def _unavailable(name: str, reason: str) -> NoReturn:
    """Skip the test, or fail if all servers must be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{name}: {reason}", pytrace=False)
    pytest.skip(f"{_NEED}{name}: {reason}")


def shared(session: Session, kind: type[S]) -> S:
    """Return the session's server of a kind; skip where there is none."""
    _require(kind)
    try:
        return session.shared(kind)
    except ServerError as error:
        _unavailable(kind.name, str(error))


def _require(kind: type[Program]) -> None:
    missing = kind.missing()
    if missing is not None:
        _unavailable(kind.name, missing)


@pytest.fixture(scope="session")
def kafka_servers(server_session: Session) -> str:
    """Return the bootstrap server of a Kafka broker, for topics with random names."""
    return shared(server_session, Kafka).address


@pytest.fixture(scope="session")
def postgres_dsn(server_session: Session) -> str:
    """Return the DSN of a Postgres server, for schemas and slots with random names."""
    return shared(server_session, Postgres).address


@pytest.fixture(scope="session")
def mariadb_url(server_session: Session) -> str:
    """Return the URL of a MariaDB server, for databases with random names."""
    return shared(server_session, MariaDB).address


@pytest.fixture(scope="session")
def redis_url(server_session: Session) -> str:
    """Return the URL of a Redis server, for keys with a random prefix."""
    return shared(server_session, RedisServer).address


@pytest.fixture(scope="session")
def versitygw(server_session: Session) -> Versitygw:
    """Return an S3 server, for buckets with random names; it must not be killed."""
    return shared(server_session, Versitygw)


@pytest.fixture
def own_kafka(server_session: Session) -> Iterator[Callable[[], Kafka]]:
    """Return what starts a Kafka broker for this test alone, which may kill it."""
    _require(Kafka)
    with server_session.own(Kafka) as start:
        yield start


@pytest.fixture
def own_postgres(server_session: Session) -> Iterator[Callable[[], Postgres]]:
    """Return what starts a Postgres server for this test alone, which may kill it."""
    _require(Postgres)
    with server_session.own(Postgres) as start:
        yield start


@pytest.fixture
def own_mariadb(server_session: Session) -> Iterator[Callable[[], MariaDB]]:
    """Return what starts a MariaDB server for this test alone, which may kill it."""
    _require(MariaDB)
    with server_session.own(MariaDB) as start:
        yield start


@pytest.fixture
def own_prometheus(server_session: Session) -> Iterator[Callable[[], Prometheus]]:
    """Return a function that starts a Prometheus for this test alone, without targets and rules."""
    _require(Prometheus)
    with server_session.own(Prometheus) as start:
        yield start


@pytest.fixture
def own_redis(server_session: Session) -> Iterator[Callable[[], RedisServer]]:
    """Return what starts a Redis server for this test alone, which may kill it."""
    _require(RedisServer)
    with server_session.own(RedisServer) as start:
        yield start


@pytest.fixture
def own_valkey(server_session: Session) -> Iterator[Callable[[], ValkeyServer]]:
    """Return what starts a Valkey server for this test alone, which may kill it."""
    _require(ValkeyServer)
    with server_session.own(ValkeyServer) as start:
        yield start


@pytest.fixture
def own_versitygw(server_session: Session) -> Iterator[Callable[[], Versitygw]]:
    """Return what starts an S3 server for this test alone, which may kill it."""
    _require(Versitygw)
    with server_session.own(Versitygw) as start:
        yield start

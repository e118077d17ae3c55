"""Databases for each test: a file of SQLite, and one on the session's servers of Postgres and MariaDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict

from malflow.connectors.sql import SqlSink
from tests.connectors.sql.kit import Database, made, opened
from tests.servers.plugin import SERVER


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Database]:
    with opened(sa.make_url(f"sqlite:///{tmp_path}/test.db")) as database:
        yield database


@pytest.fixture
def mariadb(mariadb_url: str) -> Iterator[Database]:
    with made(sa.make_url(mariadb_url), f"t_{uuid4().hex}") as database:
        yield database


@pytest.fixture
def postgres(postgres_dsn: str) -> Iterator[Database]:
    dsn = conninfo_to_dict(postgres_dsn)
    server = sa.URL.create(
        "postgresql+psycopg", dsn["user"], host=dsn["host"], port=int(dsn["port"]), database=dsn["dbname"]
    )
    with made(server, f"t_{uuid4().hex}") as database:
        yield database


DATABASES = ["sqlite", pytest.param("postgres", marks=SERVER), pytest.param("mariadb", marks=SERVER)]


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def sinks(database: Database) -> Iterator[Callable[..., SqlSink]]:
    """Return what makes a sink of table t."""
    sinks: list[SqlSink] = []

    def make(**options: Any) -> SqlSink:
        sinks.append(SqlSink(database.url, "t", **options))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()

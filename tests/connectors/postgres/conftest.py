"""A new database for each test, on the server of the session."""

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.connectors.postgres.kit import Database


@pytest.fixture
def database(postgres_dsn: str) -> Iterator[Database]:
    name = f"t_{uuid4().hex}"
    with psycopg.connect(postgres_dsn, autocommit=True) as server:
        server.execute(f"create database {name}")
    dsn = make_conninfo(postgres_dsn, dbname=name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set timezone to 'UTC'")
        yield Database(dsn, connection)
    with psycopg.connect(postgres_dsn, autocommit=True) as server:
        slots = (
            "select pg_terminate_backend(active_pid, 60000) from pg_replication_slots where database = %s and active"
        )
        server.execute(slots, (name,))
        server.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s", (name,)
        )
        server.execute(f"drop database {name} with (force)")

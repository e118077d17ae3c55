"""A database for a test: its URL, and its content as seen by another client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from malflow.sinks import SinkOwner


@dataclass
class Database:
    url: sa.URL
    engine: sa.Engine

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    def execute(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def rows(self, query: str = "select * from t order by 1") -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]


@contextmanager
def opened(url: sa.URL) -> Iterator[Database]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    yield Database(url, engine)
    engine.dispose()


@contextmanager
def made(server: sa.URL, name: str) -> Iterator[Database]:
    """Make a database on a server, and drop it at the end."""
    admin = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with admin.connect() as connection:
        connection.exec_driver_sql(f"create database {name}")
    with opened(server.set(database=name)) as database:
        yield database
    with admin.connect() as connection:
        connection.exec_driver_sql(f"drop database {name}{' with (force)' if 'postgres' in server.drivername else ''}")


def owner(claim: int = 1) -> SinkOwner:
    return SinkOwner("job", "totals", claim)


def write(sink: Any, *values: Any, keys: Any = None) -> None:
    sink.sink_batch(keys or [None] * len(values), values, [0] * len(values))

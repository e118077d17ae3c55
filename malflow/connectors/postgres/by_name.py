"""Tables by their URL: ``postgres://user@host/database/table``."""

from __future__ import annotations

from functools import wraps
from typing import Any
from urllib.parse import quote

from malflow.connectors.address import Address
from malflow.connectors.postgres.changes.source import PostgresChanges
from malflow.connectors.postgres.lookup import PostgresLookup
from malflow.connectors.postgres.sink import PostgresSink
from malflow.connectors.postgres.source import PostgresSource
from malflow.errors import GraphError

__all__ = ["changes", "lookup", "sink", "source"]


@wraps(PostgresSource)
def source(address: Address, /, **options: Any) -> PostgresSource:
    """Return a source of the table that the path names."""
    dsn, table = _taken_apart(address)
    return PostgresSource(dsn, table or None, **options)


@wraps(PostgresChanges)
def changes(address: Address, /, **options: Any) -> PostgresChanges:
    """Return a source of the changes of the tables that the path names, separated by commas."""
    dsn, tables = _taken_apart(address)
    return PostgresChanges(dsn, tables.split(",") if tables else None, **options)


@wraps(PostgresSink)
def sink(address: Address, /, **options: Any) -> PostgresSink:
    """Return a sink of the table that the path names."""
    dsn, table = _taken_apart(address)
    return PostgresSink(dsn, table, **options)


@wraps(PostgresLookup)
def lookup(address: Address, /, **options: Any) -> PostgresLookup:
    """Return the table that the path names.

    Raises:
        GraphError: if the URL has none.
    """
    dsn, table = _taken_apart(address)
    if not table:
        raise GraphError(f"{address!s} has no table; write it after the database: .../database/table")
    return PostgresLookup(dsn, table, **options)


def _taken_apart(address: Address) -> tuple[str, str]:
    """Return the URL of the database, and the rest of the path."""
    if "@" in address.url.partition("://")[2].partition("/")[2]:
        raise GraphError(
            f"{address!s} has an '@' after its first '/'; write %2F for a '/' in the password, %40 for '@'"
        )
    database, _, names = address.path.partition("/")
    user = "" if address.user is None else quote(address.user, safe="")
    password = "" if address.password is None else f":{quote(address.password, safe='')}"
    userinfo = f"{user}{password}@" if user or password else ""
    return f"postgresql://{userinfo}{address.netloc}/{quote(database, safe='')}", names

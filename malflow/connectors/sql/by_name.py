"""Tables by their URL: ``mysql+pymysql://user@host/database/table``, and ``sql+DIALECT://...`` for any dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from malflow.connectors.address import Address
from malflow.connectors.option_texts import with_options_of
from malflow.connectors.sql.lookup import SqlLookup
from malflow.connectors.sql.sink import SqlSink
from malflow.errors import GraphError

__all__ = ["lookup", "sink"]

_DRIVER = Mapping[str, str] | None
"""The query parameters of the SQLAlchemy URL, as in ``?driver.charset=utf8mb4``."""


@with_options_of(SqlSink, without="", driver=_DRIVER)
def sink(address: Address, /, *, driver: Mapping[str, str] | None = None, **options: Any) -> SqlSink:
    """Return a sink of the table that the path ends with; the database precedes it.

    Raises:
        GraphError: if the URL has no table.
    """
    return SqlSink(*_taken_apart(address, driver), **options)


@with_options_of(SqlLookup, without="", driver=_DRIVER)
def lookup(address: Address, /, *, driver: Mapping[str, str] | None = None, **options: Any) -> SqlLookup:
    """Return the table that the path ends with.

    Raises:
        GraphError: if the URL has no table.
    """
    return SqlLookup(*_taken_apart(address, driver), **options)


def _taken_apart(address: Address, driver: Mapping[str, str] | None) -> tuple[sa.URL, str]:
    """Return the URL of the database, and the table."""
    database, _, table = address.path.rpartition("/")
    if not table:
        raise GraphError(f"{address!s} has no table; write it after the database: .../database/table")
    dialect = address.scheme.removeprefix("sql+")
    try:
        host = sa.make_url(f"{dialect}://{address.netloc}")
        credentials: Any = {"username": address.user, "password": address.password}
        return host.set(**credentials, database=database, query=dict(driver or {})), table
    except (exc.ArgumentError, ValueError):
        raise GraphError(f"{address!s} can't be read as 'dialect://user:password@host:port/database/table'") from None

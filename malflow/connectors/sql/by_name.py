"""Tables by their URL: ``mysql+pymysql://user@host/database/table``, and ``sql+DIALECT://...`` for any dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from malflow.connectors.address import Address
from malflow.connectors.lost_output import OnDataLoss
from malflow.connectors.sql.lookup import SqlLookup
from malflow.connectors.sql.sink import SqlSink
from malflow.connectors.tables.ledger_sink import DEFAULT_LEDGER
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.sinks.formatting import Formatter
from malflow.sinks.transactional import Delivery

__all__ = ["lookup", "sink"]


def sink(
    address: Address,
    /,
    *,
    formatter: Formatter | None = None,
    key: Iterable[str] | None = None,
    columns: Iterable[str] | None = None,
    delivery: Delivery = "exactly-once",
    round: bool = False,
    ledger: str = DEFAULT_LEDGER,
    retry_for: Duration = timedelta(minutes=1),
    driver: Mapping[str, str] | None = None,
    on_data_loss: OnDataLoss = "fail",
    on_workers: bool = True,
) -> SqlSink:
    """Return a sink of the table that the path ends with; the database precedes it.

    The options are the same as for `SqlSink`; `driver` has the query parameters of the SQLAlchemy URL, as in
    ``?driver.charset=utf8mb4``.

    Raises:
        GraphError: if the URL has no table.
    """
    url, table = _taken_apart(address, driver)
    options: Any = {
        "round": round,
        "ledger": ledger,
        "retry_for": retry_for,
        "on_data_loss": on_data_loss,
        "on_workers": on_workers,
    }
    return SqlSink(url, table, formatter=formatter, key=key, columns=columns, delivery=delivery, **options)


def lookup(
    address: Address,
    /,
    *,
    key: Iterable[str] | None = None,
    columns: Iterable[str] | None = None,
    row: Callable[..., Any] = dict,
    retry_for: Duration = timedelta(minutes=1),
    settings: Mapping[str, Any] | None = None,
    driver: Mapping[str, str] | None = None,
) -> SqlLookup:
    """Return the table that the path ends with; the options are as for `SqlLookup`, and `driver`.

    Raises:
        GraphError: if the URL has no table.
    """
    url, table = _taken_apart(address, driver)
    return SqlLookup(url, table, key=key, columns=columns, row=row, retry_for=retry_for, settings=settings)


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

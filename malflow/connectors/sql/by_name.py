"""Tables by their URL: ``mysql+pymysql://user@host/database/table``, and ``sql+DIALECT://...`` for any dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from malflow.connectors.address import Address
from malflow.connectors.lost_output import OnDataLoss
from malflow.connectors.sql.sink import SqlSink
from malflow.connectors.tables.ledger_sink import DEFAULT_LEDGER
from malflow.errors import GraphError
from malflow.sinks.formatting import Formatter
from malflow.sinks.transactional import Delivery

__all__ = ["sink"]


def sink(
    address: Address,
    /,
    *,
    formatter: Formatter | None = None,
    key: Iterable[str] | None = None,
    columns: Iterable[str] | None = None,
    delivery: Delivery = "exactly-once",
    ledger: str = DEFAULT_LEDGER,
    retry_for: timedelta = timedelta(minutes=1),
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
    database, _, table = address.path.rpartition("/")
    if not table:
        raise GraphError(f"{address!s} has no table; write it after the database: .../database/table")
    dialect = address.scheme.removeprefix("sql+")
    try:
        host = sa.make_url(f"{dialect}://{address.netloc}")
        url = host.set(username=address.user, password=address.password, database=database, query=dict(driver or {}))
    except (exc.ArgumentError, ValueError):
        raise GraphError(f"{address!s} can't be read as 'dialect://user:password@host:port/database/table'") from None
    options: Any = {"ledger": ledger, "retry_for": retry_for, "on_data_loss": on_data_loss, "on_workers": on_workers}
    return SqlSink(url, table, formatter=formatter, key=key, columns=columns, delivery=delivery, **options)

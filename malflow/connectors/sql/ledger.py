"""The ledger in the target database: the last committed transaction of each sink, and the run that owns the sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from malflow.connectors.sql.catalog import check_engine
from malflow.connectors.sql.database import SqlError
from malflow.connectors.tables.ledger_sink import LedgerRow, ledger_id
from malflow.sinks.transactional import SinkOwner

__all__ = ["Ledger"]

_INNODB: Mapping[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
}


class Ledger(LedgerRow[sa.Connection]):
    """One sink's row of the ledger.

    The row is locked by an update. An update works in every database with transactions, also without ``select for
    update``. Its key is a hash of the names. Names that differ only in case or trailing spaces thus stay distinct.
    """

    def __init__(self, name: str, owner: SinkOwner) -> None:
        super().__init__(name, owner, SqlError)
        schema, _, plain = name.rpartition(".")
        self._id = ledger_id(owner)
        self._table = sa.Table(
            plain,
            sa.MetaData(),
            sa.Column("id", sa.String(64), primary_key=True),
            sa.Column("job", sa.Text, nullable=False),
            sa.Column("sink", sa.Text, nullable=False),
            sa.Column("epoch", sa.BigInteger, nullable=False),
            sa.Column("claim", sa.BigInteger, nullable=False),
            sa.Column("committed_at", sa.DateTime, nullable=False),
            schema=schema or None,
            **_INNODB,
        )

    def exists(self, connection: sa.Connection) -> bool:
        """Whether the table exists."""
        return sa.inspect(connection).has_table(self._table.name, self._table.schema)

    def make(self, connection: sa.Connection) -> None:
        """Create the table if it does not exist."""
        self._table.create(connection, checkfirst=True)

    def check_engine(self, connection: sa.Connection) -> None:
        """Check that the table supports transactions; another program may have made it.

        Raises:
            SqlError: if it does not.
        """
        check_engine(connection, self._table, f"{self._table.fullname} of the ledger")

    def take_over(self, connection: sa.Connection) -> int:
        """Make this run the owner; return the last committed transaction, 0 if there is none.

        Raises:
            FencedError: if a later run is the owner.
            sqlalchemy.exc.IntegrityError: if another run has just created the row; try again.
        """
        row = self._locked(connection)
        if row is None:
            owner = self._owner
            first = {"id": self._id, "job": owner.job, "sink": owner.sink, "epoch": 0, "claim": owner.claim}
            connection.execute(self._table.insert().values(**first, committed_at=sa.func.current_timestamp()))
            return 0
        self._checked(row)
        # Another run may commit the row between the update that locks it and the select that reads it. The row is
        # seen then, but not locked, and a later run may take it meanwhile. So read it again once it is locked.
        again = self._locked(connection)
        if again is None:
            raise self._lost()
        transaction = self._checked(again)
        connection.execute(self._update().values(claim=self._owner.claim))
        return transaction

    def note(self, connection: sa.Connection, transaction: int) -> None:
        """Record a transaction, within the database transaction that writes its rows."""
        connection.execute(self._update().values(epoch=transaction, committed_at=sa.func.current_timestamp()))

    def _locked(self, connection: sa.Connection) -> tuple[int, int] | None:
        connection.execute(self._update().values(claim=self._table.c.claim))
        select = sa.select(self._table.c.epoch, self._table.c.claim).where(self._table.c.id == self._id)
        row = connection.execute(select).one_or_none()
        return None if row is None else (int(row[0]), int(row[1]))

    def _update(self) -> sa.Update:
        return sa.update(self._table).where(self._table.c.id == self._id)

"""The ledger in the target's database: the last transaction that each sink has committed, and the run that owns it."""

from __future__ import annotations

from typing import Any, TypeAlias

import psycopg
from psycopg import sql

from malflow.connectors.lost_output import Confirmed
from malflow.connectors.postgres.errors import PostgresError
from malflow.errors import FencedError
from malflow.sinks.transactional import SinkOwner

__all__ = ["Ledger"]

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_MAKE = """
create table if not exists {} (
  job text not null, sink text not null, epoch bigint not null, claim bigint not null,
  committed_at timestamptz not null default now(), primary key (job, sink))
"""


class Ledger:
    """One sink's row of the ledger. Its methods are called within a transaction, which holds the row until its end."""

    def __init__(self, table: str, owner: SinkOwner) -> None:
        self._table = sql.Identifier(*table.split("."))
        self._owner = owner

    def take_over(self, connection: Connection) -> int:
        """Make this run the owner; return the last transaction committed, 0 if there is none.

        Raises:
            FencedError: if a later run is the owner.
        """
        owner = self._owner
        insert = "insert into {} (job, sink, epoch, claim) values (%s, %s, 0, %s) on conflict do nothing"
        connection.execute(self._sql(insert), (owner.job, owner.sink, owner.claim))
        transaction = self._lock(connection, at_most=owner.claim)
        update = "update {} set claim = %s where job = %s and sink = %s"
        connection.execute(self._sql(update), (owner.claim, owner.job, owner.sink))
        return transaction

    def make(self, connection: Connection) -> None:
        """Make the table if it does not exist. Not within a transaction."""
        name = self._table.as_string(connection)
        found = connection.execute("select to_regclass(%s)", (name,)).fetchone()
        if found is not None and found[0] is not None:
            return
        try:
            connection.execute(self._sql(_MAKE))
        except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable):
            return  # another sink has just made it

    def last_committed(self, connection: Connection, confirmed: Confirmed) -> int:
        """Lock the row until this commit; return the last transaction committed.

        Args:
            connection: one in a transaction.
            confirmed: what the ledger must have.

        Raises:
            FencedError: if another run is the owner.
            PostgresError: if the ledger lacks a transaction that was confirmed, or the row is gone.
        """
        try:
            transaction = self._lock(connection, at_most=self._owner.claim)
        except (LookupError, psycopg.errors.UndefinedTable):
            confirmed.check(0)
            raise PostgresError(
                f"sink '{self._owner.sink}' of job '{self._owner.job}' has no row in "
                f"{self._table.as_string(connection)}: someone deleted it while the job ran; start the job again"
            ) from None
        confirmed.check(transaction)
        return transaction

    def note(self, connection: Connection, transaction: int) -> None:
        """Note that a transaction is committed, together with its rows."""
        update = "update {} set epoch = %s, committed_at = now() where job = %s and sink = %s"
        connection.execute(self._sql(update), (transaction, self._owner.job, self._owner.sink))

    def _lock(self, connection: Connection, *, at_most: int) -> int:
        owner = self._owner
        select = "select epoch, claim from {} where job = %s and sink = %s for update"
        row = connection.execute(self._sql(select), (owner.job, owner.sink)).fetchone()
        if row is None:
            raise LookupError(owner.name)
        if row[1] > at_most:
            raise FencedError(
                f"sink '{owner.sink}' of job '{owner.job}' was taken over by run {row[1]}; this is run {owner.claim}"
            )
        return int(row[0])

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(self._table)

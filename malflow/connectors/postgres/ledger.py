"""The ledger in the target database: the last committed transaction of each sink, and the run that owns the sink."""

from __future__ import annotations

from typing import Any, TypeAlias

import psycopg
from psycopg import sql

from malflow.connectors.postgres.connection import PostgresError
from malflow.connectors.postgres.identifiers import identifiers
from malflow.connectors.tables.ledger_sink import DEFAULT_LEDGER, LedgerRow, ledger_id
from malflow.sinks.transactional import SinkOwner

__all__ = ["Ledger", "found_ledger"]

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_MAKE = """
create table if not exists {} (
  id varchar(64) primary key, job text not null, sink text not null, epoch bigint not null, claim bigint not null,
  committed_at timestamptz not null default now())
"""
_FORMER_DEFAULT = "malflow_commits"
"""The default name in older versions, whose ledgers have no column `id`."""

_COLUMNS = """
select coalesce(array_agg(attname::text) filter (where has_table_privilege(attrelid, 'select')), '{}') from pg_attribute
where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped
"""


class Ledger(LedgerRow[Connection]):
    """One sink's row of the ledger, found by job and sink. Ledgers of older versions have no `id` and work as well."""

    def __init__(self, table: str, owner: SinkOwner) -> None:
        super().__init__(table, owner, PostgresError)
        self._table = sql.Identifier(*table.split("."))

    def take_over(self, connection: Connection) -> int:
        """Make this run the owner; return the last committed transaction, 0 if there is none.

        Raises:
            FencedError: if a later run is the owner.
        """
        owner = self._owner
        first = {"job": owner.job, "sink": owner.sink, "epoch": 0, "claim": owner.claim}
        if "id" in self._columns(connection):
            first["id"] = ledger_id(owner)
        insert = sql.SQL("insert into {} ({}, committed_at) values ({}, now()) on conflict do nothing").format(
            self._table, identifiers(tuple(first)), sql.SQL(", ").join(map(sql.Literal, first.values()))
        )
        connection.execute(insert)
        row = self._locked(connection)
        if row is None:
            raise self._lost()
        transaction = self._checked(row)
        update = "update {} set claim = %s where job = %s and sink = %s"
        connection.execute(self._sql(update), (owner.claim, owner.job, owner.sink))
        return transaction

    def make(self, connection: Connection) -> None:
        """Create the table if it does not exist. Not within a transaction."""
        name = self._table.as_string(connection)
        found = connection.execute("select to_regclass(%s)", (name,)).fetchone()
        if found is not None and found[0] is not None:
            return
        try:
            connection.execute(self._sql(_MAKE))
        except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable):
            return  # another sink has just created it

    def claim(self, connection: Connection) -> int | None:
        """Return the claim of the row's owner; None if there is no such row, or no such ledger."""
        if not {"job", "sink", "epoch", "claim"} <= self._columns(connection):
            return None
        select = "select claim from {} where job = %s and sink = %s"
        row = connection.execute(self._sql(select), (self._owner.job, self._owner.sink)).fetchone()
        return None if row is None else int(row[0])

    def note(self, connection: Connection, transaction: int) -> None:
        """Record a transaction, within the database transaction that writes its rows."""
        update = "update {} set epoch = %s, committed_at = now() where job = %s and sink = %s"
        connection.execute(self._sql(update), (transaction, self._owner.job, self._owner.sink))

    def _columns(self, connection: Connection) -> frozenset[str]:
        """Return the columns of the table; empty if it does not exist, or the role may not read it."""
        found = connection.execute(_COLUMNS, (self._table.as_string(connection),)).fetchone()
        return frozenset(found[0] if found is not None else ())

    def _locked(self, connection: Connection) -> tuple[int, int] | None:
        select = "select epoch, claim from {} where job = %s and sink = %s for update"
        try:
            row = connection.execute(self._sql(select), (self._owner.job, self._owner.sink)).fetchone()
        except psycopg.errors.UndefinedTable:
            return None
        return None if row is None else (int(row[0]), int(row[1]))

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(self._table)


def found_ledger(connection: Connection, name: str, owner: SinkOwner) -> Ledger:
    """Return the ledger of a sink: the named one, or a ledger of the former default name that has the sink's row.

    If both have a row, since an older version ran in between, the one with the later claim counts.
    """
    ledger = Ledger(name, owner)
    if name != DEFAULT_LEDGER:
        return ledger
    former = Ledger(_FORMER_DEFAULT, owner)
    claim = former.claim(connection)
    return former if claim is not None and claim > (ledger.claim(connection) or 0) else ledger

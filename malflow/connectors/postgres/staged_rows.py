"""Rows that workers have copied into tables of their own, next to the target table, until they are committed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

import psycopg
from psycopg import sql

from malflow.connectors.postgres.writing import Batch, Stages, TableWriter
from malflow.sinks.distributed import Share
from malflow.sinks.transactional import SinkOwner

__all__ = ["Staged", "StagedRows"]

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

Staged: TypeAlias = tuple[str, str, tuple[str, ...], int]
"""A table with rows: its name, and operation, columns and size of the batch."""

_MAY_CREATE = "select has_schema_privilege(%s, 'CREATE')"
_LIST = """
select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relkind = 'r' and c.relpersistence = 'u' and starts_with(c.relname, %s)
"""


class StagedRows:
    """The tables with the rows of one sink of a run that are not committed.

    They are unlogged: nothing of them goes to the write-ahead log or to replicas, and a crash of the server empties
    them. Their names begin with ``malflow_``, a digest of the job and the sink, the transaction and the claim.

    Args:
        schema: the schema of the target table.
        owner: the run.
    """

    def __init__(self, schema: str, owner: SinkOwner) -> None:
        self._schema = schema
        self._prefix = f"malflow_{blake2b(owner.name.encode('utf-8', 'surrogatepass'), digest_size=6).hexdigest()}_"
        self._claim = owner.claim

    def may_create(self, connection: Connection) -> bool:
        """Whether the role may create tables in the schema."""
        found = connection.execute(_MAY_CREATE, (self._schema,)).fetchone()
        return found is not None and bool(found[0])

    def write(self, writer: TableWriter, share: Share, batches: Sequence[Batch]) -> tuple[Staged, ...]:
        """Copy batches into new tables, in the open transaction.

        Raises:
            PostgresError: if the server rejects a value.
        """
        names = [f"{self._prefix}{share.transaction}_{self._claim}_{share.token}_{at}" for at in range(len(batches))]
        writer.stage_in([(batch, self._identifier(name)) for batch, name in zip(batches, names, strict=True)])
        return tuple((name, it.operation, it.columns, it.size) for name, it in zip(names, batches, strict=True))

    def found(self, connection: Connection, staged: Sequence[Staged]) -> Stages | None:
        """Return the batches for `TableWriter.apply`, in the open transaction; None if rows are gone."""
        stages: Stages = []
        for name, operation, columns, size in staged:
            stage = self._identifier(name)
            known = connection.execute("select to_regclass(%s)", (stage.as_string(connection),)).fetchone()
            if known is None or known[0] is None:
                return None
            count = connection.execute(sql.SQL("select count(*) from {}").format(stage)).fetchone()
            if count is None or count[0] != size:
                return None
            stages.append((Batch(operation, columns, size, b""), stage))  # type: ignore[arg-type] # of a batch
        return stages

    def drop(self, connection: Connection, stages: Stages) -> None:
        """Drop tables, in the open transaction."""
        for _, stage in stages:
            connection.execute(sql.SQL("drop table {}").format(stage))

    def sweep(self, connection: Connection, keep: Collection[str], *, until: int | None) -> None:
        """Drop the tables of this run and earlier ones, but for some.

        Args:
            connection: an open connection.
            keep: the names of tables that stay.
            until: drop the tables up to this transaction; None for all.
        """
        for (name,) in connection.execute(_LIST, (self._schema, self._prefix)).fetchall():
            transaction, claim, *_ = name.removeprefix(self._prefix).split("_")
            if (until is None or int(transaction) <= until) and int(claim) <= self._claim and name not in keep:
                connection.execute(sql.SQL("drop table if exists {}").format(self._identifier(name)))

    def _identifier(self, name: str) -> sql.Identifier:
        return sql.Identifier(self._schema, name)

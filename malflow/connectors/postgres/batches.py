"""Batches of rows as the text of a COPY, which the snapshot keeps and the server reads."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from malflow.connectors.postgres.column_kinds import Kind
from malflow.connectors.postgres.copy_text import Column, copy_text
from malflow.connectors.postgres.names import Table
from malflow.connectors.tables.transaction_rows import Operation, RowBatch

__all__ = ["Batch", "as_text"]


class Batch(NamedTuple):
    """Rows for one statement. Plain values: it is kept in snapshots.

    Attributes:
        operation: insert, update, delete or merge.
        columns: the columns of the text; for an update, the key that finds the row comes first. The text of a merge
            begins with one more column: whether the row is deleted.
        size: the number of rows.
        text: the rows, as the text of a COPY.
    """

    operation: Operation
    columns: tuple[str, ...]
    size: int
    text: bytes


_DELETED = Column("whether it is deleted", Kind(16, -1, False, ",", "B", "boolean"))


def as_text(batch: RowBatch, table: Table, text: Collection[str], *, rounds: bool) -> Batch:
    """Return a batch as text.

    Args:
        batch: the rows.
        table: the table, with the types of the columns.
        text: the columns that already have Postgres's text.
        rounds: whether the server may round digits and fractions of a second.

    Raises:
        PostgresError: if a value can't be written.
    """
    columns = [Column(name, table.kind_of(name), name in text, rounds) for name in batch.columns]
    if batch.operation == "merge":
        columns.insert(0, _DELETED)
    return Batch(batch.operation, batch.columns, len(batch.rows), copy_text(columns, batch.rows, table.shown))

"""Write batches of rows as the text of a COPY: appended, or by a temporary table and one statement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg import sql

from malflow.connectors.postgres.column_kinds import Kind
from malflow.connectors.postgres.connection import PostgresError, PostgresServer
from malflow.connectors.postgres.copy_text import Column, copy_text
from malflow.connectors.postgres.identifiers import Table, identifiers
from malflow.connectors.tables.refused_rows import WrittenAgain
from malflow.connectors.tables.transaction_rows import Operation, RowBatch, RowsWriter

__all__ = [
    "AppendedWriter",
    "Batch",
    "Refused",
    "Stages",
    "TableWriter",
    "as_text",
]


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


Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Stages: TypeAlias = list[tuple[Batch, sql.Identifier]]
"""Batches, each with the table that its rows are copied to."""


_ROW_ERRORS = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.CardinalityViolation,
    psycopg.errors.RaiseException,
    psycopg.errors.WithCheckOptionViolation,
    psycopg.errors.ProgramLimitExceeded,
)
"""The errors about rows: of values, constraints, and functions of triggers that raise one."""


class Refused(PostgresError):
    """The table rejects a row.

    Attributes:
        may_pass: whether the table may accept the row once another sink has written the row that it refers to.
    """

    refuses_records = True

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class TableWriter:
    """Write to one table on one connection, and reuse its temporary tables."""

    def __init__(self, connection: Connection, table: Table, key: tuple[str, ...]) -> None:
        self._connection, self._table, self._key = connection, table, key
        self._free: dict[tuple[Any, ...], list[sql.Identifier]] = {}
        self._made = 0

    @property
    def connection(self) -> Connection:
        """The connection on which everything is written."""
        return self._connection

    def stage(self, batches: Iterable[Batch]) -> Stages:
        """Copy batches into temporary tables, where the server checks every value.

        Raises:
            PostgresError: if it rejects one.
        """
        stages = [(batch, self._take(batch)) for batch in batches]
        for batch, stage in stages:
            self._copy(batch, stage)
        return stages

    def stage_in(self, stages: Stages) -> None:
        """Copy batches into new tables of these names. Other connections see them after the commit.

        The tables are unlogged: a crash of the server empties them.

        Raises:
            PostgresError: if the server rejects a value.
        """
        for batch, stage in stages:
            self._connection.execute(sql.SQL("drop table if exists {}").format(stage))
            self._make(batch, stage, sql.SQL("create unlogged table {}").format(stage))
            self._copy(batch, stage)

    def clear(self) -> None:
        """Delete all rows."""
        self._connection.execute(sql.SQL("delete from {}").format(self._table.identifier))

    def apply(self, stages: Stages, *, strict: bool) -> None:
        """Apply staged batches to the table, in the open transaction.

        Args:
            stages: the result of `stage`.
            strict: whether an update of a missing row is an error.

        Raises:
            PostgresError: if the table rejects a row.
        """
        for batch, stage in stages:
            done = self._apply_one(batch, stage)
            if strict and batch.operation == "update" and done != batch.size:
                raise PostgresError(
                    f"table {self._table.shown}: {batch.size - done} rows to be updated are missing, and their "
                    "unchanged values are not known; copy the table again"
                )
            self._connection.execute(sql.SQL("truncate {}").format(stage))

    def check_constraints(self) -> None:
        """Check deferred constraints now, rather than at the commit.

        Raises:
            Refused: if a row is rejected.
        """
        try:
            self._connection.execute("set constraints all immediate")
        except _ROW_ERRORS as error:
            raise self._refused(error) from None

    def _apply_one(self, batch: Batch, stage: sql.Identifier) -> int:
        try:
            return [self._connection.execute(it).rowcount for it in self._statements(batch, stage)][-1]
        except _ROW_ERRORS as error:
            raise self._refused(error) from None

    def try_some(self, batch: Batch, stage: sql.Identifier, lines: Sequence[bytes]) -> None:
        """Write some rows of a batch in a savepoint of the open transaction, or none of them.

        Args:
            batch: the batch.
            stage: an empty table for its rows, of `empty_stage`.
            lines: the rows.

        Raises:
            Refused: if the table rejects one.
        """
        some = batch._replace(size=len(lines), text=b"".join(lines))
        with self._connection.transaction():
            self._copy(some, stage)
            self.apply([(some, stage)], strict=True)
            self.check_constraints()

    def empty_stage(self, batch: Batch) -> sql.Identifier:
        """Return an empty temporary table for rows of a batch."""
        return self._take(batch)

    def _refused(self, error: psycopg.Error) -> Refused:
        said = f"table {self._table.shown} rejects a row: {PostgresServer.reason(error)}"
        if isinstance(error, psycopg.errors.UniqueViolation):
            said += (
                "; if rows swap a unique value between two snapshots, make its constraint "
                "'deferrable initially deferred'"
            )
        return Refused(said, may_pass=isinstance(error, psycopg.errors.ForeignKeyViolation))

    def release(self, stages: Stages) -> None:
        """Release the temporary tables for reuse, once the transaction that applied them is committed."""
        for batch, stage in stages:
            self._free.setdefault((batch.operation, batch.columns), []).append(stage)

    def _take(self, batch: Batch) -> sql.Identifier:
        free = self._free.get((batch.operation, batch.columns))
        if free:
            return free.pop()
        self._made += 1
        name = f"malflow_{self._made}"
        stage = sql.Identifier("pg_temp", name)
        self._make(batch, stage, sql.SQL("create temporary table {}").format(sql.Identifier(name)))
        return stage

    def _make(self, batch: Batch, stage: sql.Identifier, create: sql.Composed) -> None:
        """Create the table for the rows of a batch: with the types of the target's columns, and without its checks."""
        query = sql.SQL("{} as select {} from {} with no data")
        self._connection.execute(query.format(create, self._stage_columns(batch), self._table.identifier))
        if batch.operation == "merge":
            self._connection.execute(sql.SQL("alter table {} add d boolean not null").format(stage))
        if batch.operation in ("insert", "merge"):  # a table alone does not keep the order of its rows
            self._connection.execute(sql.SQL("alter table {} add n bigint generated always as identity").format(stage))
        for place, name in enumerate(batch.columns):
            if name in self._table.not_null:
                column = sql.Identifier(f"c{place}")
                change = "alter table {} alter {} set not null"
                if batch.operation == "merge" and name not in self._key:
                    change = "alter table {0} add constraint {1} check (d or {1} is not null)"
                self._connection.execute(sql.SQL(change).format(stage, column))

    def _copy(self, batch: Batch, stage: sql.Identifier) -> None:
        columns = identifiers((*("d",) * (batch.operation == "merge"), *_stage_names(len(batch.columns))))
        statement = sql.SQL("copy {} ({}) from stdin").format(stage, columns)
        try:
            with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                copy.write(batch.text)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise Refused(f"table {self._table.shown} rejects a row: {_where(batch, error)}") from None

    def _stage_columns(self, batch: Batch) -> sql.Composed:
        cells = [
            sql.SQL("{} as {}").format(sql.Identifier(name), sql.Identifier(f"c{place}"))
            for place, name in enumerate(batch.columns)
        ]
        return sql.SQL(", ").join(cells)

    def _statements(self, batch: Batch, stage: sql.Identifier) -> list[sql.Composed]:
        if batch.operation != "merge":
            return [self._statement(batch, stage)]
        delete = sql.SQL("delete from {} as t using {} as s where s.d and {}")
        matches = self._matches([batch.columns.index(name) for name in self._key])
        key = sql.SQL(", ").join(sql.Identifier(f"c{batch.columns.index(name)}") for name in self._key)
        last = sql.SQL("(select distinct on ({0}) * from {1} order by {0}, n desc) as s where not d").format(key, stage)
        return [delete.format(self._table.identifier, stage, matches), self._insert(batch, last)]

    def _statement(self, batch: Batch, stage: sql.Identifier) -> sql.Composed:
        if batch.operation == "delete":
            query = sql.SQL("delete from {} as t using {} as s where {}")
            return query.format(self._table.identifier, stage, self._matches(range(len(self._key))))
        if batch.operation == "update":
            return self._update(batch, stage)
        return self._insert(batch, stage)

    def _insert(self, batch: Batch, stage: sql.Composable) -> sql.Composed:
        query = sql.SQL("insert into {} ({}) {} select {} from {}")
        cells = identifiers(_stage_names(len(batch.columns)))
        numbers = sql.SQL("overriding system value" if self._table.numbered.intersection(batch.columns) else "")
        insert = query.format(self._table.identifier, identifiers(batch.columns), numbers, cells, stage)
        return insert + (sql.SQL(" order by n") if batch.operation == "insert" else self._on_conflict(batch))

    def _on_conflict(self, batch: Batch) -> sql.Composed:
        key = [sql.Identifier(f"c{batch.columns.index(name)}") for name in self._key]
        same = self._key  # a merge also writes the key: as it was written last
        if batch.operation == "merge" and not self._table.is_partitioned:
            same = tuple(self._table.numbered)
        rest = [sql.Identifier(name) for name in batch.columns if name not in same]
        sets = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in rest)
        action = sql.SQL("update set ") + sets if rest else sql.SQL("nothing")
        query = sql.SQL(" order by {} on conflict ({}) do {}")
        return query.format(sql.SQL(", ").join(key), identifiers(self._key), action)

    def _update(self, batch: Batch, stage: sql.Identifier) -> sql.Composed:
        width = len(self._key)
        sets = [
            sql.SQL("{} = s.{}").format(sql.Identifier(name), sql.Identifier(f"c{place}"))
            for place, name in enumerate(batch.columns)
            if place >= width
        ]
        query = sql.SQL("update {} as t set {} from {} as s where {}")
        matches = self._matches(range(width))
        return query.format(self._table.identifier, sql.SQL(", ").join(sets), stage, matches)

    def _matches(self, places: Iterable[int]) -> sql.Composed:
        pairs = [
            sql.SQL("t.{} = s.{}").format(sql.Identifier(name), sql.Identifier(f"c{place}"))
            for place, name in zip(places, self._key, strict=True)
        ]
        return sql.SQL(" and ").join(pairs)


def _stage_names(width: int) -> tuple[str, ...]:
    return tuple(f"c{place}" for place in range(width))


def _where(batch: Batch, error: psycopg.Error) -> str:
    """Return the server's error about a row, with its columns by their names in the table."""
    said = error.diag.message_primary or str(error)
    context = error.diag.context or ""
    for place in reversed(range(len(batch.columns))):
        context = context.replace(f"column c{place}:", f"column {batch.columns[place]}:")
    if error.diag.column_name and error.diag.column_name.startswith("c"):
        name = batch.columns[int(error.diag.column_name[1:])]
        said = f"NULL in column {name}, which is not null"
    if (error.diag.constraint_name or "").startswith("c") and isinstance(error, psycopg.errors.CheckViolation):
        name = batch.columns[int((error.diag.constraint_name or "")[1:])]
        said = f"NULL in column {name}, which is not null"
    if "line " in context:
        line = int(context.split("line ", 1)[1].split(":")[0].split(",")[0])
        row = batch.text.split(b"\n")[line - 1].decode().split("\t")[-len(batch.columns) :]
        shown = ", ".join(f"{name}={cell[:50]}" for name, cell in zip(batch.columns, row, strict=False))
        return f"{said} ({context.split(', ', 1)[-1][:200]}); the row is {shown}"
    return f"{said}; {context}"


_TEXT = len(Batch._fields)


class AppendedWriter(RowsWriter):
    """Writes rows without a key: a `Batch` for each piece, or records that may empty the table."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._cleared = False
        self._texts: list[Batch] = []

    def write(self, piece: Any) -> None:
        """Add rows."""
        if isinstance(piece, WrittenAgain):
            self._texts += [Batch(*it) for it in piece.batches]
            return
        if len(piece) == _TEXT:
            self._texts.append(Batch(*piece))
            return
        super().write(piece)
        cleared, batches = super().taken()
        if cleared:
            self._cleared, self._texts = True, []
        self._texts += [Batch(*it) for it in batches]

    def taken(self) -> tuple[bool, tuple[Any, ...]]:
        """Return whether the table is emptied first, and one batch of all rows."""
        texts, self._texts = self._texts, []
        if not texts:
            return self._cleared, ()
        text = b"".join(it.text for it in texts)
        return self._cleared, (tuple(texts[0]._replace(size=sum(it.size for it in texts), text=text)),)

    def discard(self) -> None:
        """Drop the rows."""
        super().discard()
        self._texts = []

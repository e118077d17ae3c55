"""A sink that writes rows to a table of a SQL database, exactly once with the snapshots of the run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from malflow.checks import check_flag
from malflow.connectors.lost_output import OnDataLoss
from malflow.connectors.sql.database import Database, SqlError, largest_packet, without_references
from malflow.connectors.sql.described import described
from malflow.connectors.sql.doubts import Doubts
from malflow.connectors.sql.ledger import Ledger
from malflow.connectors.sql.row_errors import BOUND, marked
from malflow.connectors.sql.values import ValueChecks, plain_batch
from malflow.connectors.sql.writing import TableWriter
from malflow.connectors.tables.ledger_sink import DEFAULT_LEDGER, Handle, LedgerSink, PlainBatch
from malflow.connectors.tables.refused_rows import found_by_halves
from malflow.connectors.tables.rows import chosen_shape
from malflow.connectors.tables.transaction_rows import Row, RowBatch, TransactionRows
from malflow.durations import Duration
from malflow.sinks.formatting import Formatter
from malflow.sinks.transactional import Delivery, Refused, SinkOwner
from malflow.words import short_repr

__all__ = ["SqlSink"]

_DELETED = "merge deleted"
_FOREIGN = re.compile("foreign key", re.IGNORECASE)


class SqlSink(LedgerSink):
    """Write each record's value as a row of a table in any database for which SQLAlchemy has a dialect.

    A value is a dict, a dataclass, a named tuple, or a tuple in the order of `columns`. With a key, a row replaces the
    row of the same key; the value None deletes the row at the record's key (a tuple for several columns). A `Change` of
    `PostgresChanges` is applied, also a delete, a change of the key, or a truncation. Without a key, rows are appended.
    The table must exist.

    Exactly once: the rows of a transaction are part of the snapshot, and are committed together with a row of the
    `ledger`. That row has the transaction's number and the run that owns the sink. Rows become visible after the
    snapshot. On Spark, a worker stores the rows beside the snapshots. Snapshots have only the name of the object.
    Types, NULL and lengths are checked before the snapshot. Where types don't tell, the rows are written and rolled
    back before it.

    Args:
        url: an SQLAlchemy URL, such as ``mysql+pymysql://user:password@host/database`` or ``sqlite:///file.db``.
        table: the table's name, in the database's spelling, with a schema if needed.
        formatter: returns the row for a message; by default its value.
        key: the columns that make a row unique; they need a unique index. None: the primary key; ``()``: append.
        columns: the columns that are written; None: all that are not generated.
        delivery: ``"exactly-once"``, or ``"at-least-once"``: written with each tick, without a ledger.
        round: whether the database rounds numbers with more digits than a column keeps, and fractions of a second, and
            cuts the time of day of a date. If False, such a value is refused before the snapshot.
        ledger: the table of the ledger, created if it does not exist.
        retry_for: how long to retry a lost connection before the run fails.
        settings: arguments of `sqlalchemy.create_engine`, such as ``connect_args``. Never shown.
        on_data_loss: ``"fail"`` if the ledger lacks a committed transaction, at the start or during the run, or
            ``"continue"``.
        on_workers: with ``"exactly-once"``, whether the workers check the rows and store them beside the snapshots, on
            Spark; if False, the driver does.

    Raises:
        GraphError: if an argument is invalid.
        MissingDependency: if the driver of the database is not installed.

    >>> SqlSink("sqlite:///shop.db", "totals")
    SqlSink(sqlite:///shop.db, 'totals')
    """

    def __init__(
        self,
        url: str | sa.URL,
        table: str,
        *,
        formatter: Formatter | None = None,
        key: Iterable[str] | None = None,
        columns: Iterable[str] | None = None,
        delivery: Delivery = "exactly-once",
        round: bool = False,
        ledger: str = DEFAULT_LEDGER,
        retry_for: Duration = timedelta(minutes=1),
        settings: Mapping[str, Any] | None = None,
        on_data_loss: OnDataLoss = "fail",
        on_workers: bool = True,
    ) -> None:
        self._database = Database(url, settings, retry_for, "SqlSink")
        super().__init__(
            self._database,
            table,
            formatter=formatter,
            key=key,
            columns=columns,
            delivery=delivery,
            ledger=ledger,
            on_data_loss=on_data_loss,
        )
        check_flag("SqlSink", "on_workers", on_workers)
        check_flag("SqlSink", "round", round)
        self._rounds = round
        self._without_zone: frozenset[str] = frozenset()
        self.on_workers = on_workers
        self._writer: TableWriter | None = None
        self._checks: ValueChecks | None = None
        self._needs_trial = False
        self._doubts: Doubts | None = None
        self._tried: set[tuple[str, tuple[str, ...]]] = set()

    def close(self) -> None:
        """Close the connection."""
        super().close()
        self._writer = None
        self._database.close()

    def _take_over(self, owner: SinkOwner) -> int:
        ledger, transaction = self._ledger(), self._database.transaction
        try:
            with transaction() as connection:
                ledger.make(connection)
                ledger.check_engine(connection)
        except exc.DBAPIError:
            with transaction() as connection:
                if not ledger.exists(connection):
                    raise  # another sink has not just created it
        try:
            with transaction() as connection:
                return self._owned(connection, ledger, owner)
        except exc.IntegrityError:  # another run has just created the row
            with transaction() as connection:
                return self._owned(connection, ledger, owner)

    def _owned(self, connection: sa.Connection, ledger: Ledger, owner: SinkOwner) -> int:
        transaction = ledger.take_over(connection)
        self._confirmed.begin(owner, transaction)
        return transaction

    def check_sealed(self, handles: Sequence[Any]) -> None:
        """Check that the database accepts the last transaction, unless the types of its columns tell."""
        if not (self._needs_trial or self._doubts) and self._tried:
            return
        number, sealed = handles[-1]
        last: Handle = (number, *self._unsealed(sealed))
        if self._is_doubtful(last):
            self._try_all([*((at, *self._unsealed(it)) for at, it in handles[:-1]), last])
        else:
            self._try_shapes(last)

    def _try_out(self, handle: Handle, pending: Sequence[Handle]) -> None:
        if self._is_doubtful(handle):
            self._try_all(pending)
        else:
            self._try_shapes(handle)

    def _is_doubtful(self, handle: Handle) -> bool:
        """Whether only the database can tell if it accepts the rows of a transaction."""
        return self._needs_trial or (self._doubts is not None and self._doubts.are_in(handle[2]))

    def _try_all(self, pending: Sequence[Handle]) -> None:
        """Write uncommitted transactions, and roll back."""
        self._try_to_write(partial(self._write_and_undo, pending), pending[-1][2])

    def _try_shapes(self, handle: Handle) -> None:
        """Write, and roll back, the first row of each statement that this run has not tried.

        The database may refuse a statement whatever its rows are: a privilege or a default is missing, or the server
        takes no writes.
        """
        fresh = [RowBatch(*it) for it in handle[2] if tuple(it[:2]) not in self._tried]
        if fresh:
            first = tuple(batch._replace(rows=batch.rows[:1]) for batch in fresh)
            self._try_to_write(partial(self._write_and_undo, [(0, False, first)], strict=False), first)
            self._tried.update((batch.operation, batch.columns) for batch in fresh)

    def _write_and_undo(self, handles: Sequence[Handle], *, strict: bool = True) -> None:
        """Write transactions, and roll back."""
        writer = self._made_writer()
        try:
            with self._database.transaction(undo=True) as connection, without_references(connection):
                for _, cleared, plain in handles:
                    if cleared:
                        writer.clear(connection)
                    for batch in plain:
                        writer.write(connection, RowBatch(*batch), strict=strict)
        except exc.IntegrityError as error:
            if not _FOREIGN.search(str(error.orig)):  # another sink may have yet to write the referenced row
                raise

    def _write(self, batches: Sequence[PlainBatch], *, cleared: bool, transaction: int | None) -> None:
        self._try_to_write(partial(self._write_checked, batches, cleared=cleared, transaction=transaction), batches)

    def _write_checked(self, batches: Sequence[PlainBatch], *, cleared: bool, transaction: int | None) -> None:
        try:
            self._write_once(batches, cleared=cleared, transaction=transaction)
        except exc.DBAPIError as error:
            if transaction is not None and not self._database.is_lost(error):
                self._check_ledger()
            raise
        if transaction is not None:
            self._confirmed.note(transaction)

    def _check_ledger(self) -> None:
        """Check that the ledger exists: a backup from before its creation lacks all committed rows."""
        with self._database.transaction() as connection:
            if not self._ledger().exists(connection):
                self._confirmed.check(0)

    def _write_once(self, batches: Sequence[PlainBatch], *, cleared: bool, transaction: int | None) -> None:
        writer = self._made_writer()
        with self._database.transaction() as connection:
            if transaction is not None and self._ledger().last_committed(connection, self._confirmed) >= transaction:
                return
            if cleared:
                writer.clear(connection)
            for batch in batches:
                writer.write(connection, RowBatch(*batch), strict=transaction is not None)
            if transaction is not None:
                self._ledger().note(connection, transaction)

    def _try_to_write(self, action: Callable[[], None], batches: Sequence[PlainBatch]) -> None:
        def attempt() -> None:
            try:
                action()
            except (exc.StatementError, OverflowError, TypeError, ValueError) as error:
                if self._database.is_lost(error):
                    raise
                raise self._refused(batches, error) from None

        self._database.retry(attempt, self._writing)

    def _refused(self, batches: Sequence[PlainBatch], error: Exception) -> SqlError:
        """Return an error that names the first row that the table rejects on its own, if there is one."""
        is_of_row = not isinstance(error, exc.ProgrammingError) or BOUND.search(str(error.orig))
        if not is_of_row or (isinstance(error, exc.DBAPIError) and error.statement is None):
            return self._database.failure(self._writing, error)
        writer = self._made_writer()
        row: Any = None
        try:
            with self._database.transaction(undo=True) as connection, without_references(connection):
                for batch in (RowBatch(*it) for it in batches):
                    for row in batch.rows:
                        writer.write(connection, batch._replace(rows=[row]), strict=False)
        except (exc.StatementError, OverflowError, TypeError, ValueError) as again:
            return marked(self._rejection(batch, row, again), again)
        return marked(self._database.failure(self._writing, error), error)

    def _refused_rows(
        self, batches: Sequence[PlainBatch], *, cleared: bool
    ) -> list[tuple[Sequence[Any], dict[int, Exception]]]:
        writer = self._made_writer()
        found: list[tuple[Sequence[Any], dict[int, Exception]]] = []
        with self._database.transaction(undo=True) as connection:
            if connection.dialect.name == "sqlite":  # whose driver would begin with the first savepoint, and commit it
                connection.exec_driver_sql("begin immediate")
            if cleared:
                writer.clear(connection)
            for batch in (RowBatch(*it) for it in batches):
                write = partial(self._write_within, connection, writer, batch)
                found.append((batch.rows, dict(found_by_halves(batch.rows, write))))
        return found

    def _write_within(
        self, connection: sa.Connection, writer: TableWriter, batch: RowBatch, rows: Sequence[Row]
    ) -> None:
        """Write some rows of a batch, or none of them.

        Raises:
            SqlError: if the table rejects one.
        """
        try:
            with connection.begin_nested():
                writer.write(connection, batch._replace(rows=rows), strict=True)
        except (exc.StatementError, OverflowError, TypeError, ValueError) as error:
            if self._database.is_lost(error):
                raise
            raise marked(self._rejection(batch, rows[0], error), error) from None

    def _batch_of(self, batch: PlainBatch, rows: Sequence[Any]) -> PlainBatch:
        operation, columns, _ = batch
        return operation, columns, tuple(rows)

    def _refused_row(self, batch: PlainBatch, row: Any, error: Exception) -> Refused:
        operation, columns, _ = batch
        if operation != "merge":
            return Refused(dict(zip(columns, row, strict=True)), error, operation)
        is_deleted, *cells = row
        return Refused(dict(zip(columns, cells, strict=True)), error, _DELETED if is_deleted else operation)

    def _restored(self, operation: str, cells: Mapping[str, Any]) -> PlainBatch:
        row = tuple(cells.values())
        if operation in (_DELETED, "merge"):
            return "merge", tuple(cells), ((operation == _DELETED, *row),)
        return operation, tuple(cells), (row,)

    def _rejection(self, batch: RowBatch, row: Row, error: Exception) -> SqlError:
        shown = short_repr(dict(zip(batch.columns, row[-len(batch.columns) :], strict=True)))
        said = self._database.without_secrets(self._database.reason(error))
        return SqlError(f"table {self._table_name} in {self._database!r} rejects the row {shown}: {said}")

    def _plain(self, batches: Sequence[RowBatch]) -> tuple[PlainBatch, ...]:
        plain = [plain_batch(batch, self._without_zone) for batch in batches]
        if self._checks is not None:
            for batch in plain:
                self._checks.check(batch)
        return tuple((batch.operation, batch.columns, tuple(batch.rows)) for batch in plain)

    def _describe(self) -> TransactionRows:
        database = self._database
        with database.transaction() as connection:
            needs_undo = self.delivery == "exactly-once"
            table = described(connection, self._table_name, "SqlSink", database, needs_undo=needs_undo)
            shape = chosen_shape(table, self._key, self._columns, SqlError)
            self._writer = TableWriter(table, shape.key, connection.dialect.name)
            packet = largest_packet(connection)
            self._checks = ValueChecks(table, connection.dialect, shape.key, packet, rounds=self._rounds)
            self._without_zone = table.without_zone
            self._doubts = Doubts(table, connection.dialect.name)
        self._tried.clear()
        self._needs_trial = table.has_conditions or bool(set(table.uniques) - {frozenset(shape.key)})
        return TransactionRows(shape, [table.exact_types(name) for name in shape.key])

    def _made_writer(self) -> TableWriter:
        if self._writer is None:
            raise SqlError(f"the sink of table {self._table_name} is closed")
        return self._writer

    def _ledger(self) -> Ledger:
        return Ledger(self._ledger_name, self._owned_by())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_writer": None, "_doubts": None, "_tried": set()}

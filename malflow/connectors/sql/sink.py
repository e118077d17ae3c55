"""A sink that writes rows to a table of a SQL database, exactly once with the snapshots of the run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, TypeAlias

import sqlalchemy as sa
from sqlalchemy import exc

from malflow.connectors.lost_output import Confirmed, OnDataLoss
from malflow.connectors.options import names_of, require_delivery, require_name, require_on_data_loss
from malflow.connectors.sql.database import Database, largest_packet
from malflow.connectors.sql.described import described
from malflow.connectors.sql.errors import SqlError
from malflow.connectors.sql.ledger import Ledger
from malflow.connectors.sql.plain import plain_batch
from malflow.connectors.sql.values import ValueChecks
from malflow.connectors.sql.writing import TableWriter
from malflow.connectors.tables.options import chosen_shape
from malflow.connectors.tables.transaction_rows import RowBatch, TransactionRows
from malflow.errors import short_repr
from malflow.message import DataMessage
from malflow.sinks.formatting import Formatter, checked_formatter, formatted
from malflow.sinks.transactional import Delivery, SinkOwner, TransactionalSinkImpl

__all__ = ["SqlSink"]

Handle: TypeAlias = tuple[int, bool, tuple[tuple[Any, ...], ...]]
"""A transaction: its number, whether the table is emptied first, and its batches. Plain values."""


_FOREIGN = re.compile("foreign key", re.IGNORECASE)


class SqlSink(TransactionalSinkImpl[Any, Any, Any, Handle]):
    """Write each record's value as a row of a table in any database for which SQLAlchemy has a dialect.

    A value is a dict, a dataclass, a named tuple, or a tuple in the order of `columns`. With a key a row replaces the
    one that has its key; the value None deletes the row whose key is the record's key (a tuple if there are several
    columns). A `Change` of `PostgresChanges` is applied: also deletes, changes of the key, and truncations. Without a
    key rows are appended. The table must exist.

    Exactly once: the rows of a transaction are part of the snapshot, and are written and committed together with a row
    of the `ledger`, which has the transaction's number and the run that owns the sink. Rows are visible after the
    snapshot. Types, NULL and lengths are checked before the snapshot; the database checks the rest when the rows are
    written.

    Args:
        url: SQLAlchemy's, such as ``mysql+pymysql://user:password@host/database`` or ``sqlite:///file.db``.
        table: the table's name, in the case in which the database has it; a schema may stand before it.
        formatter: returns the row for a message; by default its value.
        key: the columns that make a row unique; there must be a unique index of them. None: the primary key; ``()``:
            append.
        columns: the columns that are written; None: all that are not generated.
        delivery: ``"exactly-once"``, or ``"at-least-once"``: written with each tick, without a ledger.
        ledger: the table of the ledger, made if it does not exist.
        retry_for: how long a lost connection is tried again before the run fails.
        settings: arguments of `sqlalchemy.create_engine`, such as ``connect_args``. Never shown.
        on_data_loss: ``"fail"`` when the ledger lacks a transaction that was committed, at a start or amid a run, or
            ``"continue"``.

    Raises:
        GraphError: if an argument is invalid.
        MissingDependency: if the driver of the database is not installed.

    >>> SqlSink("sqlite:///shop.db", "totals")
    SqlSink(sqlite:///shop.db, 'totals')
    """

    on_driver: ClassVar[bool] = True

    def __init__(
        self,
        url: str | sa.URL,
        table: str,
        *,
        formatter: Formatter | None = None,
        key: Iterable[str] | None = None,
        columns: Iterable[str] | None = None,
        delivery: Delivery = "exactly-once",
        ledger: str = "malflow_ledger",
        retry_for: timedelta = timedelta(minutes=1),
        settings: Mapping[str, Any] | None = None,
        on_data_loss: OnDataLoss = "fail",
    ) -> None:
        me = "SqlSink"
        require_delivery(me, delivery)
        require_on_data_loss(me, on_data_loss)
        require_name(me, "table", table, "the name of a table")
        require_name(me, "ledger", ledger, "the name of a table")
        self._database = Database(url, settings, retry_for, me)
        self._table_name, self._ledger_name = table, ledger
        self._key = None if key is None else names_of(me, "key", key, what="columns")
        self._columns = None if columns is None else names_of(me, "columns", columns, what="columns")
        self._formatter = checked_formatter(me, formatter)
        self.delivery = delivery
        self._confirmed = Confirmed(ledger, SqlError, accepts_loss=on_data_loss == "continue")
        self._owner: SinkOwner | None = None
        self._rows: TransactionRows | None = None
        self._writer: tuple[TableWriter, ValueChecks] | None = None
        self._pending: dict[int, Handle] = {}
        self._needs_trial = False

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Add one row."""
        self.sink_batch((msg.key,), (msg.value,), (msg.timestamp,))

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Add rows to the transaction, or to the tick.

        Raises:
            SqlError: if a value is no row of the table.
        """
        self._described().add(keys, formatted(self._formatter, keys, values, timestamps))

    def flush(self) -> None:
        """Write the rows of the tick, if the delivery is at-least-once."""
        if self.delivery == "at-least-once":
            batches, cleared = self._take_rows()
            if batches or cleared:
                self._try_to_write(lambda: self._write(batches, cleared=cleared, transaction=None), batches)

    def fence(self, owner: SinkOwner) -> int:
        """Become the owner in the ledger; return the last transaction that was committed.

        Raises:
            FencedError: if a later run is the owner.
            SqlError: if the ledger lacks a transaction that was committed, or the database refuses something.
        """
        self._owner = owner
        self._described()
        return self._database.retry(partial(self._take_over, owner), f"taking over sink '{owner.sink}'")

    def prepare(self, transaction: int) -> Handle | None:
        """Return the rows of the transaction, which fit the columns.

        If the table has checks, or unique indexes beside the key, they are also written and rolled back: what it
        refuses must not get into a snapshot, from which no run could continue.

        Raises:
            SqlError: if a row does not fit, or the database refuses it.
        """
        batches, cleared = self._take_rows()
        if not batches and not cleared:
            return None
        handle = transaction, cleared, tuple((batch.operation, batch.columns, tuple(batch.rows)) for batch in batches)
        self._pending = {number: it for number, it in self._pending.items() if number < transaction}
        if self._needs_trial:
            self._try_to_write(partial(self._try_out, [*self._pending.values(), handle]), batches)
        self._pending[transaction] = handle
        return handle

    def commit(self, handles: Sequence[Handle]) -> None:
        """Write transactions that the ledger does not have, each as a whole.

        Raises:
            FencedError: if a later run is the owner.
            SqlError: if the ledger lacks a transaction that was committed, or the database refuses something.
        """
        self._described()
        for transaction, cleared, plain in handles:
            batches = [RowBatch(*batch) for batch in plain]
            self._try_to_write(partial(self._write, batches, cleared=cleared, transaction=transaction), batches)
            self._pending.pop(transaction, None)

    def abort(self, keep: Sequence[Handle]) -> None:
        """Forget the rows that are in no transaction; the database has none of a transaction before its commit."""
        self._pending = {handle[0]: handle for handle in keep}
        if self._rows is not None:
            self._rows.reset()

    def close(self) -> None:
        """Close the connection."""
        self._rows = self._writer = None
        self._database.close()

    def _take_over(self, owner: SinkOwner) -> int:
        ledger, transaction = self._ledger(), self._database.transaction
        try:
            with transaction() as connection:
                ledger.make(connection)
        except exc.DBAPIError:
            with transaction() as connection:
                if not ledger.exists(connection):
                    raise  # another sink has not just made it
        try:
            with transaction() as connection:
                return self._owned(connection, ledger, owner)
        except exc.IntegrityError:  # another run has just made the row
            with transaction() as connection:
                return self._owned(connection, ledger, owner)

    def _owned(self, connection: sa.Connection, ledger: Ledger, owner: SinkOwner) -> int:
        transaction = ledger.take_over(connection)
        self._confirmed.begin(owner, transaction)
        return transaction

    def _try_out(self, handles: Sequence[Handle]) -> None:
        """Write transactions, and undo that."""
        writer, _ = self._made_writer()
        try:
            with self._database.transaction(undo=True) as connection:
                for _, cleared, plain in handles:
                    if cleared:
                        writer.clear(connection)
                    for batch in plain:
                        writer.write(connection, RowBatch(*batch), strict=True)
        except exc.IntegrityError as error:
            if not _FOREIGN.search(str(error.orig)):  # another sink may have yet to write what it refers to
                raise

    def _write(self, batches: Sequence[RowBatch], *, cleared: bool, transaction: int | None) -> None:
        try:
            self._write_once(batches, cleared=cleared, transaction=transaction)
        except exc.DBAPIError as error:
            if transaction is not None and not self._database.is_lost(error):
                self._check_ledger()
            raise
        if transaction is not None:
            self._confirmed.note(transaction)

    def _check_ledger(self) -> None:
        """Check that the ledger is there: a database of before it was made lacks all that was committed."""
        with self._database.transaction() as connection:
            if not self._ledger().exists(connection):
                self._confirmed.check(0)

    def _write_once(self, batches: Sequence[RowBatch], *, cleared: bool, transaction: int | None) -> None:
        writer, _ = self._made_writer()
        with self._database.transaction() as connection:
            if transaction is not None and self._ledger().last_committed(connection, self._confirmed) >= transaction:
                return
            if cleared:
                writer.clear(connection)
            for batch in batches:
                writer.write(connection, batch, strict=transaction is not None)
            if transaction is not None:
                self._ledger().note(connection, transaction)

    def _try_to_write(self, action: Any, batches: Sequence[RowBatch]) -> None:
        what = f"writing to table {self._table_name}"

        def attempt() -> None:
            try:
                action()
            except (exc.StatementError, OverflowError, TypeError, ValueError) as error:
                if self._database.is_lost(error):
                    raise
                raise self._refused(batches, error, what) from None

        self._database.retry(attempt, what)

    def _refused(self, batches: Sequence[RowBatch], error: Exception, what: str) -> SqlError:
        """Return an error that names the first row which is refused by itself, if there is one."""
        if isinstance(error, exc.ProgrammingError) or (isinstance(error, exc.DBAPIError) and error.statement is None):
            return self._database.failure(what, error)
        writer, _ = self._made_writer()
        row: Any = None
        try:
            with self._database.transaction(undo=True) as connection:
                for batch in batches:
                    for row in batch.rows:
                        writer.write(connection, batch._replace(rows=[row]), strict=False)
        except (exc.StatementError, OverflowError, TypeError, ValueError) as again:
            shown = short_repr(dict(zip(batch.columns, row[-len(batch.columns) :], strict=True)))
            said = self._database.without_secrets(self._database.reason(again))
            return SqlError(f"table {self._table_name} in {self._database!r} can't have the row {shown}: {said}")
        return self._database.failure(what, error)

    def _take_rows(self) -> tuple[list[RowBatch], bool]:
        rows = self._rows
        if rows is None or not len(rows):
            return [], False
        batches, cleared = [plain_batch(it) for it in rows.batches()], rows.cleared
        rows.reset()
        _, checks = self._made_writer()
        for batch in batches:
            checks.check(batch)
        return batches, cleared

    def _described(self) -> TransactionRows:
        """Return the rows of the transaction, when the table has been looked at."""
        if self._rows is None:
            self._rows = self._database.retry(self._describe, f"describing table {self._table_name}")
        return self._rows

    def _describe(self) -> TransactionRows:
        database = self._database
        with database.transaction() as connection:
            needs_undo = self.delivery == "exactly-once"
            table = described(connection, self._table_name, "SqlSink", database, needs_undo=needs_undo)
            shape = chosen_shape(table, self._key, self._columns, SqlError)
            writer = TableWriter(table, shape.key, connection.dialect.name)
            packet = largest_packet(connection)
            self._writer = writer, ValueChecks(table, connection.dialect, shape.key, packet)
        self._needs_trial = table.has_conditions or bool(set(table.uniques) - {frozenset(shape.key)})
        return TransactionRows(shape, [table.exact_types(name) for name in shape.key])

    def _made_writer(self) -> tuple[TableWriter, ValueChecks]:
        if self._writer is None:
            raise SqlError(f"the sink of table {self._table_name} is closed")
        return self._writer

    def _ledger(self) -> Ledger:
        if self._owner is None:
            raise SqlError(f"the sink of table {self._table_name} has no owner; the runtime must call fence() first")
        return Ledger(self._ledger_name, self._owner)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer": None, "_rows": None, "_pending": {}}

    def __repr__(self) -> str:
        return f"SqlSink({self._database!r}, {self._table_name!r})"

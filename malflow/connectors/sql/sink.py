"""A sink that writes rows to a table of a SQL database, exactly once with the snapshots of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, TypeAlias

import sqlalchemy as sa
from sqlalchemy import exc

from malflow.connectors.sql.database import Database, is_lost, reason
from malflow.connectors.sql.described import described
from malflow.connectors.sql.errors import SqlError
from malflow.connectors.sql.ledger import Ledger
from malflow.connectors.sql.values import ValueChecks
from malflow.connectors.sql.writing import TableWriter
from malflow.connectors.tables.epoch_rows import EpochRows, RowBatch
from malflow.connectors.tables.options import OnDataLoss, check_loss, check_options, chosen_shape
from malflow.errors import GraphError, short_repr
from malflow.message import DataMessage
from malflow.sinks.transactional import Delivery, SinkOwner, TransactionalSinkImpl

__all__ = ["SqlSink"]

Handle: TypeAlias = tuple[int, bool, tuple[tuple[Any, ...], ...]]
"""An epoch: its number, whether the table is emptied first, and its batches. Plain values."""


class SqlSink(TransactionalSinkImpl[Any, Any, Any, Handle]):
    """Write each record's value as a row of a table in any database for which SQLAlchemy has a dialect.

    A value is a dict, a dataclass, a named tuple, or a tuple in the order of `columns`. With a key a row replaces the
    one that has its key; the value None deletes the row whose key is the record's key (a tuple if there are several
    columns). A `Change` of `PostgresChanges` is applied: also deletes, changes of the key, and truncations. Without a
    key rows are appended. The table must exist.

    Exactly once: the rows of an epoch are part of the snapshot, and are written in one transaction with a row of the
    `ledger`, which has the number of the epoch and the run that owns the sink. Rows are visible after the snapshot.
    Types, NULL and lengths are checked before the snapshot; the database checks the rest when the rows are written.

    Args:
        url: SQLAlchemy's, such as ``mysql+pymysql://user:password@host/database`` or ``sqlite:///file.db``.
        table: the table's name, in the case in which the database has it; a schema may stand before it.
        key: the columns that make a row unique; there must be a unique index of them. None: the primary key; ``()``:
            append.
        columns: the columns that are written; None: all that are not generated.
        delivery: ``"exactly-once"``, or ``"at-least-once"``: written with each tick, without a ledger.
        ledger: the table of the ledger, made if it does not exist.
        retry_for: how long a lost connection is tried again before the run fails.
        settings: arguments of `sqlalchemy.create_engine`, such as ``connect_args``. Never shown.
        on_data_loss: ``"fail"`` when a run starts and the ledger lacks an epoch that was committed, or ``"continue"``.

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
        key: Iterable[str] | None = None,
        columns: Iterable[str] | None = None,
        delivery: Delivery = "exactly-once",
        ledger: str = "malflow_ledger",
        retry_for: timedelta = timedelta(minutes=1),
        settings: Mapping[str, Any] | None = None,
        on_data_loss: OnDataLoss = "fail",
    ) -> None:
        me = "SqlSink"
        check_options(me, delivery, on_data_loss, key=key, columns=columns)
        if not isinstance(table, str) or not table:
            raise GraphError(f"{me} needs the name of a table; got {short_repr(table)}")
        self._database = Database(url, settings, retry_for, me)
        self._table_name, self._ledger_name = table, ledger
        self._key = None if key is None else tuple(key)
        self._columns = None if columns is None else tuple(columns)
        self.delivery = delivery
        self._accepts_loss = on_data_loss == "continue"
        self._owner: SinkOwner | None = None
        self._rows: EpochRows | None = None
        self._writer: tuple[TableWriter, ValueChecks] | None = None

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Add one row."""
        self.sink_batch((msg.key,), (msg.value,), (msg.timestamp,))

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Add rows to the epoch, or to the tick.

        Raises:
            SqlError: if a value is no row of the table.
        """
        del timestamps
        self._described().add(keys, values)

    def flush(self) -> None:
        """Write the rows of the tick, if the delivery is at-least-once."""
        if self.delivery == "at-least-once":
            batches, cleared = self._take_rows()
            if batches or cleared:
                self._try_to_write(lambda: self._write(batches, cleared=cleared, epoch=None), batches)

    def fence(self, owner: SinkOwner) -> int:
        """Become the owner in the ledger; return the last epoch that was committed.

        Raises:
            FencedError: if a later run is the owner.
            SqlError: if the ledger lacks an epoch that was committed, or the database refuses something.
        """
        self._owner = owner
        self._described()
        return self._database.retry(partial(self._take_over, owner), f"taking over sink '{owner.sink}'")

    def prepare(self, epoch: int) -> Handle | None:
        """Return the rows of the epoch, which fit the columns."""
        batches, cleared = self._take_rows()
        if not batches and not cleared:
            return None
        return epoch, cleared, tuple((batch.operation, batch.columns, tuple(batch.rows)) for batch in batches)

    def commit(self, handles: Sequence[Handle]) -> None:
        """Write epochs that the ledger does not have, each in one transaction."""
        self._described()
        for epoch, cleared, plain in handles:
            batches = [RowBatch(*batch) for batch in plain]
            self._try_to_write(partial(self._write, batches, cleared=cleared, epoch=epoch), batches)

    def abort(self, keep: Sequence[Handle]) -> None:
        """Forget the rows that are in no epoch; the database has none of an epoch before its commit."""
        del keep
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
        epoch = ledger.take_over(connection)
        if not self._accepts_loss:
            check_loss(owner, epoch, self._ledger_name, SqlError)
        return epoch

    def _write(self, batches: Sequence[RowBatch], *, cleared: bool, epoch: int | None) -> None:
        writer, _ = self._made_writer()
        with self._database.transaction() as connection:
            if epoch is not None and self._ledger().last_epoch(connection) >= epoch:
                return
            if cleared:
                writer.clear(connection)
            for batch in batches:
                writer.write(connection, batch, strict=epoch is not None)
            if epoch is not None:
                self._ledger().note(connection, epoch)

    def _try_to_write(self, action: Any, batches: Sequence[RowBatch]) -> None:
        what = f"writing to table {self._table_name}"

        def attempt() -> None:
            try:
                action()
            except (exc.StatementError, OverflowError, TypeError, ValueError) as error:
                if is_lost(error):
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
            shown = short_repr(dict(zip(batch.columns, row, strict=True)))
            said = self._database.without_secrets(reason(again))
            return SqlError(f"table {self._table_name} in {self._database!r} can't have the row {shown}: {said}")
        return self._database.failure(what, error)

    def _take_rows(self) -> tuple[list[RowBatch], bool]:
        rows = self._rows
        if rows is None or not len(rows):
            return [], False
        batches, cleared = list(rows.batches()), rows.cleared
        rows.reset()
        _, checks = self._made_writer()
        for batch in batches:
            checks.check(batch)
        return batches, cleared

    def _described(self) -> EpochRows:
        """Return the rows of the epoch, when the table has been looked at."""
        if self._rows is None:
            self._rows = self._database.retry(self._describe, f"describing table {self._table_name}")
        return self._rows

    def _describe(self) -> EpochRows:
        database = self._database
        with database.transaction() as connection:
            needs_undo = self.delivery == "exactly-once"
            table = described(connection, self._table_name, "SqlSink", database, needs_undo=needs_undo)
            shape = chosen_shape(table, self._key, self._columns, SqlError)
            writer = TableWriter(table, shape.key, connection.dialect.name)
            self._writer = writer, ValueChecks(table, connection.dialect)
        return EpochRows(shape)

    def _made_writer(self) -> tuple[TableWriter, ValueChecks]:
        if self._writer is None:
            raise SqlError(f"the sink of table {self._table_name} is closed")
        return self._writer

    def _ledger(self) -> Ledger:
        if self._owner is None:
            raise SqlError(f"the sink of table {self._table_name} has no owner; the runtime must call fence() first")
        return Ledger(self._ledger_name, self._owner)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer": None, "_rows": None}

    def __repr__(self) -> str:
        return f"SqlSink({self._database!r}, {self._table_name!r})"

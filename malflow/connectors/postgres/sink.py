"""A sink that writes rows to a table: by key or appended, exactly once with the snapshots of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, TypeAlias

import psycopg

from malflow.connectors.lost_output import Confirmed, OnDataLoss
from malflow.connectors.options import names_of, require_delivery, require_name, require_on_data_loss
from malflow.connectors.postgres.batches import Batch, as_text
from malflow.connectors.postgres.connection import PostgresServer
from malflow.connectors.postgres.errors import PostgresError
from malflow.connectors.postgres.ledger import Ledger
from malflow.connectors.postgres.names import Table, describe
from malflow.connectors.postgres.writing import Refused, Stages, TableWriter
from malflow.connectors.tables.options import chosen_shape
from malflow.connectors.tables.row_shapes import RowShape
from malflow.connectors.tables.transaction_rows import TransactionRows
from malflow.message import DataMessage
from malflow.sinks.formatting import Formatter, checked_formatter, formatted
from malflow.sinks.transactional import Delivery, SinkOwner, TransactionalSinkImpl

__all__ = ["PostgresSink"]

Handle: TypeAlias = tuple[int, bool, tuple[tuple[Any, ...], ...]]
"""A transaction: its number, whether the table is emptied first, and its batches. Plain values."""


_DURABLE = """
select set_config('synchronous_commit', 'local', false) where current_setting('synchronous_commit') = 'off'
"""
"""What is committed survives a crash of the server: the next snapshot no longer has its rows."""


class _Waiting(Exception):
    """A row refers to one that another sink has yet to write."""


class PostgresSink(TransactionalSinkImpl[Any, Any, Any, Handle]):
    """Write each record's value as a row of a table.

    A value is a dict, a dataclass, a named tuple, or a tuple in the order of `columns`. With a key a row replaces the
    one that has its key; the value None deletes the row whose key is the record's key (a tuple if there are several
    columns). A `Change` of `PostgresChanges` is applied: also deletes, changes of the key, and truncations. Without a
    key rows are appended.

    Exactly once: the rows of a transaction are part of the snapshot, and are written and committed together with a row
    of the `ledger`, which has the transaction's number and the run that owns the sink. Rows are visible after the
    snapshot. The server checks types and NULL before the snapshot, everything else when the rows are written.

    Args:
        dsn: a libpq connection string or URL; every setting of libpq is passed through.
        table: the table's name as in SQL, such as ``public.orders``.
        formatter: returns the row for a message; by default its value.
        key: the columns that make a row unique; there must be a unique index of them. None: the primary key; ``()``:
            append.
        columns: the columns that are written; None: all that are not generated.
        delivery: ``"exactly-once"``, or ``"at-least-once"``: written with each tick, without a ledger.
        text: columns whose values are text as Postgres writes it, such as those of `PostgresChanges` ``text``.
        ledger: the table of the ledger, made if it does not exist.
        retry_for: how long a lost connection is tried again before the run fails.
        on_data_loss: ``"fail"`` when the ledger lacks a transaction that was committed, at a start or amid a run, or
            ``"continue"``.

    Raises:
        GraphError: if an argument is invalid.
    """

    on_driver: ClassVar[bool] = True

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        formatter: Formatter | None = None,
        key: Iterable[str] | None = None,
        columns: Iterable[str] | None = None,
        delivery: Delivery = "exactly-once",
        text: Iterable[str] = (),
        ledger: str = "malflow_commits",
        retry_for: timedelta = timedelta(minutes=1),
        on_data_loss: OnDataLoss = "fail",
    ) -> None:
        me = "PostgresSink"
        require_delivery(me, delivery)
        require_on_data_loss(me, on_data_loss)
        require_name(me, "table", table, "the name of a table")
        require_name(me, "ledger", ledger, "the name of a table")
        self._server = PostgresServer(dsn, retry_for, me)
        self._table_name, self._ledger_name = table, ledger
        self._key = None if key is None else names_of(me, "key", key, what="columns")
        self._columns = None if columns is None else names_of(me, "columns", columns, what="columns")
        self._text = frozenset(names_of(me, "text", text, what="columns"))
        self._formatter = checked_formatter(me, formatter)
        self.delivery = delivery
        self._confirmed = Confirmed(ledger, PostgresError, accepts_loss=on_data_loss == "continue")
        self._owner: SinkOwner | None = None
        self._rows: TransactionRows | None = None
        self._writer: TableWriter | None = None
        self._staged: dict[int, Stages] = {}
        self._pending: dict[int, Handle] = {}

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Add one row."""
        self.sink_batch((msg.key,), (msg.value,), (msg.timestamp,))

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Add rows to the transaction, or to the tick.

        Raises:
            PostgresError: if a value is no row of the table.
        """
        rows = self._rows
        if rows is None:
            rows = self._server.retry(self._new_rows, f"describing table {self._table_name}")
            self._rows = rows
        rows.add(keys, formatted(self._formatter, keys, values, timestamps))

    def flush(self) -> None:
        """Write the rows of the tick, if the delivery is at-least-once."""
        if self.delivery == "at-least-once":
            batches, cleared = self._take_rows()
            if batches or cleared:
                self._server.retry(lambda: self._write_tick(batches, cleared=cleared), self._writing)

    def fence(self, owner: SinkOwner) -> int:
        """Become the owner in the ledger; return the last transaction that was committed.

        Raises:
            FencedError: if a later run is the owner.
            PostgresError: if the ledger lacks a transaction that was committed, or the server refuses something.
        """
        self._owner = owner
        return self._server.retry(partial(self._take_over, owner), f"taking over sink '{owner.sink}'")

    def prepare(self, transaction: int) -> Handle | None:
        """Return the rows of the transaction; the server has seen them in temporary tables.

        If the table has checks, or unique indexes beside the key, they are also written and rolled back: what it
        refuses must not get into a snapshot, from which no run could continue.

        Raises:
            PostgresError: if the server refuses a row.
        """
        batches, cleared = self._take_rows()
        if not batches and not cleared:
            return None
        self._staged.pop(transaction, None)
        self._pending = {number: it for number, it in self._pending.items() if number < transaction}
        handle = transaction, cleared, tuple(map(tuple, batches))
        self._server.retry(lambda: self._stage(transaction, batches), self._writing)
        self._server.retry(lambda: self._try_out([*self._pending.values(), handle]), self._writing)
        self._pending[transaction] = handle
        return handle

    def commit(self, handles: Sequence[Handle]) -> None:
        """Write transactions that the ledger does not have, each as a whole.

        Raises:
            FencedError: if a later run is the owner.
            PostgresError: if the ledger lacks a transaction that was committed, or the server refuses something.
        """
        for handle in handles:
            self._server.retry(partial(self._write_transaction, handle), self._writing)
            self._pending.pop(handle[0], None)

    def abort(self, keep: Sequence[Handle]) -> None:
        """Forget the rows that are not committed; the server has none of them."""
        kept = {handle[0] for handle in keep}
        self._rows = None
        self._staged = {number: stages for number, stages in self._staged.items() if number in kept}
        self._pending = {handle[0]: handle for handle in keep}

    def close(self) -> None:
        """Close the connection."""
        self._rows = None
        self._disconnect()

    @property
    def _writing(self) -> str:
        return f"writing to table {self._table_name}"

    def _take_over(self, owner: SinkOwner) -> int:
        connection, ledger = self._connected().connection, self._ledger()
        with self._reliably():
            ledger.make(connection)
            with connection.transaction():
                transaction = ledger.take_over(connection)
                self._confirmed.begin(owner, transaction)
                return transaction

    def _stage(self, transaction: int, batches: Sequence[Batch]) -> None:
        writer = self._connected()
        with self._reliably(), writer.connection.transaction():
            self._staged[transaction] = writer.stage(batches)

    def _try_out(self, handles: Sequence[Handle]) -> None:
        """Write transactions, and undo that, if more than the server's types decides whether the table takes them."""
        writer = self._connected()
        table, shape = self._described
        if table.conditions + table.unique_indexes <= bool(shape.key):
            return
        with self._reliably(), suppress(_Waiting), writer.connection.transaction(force_rollback=True):
            try:
                for transaction, cleared, batches in handles:
                    stages = self._staged.get(transaction) or writer.stage(Batch(*batch) for batch in batches)
                    if cleared:
                        writer.clear()
                    writer.apply(stages, strict=True)
                writer.check_constraints()
            except Refused as error:
                if not error.may_pass:
                    raise
                raise _Waiting from None

    def _write_transaction(self, handle: Handle) -> None:
        transaction, cleared, batches = handle
        writer, ledger = self._connected(), self._ledger()
        stages = self._staged.get(transaction)
        with self._reliably(), writer.connection.transaction():
            last = ledger.last_committed(writer.connection, self._confirmed)
            if last >= transaction:
                return
            if stages is None:
                stages = writer.stage(Batch(*batch) for batch in batches)
            if cleared:
                writer.clear()
            writer.apply(stages, strict=True)
            ledger.note(writer.connection, transaction)
        self._confirmed.note(transaction)
        self._staged.pop(transaction, None)
        writer.release(stages)

    def _write_tick(self, batches: Sequence[Batch], *, cleared: bool) -> None:
        writer = self._connected()
        with self._reliably(), writer.connection.transaction():
            stages = writer.stage(batches)
            if cleared:
                writer.clear()
            writer.apply(stages, strict=False)
        writer.release(stages)

    def _take_rows(self) -> tuple[list[Batch], bool]:
        rows = self._rows
        if rows is None or not len(rows):
            return [], False
        table, _ = self._described
        batches = [as_text(batch, table, self._text) for batch in rows.batches()]
        cleared = rows.cleared
        rows.reset()
        return batches, cleared

    def _new_rows(self) -> TransactionRows:
        self._connected()
        table, shape = self._described
        return TransactionRows(shape, [table.exact_types(name) for name in shape.key])

    def _ledger(self) -> Ledger:
        if self._owner is None:
            raise PostgresError(
                f"the sink of table {self._table_name} has no owner; the runtime must call fence() first"
            )
        return Ledger(self._ledger_name, self._owner)

    def _connected(self) -> TableWriter:
        if self._writer is not None and not self._writer.connection.closed:
            return self._writer
        self._disconnect()
        connection = self._server.connect()
        try:
            seconds = max(1, int(self._server.retry_for))
            connection.execute(f"set idle_in_transaction_session_timeout to '{seconds}s'")
            connection.execute(_DURABLE)
            table = describe(connection, self._table_name, "PostgresSink")
            shape = self._shape_of(table)
        except BaseException:
            connection.close()
            raise
        self._described = table, shape
        self._writer = TableWriter(connection, table, shape.key)
        return self._writer

    def _shape_of(self, table: Table) -> RowShape:
        return chosen_shape(table, self._key, self._columns, PostgresError, more=self._text)

    @contextmanager
    def _reliably(self) -> Iterator[None]:
        """Close the connection if what is done on it fails: the next attempt has a new one."""
        try:
            yield
        except psycopg.Error:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        writer, self._writer = self._writer, None
        self._staged.clear()
        if writer is not None:
            writer.connection.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer": None, "_rows": None, "_staged": {}, "_pending": {}}

    def __repr__(self) -> str:
        return f"PostgresSink({self._server!r}, {self._table_name!r})"

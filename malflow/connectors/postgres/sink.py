"""A sink that writes rows to a table: by key or appended, exactly once with the snapshots of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg

from malflow.connectors.lost_output import OnDataLoss
from malflow.connectors.options import names_of
from malflow.connectors.postgres.batches import Batch, as_text
from malflow.connectors.postgres.connection import PostgresServer
from malflow.connectors.postgres.errors import PostgresError
from malflow.connectors.postgres.ledger import Ledger, found_ledger
from malflow.connectors.postgres.names import Table, describe
from malflow.connectors.postgres.writing import Refused, Stages, TableWriter
from malflow.connectors.tables.ledger_sink import DEFAULT_LEDGER, Handle, LedgerSink, PlainBatch
from malflow.connectors.tables.options import chosen_shape
from malflow.connectors.tables.row_shapes import RowShape
from malflow.connectors.tables.transaction_rows import RowBatch, TransactionRows
from malflow.sinks.formatting import Formatter
from malflow.sinks.transactional import Delivery, SinkOwner

__all__ = ["PostgresSink"]

_DURABLE = """
select set_config('synchronous_commit', 'local', false) where current_setting('synchronous_commit') = 'off'
"""
"""A commit must survive a crash of the server, since the next snapshot no longer has its rows."""


class _Waiting(Exception):
    """A row refers to a row that another sink has yet to write."""


class PostgresSink(LedgerSink):
    """Write each record's value as a row of a table.

    A value is a dict, a dataclass, a named tuple, or a tuple in the order of `columns`. With a key, a row replaces the
    row of the same key; the value None deletes the row whose key is the record's key (a tuple for several columns). A
    `Change` of `PostgresChanges` is applied, also a delete, a change of the key, or a truncation. Without a key, rows
    are appended.

    Exactly once: the rows of a transaction are part of the snapshot, and are committed together with a row of the
    `ledger`, which has the transaction's number and the run that owns the sink. Rows become visible after the snapshot.
    The server checks types and NULL before the snapshot, everything else when the rows are written.

    Args:
        dsn: a libpq connection string or URL; every setting of libpq is passed through.
        table: the table's name as in SQL, such as ``public.orders``.
        formatter: returns the row for a message; by default its value.
        key: the columns that make a row unique, which need a unique index. None: the primary key; ``()``: append.
        columns: the columns that are written; None: all that are not generated.
        delivery: ``"exactly-once"``, or ``"at-least-once"``: written with each tick, without a ledger.
        text: columns whose values are already Postgres's text, such as those of `PostgresChanges` ``text``.
        ledger: the table of the ledger, created if it does not exist. A sink with a row in ``malflow_commits``, the
            former default, keeps it there.
        retry_for: how long to retry a lost connection before the run fails.
        on_data_loss: ``"fail"`` if the ledger lacks a committed transaction, at the start or during the run, or
            ``"continue"``.

    Raises:
        GraphError: if an argument is invalid.
    """

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
        ledger: str = DEFAULT_LEDGER,
        retry_for: timedelta = timedelta(minutes=1),
        on_data_loss: OnDataLoss = "fail",
    ) -> None:
        self._server = PostgresServer(dsn, retry_for, "PostgresSink")
        super().__init__(
            self._server,
            table,
            formatter=formatter,
            key=key,
            columns=columns,
            delivery=delivery,
            ledger=ledger,
            on_data_loss=on_data_loss,
        )
        self._text = frozenset(names_of("PostgresSink", "text", text, what="columns"))
        self._ledger: Ledger | None = None
        self._writer: TableWriter | None = None
        self._staged: dict[int, Stages] = {}

    def abort(self, keep: Sequence[Handle]) -> None:
        """Discard the uncommitted rows; the server has none of them."""
        super().abort(keep)
        self._staged = {number: stages for number, stages in self._staged.items() if number in self._pending}

    def close(self) -> None:
        """Close the connection."""
        super().close()
        self._disconnect()

    def _describe(self) -> TransactionRows:
        self._connected()
        table, shape = self._described
        return TransactionRows(shape, [table.exact_types(name) for name in shape.key])

    def _plain(self, batches: Sequence[RowBatch]) -> tuple[PlainBatch, ...]:
        table, _ = self._described
        return tuple(tuple(as_text(batch, table, self._text)) for batch in batches)

    def _take_over(self, owner: SinkOwner) -> int:
        connection = self._connected().connection
        with self._reliably():
            self._ledger = ledger = found_ledger(connection, self._ledger_name, owner)
            ledger.make(connection)
            with connection.transaction():
                transaction = ledger.take_over(connection)
                self._confirmed.begin(owner, transaction, ledger.name)
                return transaction

    def _try_out(self, handle: Handle, pending: Sequence[Handle]) -> None:
        self._staged.pop(handle[0], None)
        self._server.retry(partial(self._stage, handle), self._writing)
        self._server.retry(partial(self._write_and_undo, pending), self._writing)

    def _stage(self, handle: Handle) -> None:
        writer = self._connected()
        with self._reliably(), writer.connection.transaction():
            self._staged[handle[0]] = writer.stage(Batch(*batch) for batch in handle[2])

    def _write_and_undo(self, handles: Sequence[Handle]) -> None:
        """Write transactions and roll back, if the table has constraints beyond types and NULL."""
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

    def _write(self, batches: Sequence[PlainBatch], *, cleared: bool, transaction: int | None) -> None:
        write = partial(self._write_once, batches, cleared=cleared, transaction=transaction)
        self._server.retry(write, self._writing)

    def _write_once(self, batches: Sequence[PlainBatch], *, cleared: bool, transaction: int | None) -> None:
        writer = self._connected()
        ledger = None if transaction is None else self._claimed()
        stages = None if transaction is None else self._staged.get(transaction)
        with self._reliably(), writer.connection.transaction():
            if ledger is not None and ledger.last_committed(writer.connection, self._confirmed) >= (transaction or 0):
                return
            if stages is None:
                stages = writer.stage(Batch(*batch) for batch in batches)
            if cleared:
                writer.clear()
            writer.apply(stages, strict=transaction is not None)
            if ledger is not None and transaction is not None:
                ledger.note(writer.connection, transaction)
        if transaction is not None:
            self._confirmed.note(transaction)
            self._staged.pop(transaction, None)
        writer.release(stages)

    def _claimed(self) -> Ledger:
        if self._ledger is None:
            self._ledger = Ledger(self._ledger_name, self._owned_by())
        return self._ledger

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
        """Close the connection if the block fails, so that the next attempt has a new one."""
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
        return {**super().__getstate__(), "_writer": None, "_staged": {}}

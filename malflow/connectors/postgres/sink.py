"""A sink that writes rows to a table: by key or appended, exactly once with the snapshots of the run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg

from malflow.checks import check_flag, checked_names
from malflow.connectors.lost_output import OnDataLoss
from malflow.connectors.postgres.connection import PostgresError, PostgresServer
from malflow.connectors.postgres.copy_text import cells_of, line_of
from malflow.connectors.postgres.identifiers import Table, describe
from malflow.connectors.postgres.ledger import Ledger, found_ledger
from malflow.connectors.postgres.staged_rows import Staged, StagedRows
from malflow.connectors.postgres.writing import AppendedWriter, Batch, Refused, Stages, TableWriter, as_text
from malflow.connectors.segments import is_sealed
from malflow.connectors.tables.ledger_sink import DEFAULT_LEDGER, Handle, LedgerSink, PlainBatch
from malflow.connectors.tables.refused_rows import found_by_halves
from malflow.connectors.tables.rows import RowShape, chosen_shape
from malflow.connectors.tables.transaction_rows import RowBatch, RowsWriter, TransactionRows
from malflow.durations import Duration
from malflow.sinks.distributed import Share
from malflow.sinks.formatting import Formatter
from malflow.sinks.transactional import Delivery, SinkOwner
from malflow.sinks.transactional import Refused as RefusedRecord

__all__ = ["PostgresSink"]

_DELETED = "merge deleted"
_LOG = logging.getLogger("malflow")

_DURABLE = """
select set_config('synchronous_commit', 'local', false) where current_setting('synchronous_commit') = 'off'
"""
"""A commit must survive a crash of the server, since the next snapshot no longer has its rows."""


class _Waiting(Exception):
    """A row refers to a row that another sink has yet to write."""


class PostgresSink(LedgerSink):
    """Write each record's value as a row of a table.

    A value is a dict, a dataclass, a named tuple, or a tuple in the order of `columns`. With a key, a row replaces the
    row of the same key; the value None deletes the row at the record's key (a tuple for several columns). A `Change` of
    `PostgresChanges` is applied, also a delete, a change of the key, or a truncation. Without a key, rows are appended.

    Exactly once: the rows of a transaction are part of the snapshot, and are committed together with a row of the
    `ledger`. That row has the transaction's number and the run that owns the sink. Rows become visible after the
    snapshot. The server checks types and NULL before the snapshot, everything else when the rows are written. On Spark,
    a worker copies the rows to an unlogged table beside the target, and stores them beside the snapshots; the snapshot
    has only their names, and the driver merges the table into the target.

    Args:
        dsn: a libpq connection string or URL; every setting of libpq is passed through.
        table: the table's name as in SQL, such as ``public.orders``.
        formatter: returns the row for a message; by default its value.
        key: the columns that make a row unique; they need a unique index. None: the primary key; ``()``: append.
        columns: the columns that are written; None: all that are not generated.
        delivery: ``"exactly-once"``, or ``"at-least-once"``: written with each tick, without a ledger.
        text: columns that already have Postgres's text, such as from `PostgresChanges` ``text``.
        round: whether the server rounds numbers with more digits than a column keeps, and fractions of a second, and
            cuts the time of day of a date. If False, such a value is refused before the snapshot.
        ledger: the table of the ledger, created if it does not exist. A sink with a row in ``malflow_commits``, the
            former default, keeps it there.
        retry_for: how long to retry a lost connection before the run fails.
        on_data_loss: ``"fail"`` if the ledger lacks a committed transaction, at the start or during the run, or
            ``"continue"``.
        on_workers: with ``"exactly-once"``, whether a worker copies the rows to the server, on Spark; each must then
            reach it; if False, the driver does.

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
        round: bool = False,
        ledger: str = DEFAULT_LEDGER,
        retry_for: Duration = timedelta(minutes=1),
        on_data_loss: OnDataLoss = "fail",
        on_workers: bool = True,
    ) -> None:
        check_flag("PostgresSink", "on_workers", on_workers)
        check_flag("PostgresSink", "round", round)
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
        self._rounds = round
        self._text = frozenset(checked_names("PostgresSink", "text", text, what="columns"))
        self._ledger: Ledger | None = None
        self._writer: TableWriter | None = None
        self._staged: dict[int, Stages] = {}
        self.on_workers = on_workers
        self._may_create = False

    def abort(self, keep: Sequence[Any]) -> None:
        """Discard the uncommitted rows; the table has none of them."""
        super().abort(keep)
        self._staged = {number: stages for number, stages in self._staged.items() if number in self._pending}

    def close(self) -> None:
        """Close the connection."""
        super().close()
        self._disconnect()

    def encode(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> Any:
        """Return the rows of a batch; as the text of a COPY if they are appended.

        Raises:
            PostgresError: as `sink_batch` does.
        """
        packed = super().encode(keys, values, timestamps)
        _, shape = self._described
        if packed[0] is not None or shape.key:
            return packed
        return self._plain([RowBatch("insert", shape.columns, packed[1])])[0]

    def open_writer(self, share: Share) -> RowsWriter:
        """Return the writer of the rows of a transaction. It copies them to the server."""
        rows, segment = self._described_rows().empty(), self.segments.writer(share)
        make = RowsWriter if self._described[1].key else AppendedWriter
        return make(rows, self._plain, segment, partial(self._stage_share, share))

    def check_sealed(self, handles: Sequence[Any]) -> None:
        """Check that the table accepts the last transaction, if it has constraints beyond types and NULL."""
        self._server.retry(partial(self._write_and_undo, handles), self._writing)

    def _describe(self) -> TransactionRows:
        self._connected()
        table, shape = self._described
        return TransactionRows(shape, [table.exact_types(name) for name in shape.key])

    def _plain(self, batches: Sequence[RowBatch]) -> tuple[PlainBatch, ...]:
        table, _ = self._described
        return tuple(tuple(as_text(batch, table, self._text, rounds=self._rounds)) for batch in batches)

    def _take_over(self, owner: SinkOwner) -> int:
        connection = self._connected().connection
        with self._reliably():
            self._ledger = ledger = found_ledger(connection, self._ledger_name, owner)
            ledger.make(connection)
            with connection.transaction():
                transaction = ledger.take_over(connection)
                self._confirmed.begin(owner, transaction, ledger.name)
            self._may_create = self._staged_rows().may_create(connection)
        if self._store is not None and self.on_workers and not self._may_create:
            _LOG.warning(
                "sink '%s': the role may not create tables in the schema of %s, so the driver copies the rows of a "
                "transaction when it commits it; grant create on the schema, and workers copy them before",
                owner.sink,
                self._described[0].shown,
            )
        return transaction

    def _try_out(self, handle: Handle, pending: Sequence[Handle]) -> None:
        self._staged.pop(handle[0], None)
        self._server.retry(partial(self._stage, handle), self._writing)
        self._server.retry(partial(self._write_and_undo, pending), self._writing)

    def _stage(self, handle: Handle) -> None:
        writer = self._connected()
        with self._reliably(), writer.connection.transaction():
            self._staged[handle[0]] = writer.stage(Batch(*batch) for batch in handle[2])

    def _stage_share(self, share: Share, cleared: bool, batches: Sequence[PlainBatch]) -> tuple[Any, ...]:
        """Copy the rows of a share to the server. The server checks their types.

        Returns:
            Whether the target is emptied first, and the tables that keep the rows; None if the role can't create any.
        """
        return cleared, self._server.retry(partial(self._stage_share_once, share, batches), self._writing)

    def _stage_share_once(self, share: Share, batches: Sequence[PlainBatch]) -> tuple[Staged, ...] | None:
        writer = self._connected()
        rows = [Batch(*batch) for batch in batches]
        try:
            with writer.connection.transaction():
                if self._may_create:
                    return self._staged_rows().write(writer, share, rows)
                writer.stage(rows)
                return None
        except Refused:
            if not self.divides:
                raise
            return None  # the commit reads the rows from a segment, and finds those that are refused
        finally:
            self._disconnect()

    def _write_sealed(self, transaction: int, sealed: Sequence[Any]) -> None:
        if not self._server.retry(partial(self._merge_once, transaction, sealed), self._writing):
            super()._write_sealed(transaction, sealed)

    def _merge_once(self, transaction: int, sealed: Sequence[Any]) -> bool:
        """Merge staged rows into the table; return whether they were there, or are committed."""
        writer, ledger, rows = self._connected(), self._claimed(), self._staged_rows()
        with self._reliably(), writer.connection.transaction():
            if ledger.last_committed(writer.connection, self._confirmed) >= transaction:
                return True
            found = self._found(writer, sealed)
            if found is None:
                return False
            cleared, stages = found
            if cleared:
                writer.clear()
            writer.apply(stages, strict=True)
            self._check_deferred(writer)
            rows.drop(writer.connection, stages)
            ledger.note(writer.connection, transaction)
        self._confirmed.note(transaction)
        return True

    def _check_deferred(self, writer: TableWriter) -> None:
        """Check deferred constraints before the commit, if refused rows are to be found."""
        if self.divides:
            writer.check_constraints()

    def _found(self, writer: TableWriter, sealed: Sequence[Any]) -> tuple[bool, Stages] | None:
        """Return whether a transaction empties the table, and its staged rows; None if these are gone."""
        stages: Stages = []
        for *_, staged in sealed:
            found = None if staged is None else self._staged_rows().found(writer.connection, staged)
            if found is None:
                return None
            stages += found
        return any(cleared for *_, cleared, _ in sealed), stages

    def drop_shares(self, keep: Sequence[Any], *, until: int | None = None) -> None:
        """Remove shares, and the tables with their rows."""
        super().drop_shares(keep, until=until)
        if self._may_create:
            kept = {name for *_, staged in keep for name, *_ in staged or ()}
            self._server.retry(partial(self._sweep, kept, until), f"dropping staged rows of {self._table_name}")

    def _sweep(self, keep: set[str], until: int | None) -> None:
        connection = self._connected().connection
        with self._reliably():
            self._staged_rows().sweep(connection, keep, until=until)

    def _staged_rows(self) -> StagedRows:
        return StagedRows(self._described[0].schema, self._owned_by())

    def _write_and_undo(self, handles: Sequence[Any]) -> None:
        """Write transactions and roll back, if the table has constraints beyond types and NULL."""
        writer = self._connected()
        table, shape = self._described
        if table.conditions + table.unique_indexes <= bool(shape.key):
            return
        with self._reliably(), suppress(_Waiting), writer.connection.transaction(force_rollback=True):
            try:
                for handle in handles:
                    cleared, stages = self._stages_of(writer, handle)
                    if cleared:
                        writer.clear()
                    writer.apply(stages, strict=True)
                writer.check_constraints()
            except Refused as error:
                if not error.may_pass:
                    raise
                raise _Waiting from None

    def _stages_of(self, writer: TableWriter, handle: Any) -> tuple[bool, Stages]:
        """Return whether a transaction empties the table, and its staged rows; stage them if they are not."""
        if not is_sealed(handle):
            transaction, cleared, batches = handle
            return cleared, self._staged.get(transaction) or writer.stage(Batch(*batch) for batch in batches)
        found = self._found(writer, handle[1])
        if found is not None:
            return found
        cleared, batches = self._unsealed(handle[1])
        return cleared, writer.stage(Batch(*batch) for batch in batches)

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
            self._check_deferred(writer)
            if ledger is not None and transaction is not None:
                ledger.note(writer.connection, transaction)
        if transaction is not None:
            self._confirmed.note(transaction)
            self._staged.pop(transaction, None)
        writer.release(stages)

    def _refused_rows(
        self, batches: Sequence[PlainBatch], *, cleared: bool
    ) -> list[tuple[Sequence[Any], dict[int, Exception]]]:
        writer = self._connected()
        found: list[tuple[Sequence[Any], dict[int, Exception]]] = []
        with self._reliably(), writer.connection.transaction(force_rollback=True):
            if cleared:
                writer.clear()
            for batch in (Batch(*it) for it in batches):
                lines = batch.text.splitlines(keepends=True)
                write = partial(writer.try_some, batch, writer.empty_stage(batch))
                found.append((lines, dict(found_by_halves(lines, write))))
        self._disconnect()  # with the temporary tables that were rolled back
        return found

    def _batch_of(self, batch: PlainBatch, rows: Sequence[Any]) -> PlainBatch:
        return tuple(Batch(*batch)._replace(size=len(rows), text=b"".join(rows)))

    def _refused_row(self, batch: PlainBatch, row: Any, error: Exception) -> RefusedRecord:
        operation, columns, *_ = batch
        cells = cells_of(row)
        if operation != "merge":
            return RefusedRecord(dict(zip(columns, cells, strict=True)), error, operation)
        is_deleted, *rest = cells
        return RefusedRecord(dict(zip(columns, rest, strict=True)), error, _DELETED if is_deleted == "t" else operation)

    def _restored(self, operation: str, cells: Mapping[str, Any]) -> PlainBatch:
        row = (*(("t" if operation == _DELETED else "f"),) * (operation in (_DELETED, "merge")), *cells.values())
        kind = "merge" if operation == _DELETED else operation
        return kind, tuple(cells), 1, line_of(row)

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
        """Close the connection if the block fails. The next attempt then has a new one."""
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

"""A sink that writes rows to a table: by key or appended, exactly once with the snapshots of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, TypeAlias

import psycopg

from malflow.connectors.postgres.batches import Batch, as_text
from malflow.connectors.postgres.connection import Server
from malflow.connectors.postgres.errors import PostgresError
from malflow.connectors.postgres.ledger import Ledger
from malflow.connectors.postgres.names import Table, describe
from malflow.connectors.postgres.writing import Stages, TableWriter
from malflow.connectors.tables.epoch_rows import EpochRows
from malflow.connectors.tables.options import OnDataLoss, check_loss, check_options, chosen_shape
from malflow.connectors.tables.row_shapes import RowShape
from malflow.errors import GraphError, short_repr
from malflow.message import DataMessage
from malflow.sinks.transactional import Delivery, SinkOwner, TransactionalSinkImpl

__all__ = ["PostgresSink"]

Handle: TypeAlias = tuple[int, bool, tuple[tuple[Any, ...], ...]]
"""An epoch: its number, whether the table is emptied first, and its batches. Plain values."""


_DURABLE = """
select set_config('synchronous_commit', 'local', false) where current_setting('synchronous_commit') = 'off'
"""
"""What is committed survives a crash of the server: the next snapshot no longer has its rows."""


class PostgresSink(TransactionalSinkImpl[Any, Any, Any, Handle]):
    """Write each record's value as a row of a table.

    A value is a dict, a dataclass, a named tuple, or a tuple in the order of `columns`. With a key a row replaces the
    one that has its key; the value None deletes the row whose key is the record's key (a tuple if there are several
    columns). A `Change` of `PostgresChanges` is applied: also deletes, changes of the key, and truncations. Without a
    key rows are appended.

    Exactly once: the rows of an epoch are part of the snapshot, and are written in one transaction with a row of the
    `ledger`, which has the number of the epoch and the run that owns the sink. Rows are visible after the snapshot. The
    server checks types and NULL before the snapshot, everything else when the rows are written.

    Args:
        dsn: a libpq connection string or URL; every setting of libpq is passed through.
        table: the table's name as in SQL, such as ``public.orders``.
        key: the columns that make a row unique; there must be a unique index of them. None: the primary key; ``()``:
            append.
        columns: the columns that are written; None: all that are not generated.
        delivery: ``"exactly-once"``, or ``"at-least-once"``: written with each tick, without a ledger.
        text: columns whose values are text as Postgres writes it, such as those of `PostgresChanges` ``text``.
        ledger: the table of the ledger, made if it does not exist.
        retry_for: how long a lost connection is tried again before the run fails.
        on_data_loss: ``"fail"`` when a run starts and the ledger lacks an epoch that was committed, or ``"continue"``.

    Raises:
        GraphError: if an argument is invalid.
    """

    on_driver: ClassVar[bool] = True

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        key: Iterable[str] | None = None,
        columns: Iterable[str] | None = None,
        delivery: Delivery = "exactly-once",
        text: Iterable[str] = (),
        ledger: str = "malflow_commits",
        retry_for: timedelta = timedelta(minutes=1),
        on_data_loss: OnDataLoss = "fail",
    ) -> None:
        me = "PostgresSink"
        check_options(me, delivery, on_data_loss, key=key, columns=columns, text=text)
        if not isinstance(table, str) or not table:
            raise GraphError(f"{me} needs the name of a table; got {short_repr(table)}")
        self._server = Server(dsn, retry_for, me)
        self._table_name, self._ledger_name = table, ledger
        self._key = None if key is None else tuple(key)
        self._columns = None if columns is None else tuple(columns)
        self._text = frozenset(text)
        self.delivery = delivery
        self._accepts_loss = on_data_loss == "continue"
        self._owner: SinkOwner | None = None
        self._rows: EpochRows | None = None
        self._writer: TableWriter | None = None
        self._staged: dict[int, Stages] = {}

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Add one row."""
        self.sink_batch((msg.key,), (msg.value,), (msg.timestamp,))

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Add rows to the epoch, or to the tick.

        Raises:
            PostgresError: if a value is no row of the table.
        """
        del timestamps
        rows = self._rows
        if rows is None:
            rows = self._server.retry(self._new_rows, f"describing table {self._table_name}")
            self._rows = rows
        rows.add(keys, values)

    def flush(self) -> None:
        """Write the rows of the tick, if the delivery is at-least-once."""
        if self.delivery == "at-least-once":
            batches, cleared = self._take_rows()
            if batches or cleared:
                self._server.retry(lambda: self._write_tick(batches, cleared=cleared), self._writing)

    def fence(self, owner: SinkOwner) -> int:
        """Become the owner in the ledger; return the last epoch that was committed.

        Raises:
            FencedError: if a later run is the owner.
            PostgresError: if the ledger lacks an epoch that was committed, or the server refuses something.
        """
        self._owner = owner
        return self._server.retry(partial(self._take_over, owner), f"taking over sink '{owner.sink}'")

    def prepare(self, epoch: int) -> Handle | None:
        """Return the rows of the epoch; the server has seen them in temporary tables."""
        batches, cleared = self._take_rows()
        if not batches and not cleared:
            return None
        self._staged.pop(epoch, None)
        self._server.retry(lambda: self._stage(epoch, batches), self._writing)
        return epoch, cleared, tuple(map(tuple, batches))

    def commit(self, handles: Sequence[Handle]) -> None:
        """Write epochs that the ledger does not have, each in one transaction."""
        for handle in handles:
            self._server.retry(partial(self._write_epoch, handle), self._writing)

    def abort(self, keep: Sequence[Handle]) -> None:
        """Forget the rows that are not committed; the server has none of them."""
        kept = {handle[0] for handle in keep}
        self._rows = None
        self._staged = {epoch: stages for epoch, stages in self._staged.items() if epoch in kept}

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
                epoch = ledger.take_over(connection)
                if not self._accepts_loss:
                    check_loss(owner, epoch, self._ledger_name, PostgresError)
                return epoch

    def _stage(self, epoch: int, batches: Sequence[Batch]) -> None:
        writer = self._connected()
        with self._reliably(), writer.connection.transaction():
            self._staged[epoch] = writer.stage(batches)

    def _write_epoch(self, handle: Handle) -> None:
        epoch, cleared, batches = handle
        writer, ledger = self._connected(), self._ledger()
        stages = self._staged.get(epoch)
        with self._reliably(), writer.connection.transaction():
            if ledger.last_epoch(writer.connection) >= epoch:
                return
            if stages is None:
                stages = writer.stage(Batch(*batch) for batch in batches)
            if cleared:
                writer.clear()
            writer.apply(stages, strict=True)
            ledger.note(writer.connection, epoch)
        self._staged.pop(epoch, None)
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

    def _new_rows(self) -> EpochRows:
        self._connected()
        return EpochRows(self._described[1])

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
        return {**self.__dict__, "_writer": None, "_rows": None, "_staged": {}}

    def __repr__(self) -> str:
        return f"PostgresSink({self._server!r}, {self._table_name!r})"

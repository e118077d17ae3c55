"""The base of sinks that write rows to a database table, together with a row of a ledger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from malflow.checks import check_name, checked_names
from malflow.connectors.lost_output import Confirmed, OnDataLoss
from malflow.connectors.options import check_delivery, check_on_data_loss
from malflow.connectors.remote import RemoteSystem
from malflow.connectors.segments import ONE_SHARE, Sealed, SegmentedSinkImpl, is_sealed
from malflow.connectors.tables.refused_rows import WrittenAgain, refusing_records, without_rows
from malflow.connectors.tables.transaction_rows import Packed, RowBatch, RowsWriter, TransactionRows
from malflow.errors import FencedError, MalflowError
from malflow.sinks.distributed import Share
from malflow.sinks.formatting import Formatter, checked_formatter, formatted
from malflow.sinks.transactional import Delivery, Divided, Refused, SinkOwner

__all__ = ["DEFAULT_LEDGER", "Handle", "LedgerRow", "LedgerSink", "PlainBatch", "ledger_id"]

C = TypeVar("C")

DEFAULT_LEDGER: Final = "malflow_ledger"
"""The default table of the ledger, for every sink and database."""

PlainBatch: TypeAlias = tuple[Any, ...]

Handle: TypeAlias = tuple[int, bool, tuple[PlainBatch, ...]]
"""A transaction: its number, whether the table is emptied first, and its batches. Plain values."""


class LedgerSink(SegmentedSinkImpl[Any, Any, Any], ABC):
    """Keep the rows of a transaction in the snapshot, then commit them with the transaction's number in a ledger.

    A subclass describes the table, takes over the ledger, checks that the database accepts a transaction, and writes.

    On Spark the workers check the rows. A transaction has one share: one task reduces its rows to one for each key, in
    the order of ticks, from all workers, and stores them beside the snapshots.

    Args:
        remote: the database.
        table: the name of the table.
        formatter: returns the row for a message.
        key: the columns that make a row unique; None: the primary key.
        columns: the columns that are written; None: all.
        delivery: with ``"at-least-once"``, rows are written with each tick, without a ledger.
        ledger: the name of the ledger's table.
        on_data_loss: ``"continue"`` if the ledger may lack a committed transaction.

    Raises:
        GraphError: if an argument is invalid.
    """

    on_driver: ClassVar[bool] = True
    share_bytes: int = ONE_SHARE

    def __init__(
        self,
        remote: RemoteSystem[Any],
        table: str,
        *,
        formatter: Formatter | None,
        key: Iterable[str] | None,
        columns: Iterable[str] | None,
        delivery: Delivery,
        ledger: str,
        on_data_loss: OnDataLoss,
    ) -> None:
        me = type(self).__name__
        check_delivery(me, delivery)
        check_on_data_loss(me, on_data_loss)
        check_name(me, "table", table, "the name of a table")
        check_name(me, "ledger", ledger, "the name of a table")
        self.delivery = delivery
        self._remote, self._table_name, self._ledger_name = remote, table, ledger
        self._key = None if key is None else checked_names(me, "key", key, what="columns")
        self._columns = None if columns is None else checked_names(me, "columns", columns, what="columns")
        self._formatter = checked_formatter(me, formatter)
        self._confirmed = Confirmed(ledger, remote.error, accepts_loss=on_data_loss == "continue")
        self._owner: SinkOwner | None = None
        self._rows: TransactionRows | None = None
        self._pending: dict[int, Handle] = {}
        self._again: list[PlainBatch] = []
        self._committed = 0

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Add rows to the transaction, or to the tick.

        Raises:
            MalflowError: if a value is not a row of the table; its class is PostgresError or SqlError.
        """
        rows, items = self._described_rows(), formatted(self._formatter, keys, values, timestamps)
        if self.divides:
            self._check_rows(keys, items)
        rows.add(keys, items)

    def encode(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> Packed:
        """Return the rows of a batch.

        Raises:
            MalflowError: as `sink_batch` does.
        """
        rows, items = self._described_rows(), formatted(self._formatter, keys, values, timestamps)
        if self.divides:
            self._check_rows(keys, items)
        return rows.packed(keys, items)

    def _check_rows(self, keys: Sequence[Any], items: Sequence[Any]) -> None:
        """Raise if a record is not a row that can be written, as far as this process knows."""
        rows = self._described_rows().empty()
        with refusing_records():
            rows.add(keys, items)
            self._plain(list(rows.batches()))

    def open_writer(self, share: Share) -> RowsWriter:
        """Return the writer of the rows of a transaction."""
        return RowsWriter(self._described_rows().empty(), self._plain, self.segments.writer(share))

    def flush(self) -> None:
        """Write the rows of the tick, if delivery is at-least-once."""
        if self.delivery == "at-least-once":
            batches, cleared = self._taken()
            if batches or cleared:
                self._write(batches, cleared=cleared, transaction=None)

    def fence(self, owner: SinkOwner) -> int:
        """Become the owner in the ledger; return the last committed transaction.

        Raises:
            FencedError: if a later run is the owner.
            MalflowError: if the ledger lacks a committed transaction, or the database reports an error.
        """
        super().fence(owner)
        self._owner = owner
        self._rows = None
        self._described_rows()
        self._committed = self._remote.retry(partial(self._take_over, owner), f"taking over sink '{owner.sink}'")
        return self._committed

    def prepare(self, transaction: int, /) -> Any:
        """Return the rows of the transaction, after a check that the database accepts them.

        If the table has checks, or unique indexes besides the key, the rows are written and rolled back: no run could
        continue from a snapshot with rows that the table rejects.

        Raises:
            MalflowError: if a row does not fit, or the database rejects it.
        """
        batches, cleared = self._taken()
        if not batches and not cleared:
            return None
        handle = transaction, cleared, batches
        self._pending = {number: it for number, it in self._pending.items() if number < transaction}
        if not self.divides:  # otherwise the commit tells which rows are refused
            self._try_out(handle, [*self._pending.values(), handle])
        self._pending[transaction] = handle
        return handle

    def commit(self, handles: Sequence[Any]) -> None:
        """Write the transactions that the ledger does not have, each as a whole.

        Raises:
            FencedError: if a later run is the owner.
            MalflowError: if the ledger lacks a committed transaction, rows that workers have stored are gone, or the
                database reports an error.
        """
        self._described_rows()
        for handle in handles:
            transaction = handle[0]
            if not is_sealed(handle):
                self._write(handle[2], cleared=handle[1], transaction=transaction)
                self._pending.pop(transaction, None)
                continue
            if transaction > self._committed:
                self._write_sealed(transaction, handle[1])
                self._committed = transaction
            self.drop_shares((), until=transaction)

    def divide(self, handle: Any) -> Divided[Any]:
        """Write a transaction row by row, or by halves, and roll back; return it without the rows that are refused.

        Raises:
            MalflowError: if the table does not exist, or the database reports an error that is not about rows.
        """
        self._described_rows()
        transaction = handle[0]
        cleared, batches = self._unsealed(handle[1]) if is_sealed(handle) else handle[1:]
        find = partial(self._refused_rows, batches, cleared=cleared)
        found = self._remote.retry(find, f"searching refused rows of table {self._table_name}")
        refused = [
            self._refused_row(batch, rows[at], error)
            for batch, (rows, errors) in zip(batches, found, strict=True)
            for at, error in errors.items()
        ]
        size = sum(len(rows) for rows, _ in found)
        if not refused:
            return Divided(handle, (), size)
        left = [
            self._batch_of(batch, without_rows(rows, errors))
            for batch, (rows, errors) in zip(batches, found, strict=True)
            if len(errors) < len(rows)
        ]
        divided = transaction, cleared, tuple(left)
        if not is_sealed(handle):
            self._pending[transaction] = divided
        return Divided(divided, refused, size)

    def write_refused(self, records: Sequence[Refused]) -> None:
        """Write rows again that `divide` returned, after the other rows of the transaction."""
        self._described_rows()
        self._again += [self._restored(it.key, it.value) for it in records]

    def encode_refused(self, records: Sequence[Refused]) -> WrittenAgain:
        """Return a piece with rows that `divide` returned."""
        self._described_rows()
        return WrittenAgain(tuple(self._restored(it.key, it.value) for it in records))

    def abort(self, keep: Sequence[Any]) -> None:
        """Discard the rows that are in no transaction; none of them is in the table."""
        super().abort(keep)
        self._pending = {handle[0]: handle for handle in keep if not is_sealed(handle)}
        self._again = []
        if self._rows is not None:
            self._rows.reset()

    def close(self) -> None:
        """Discard the rows that are in no transaction."""
        super().close()
        self._rows, self._again = None, []

    def _write_sealed(self, transaction: int, sealed: Sequence[Sealed]) -> None:
        """Write a transaction that workers have encoded."""
        cleared, batches = self._unsealed(sealed)
        self._write(batches, cleared=cleared, transaction=transaction)

    def _unsealed(self, sealed: Sequence[Sealed]) -> tuple[bool, tuple[PlainBatch, ...]]:
        """Return the rows of a transaction that workers have encoded: whether it empties the table, and batches."""
        parts = [*self.segments.read(sealed)]
        return any(cleared for cleared, _ in parts), tuple(batch for _, batches in parts for batch in batches)

    @abstractmethod
    def _describe(self) -> TransactionRows:
        """Describe the table; return an empty set of rows for the first transaction."""

    @abstractmethod
    def _plain(self, batches: Sequence[RowBatch]) -> tuple[PlainBatch, ...]:
        """Check the rows of a transaction, and return them as plain values for the snapshot."""

    @abstractmethod
    def _take_over(self, owner: SinkOwner) -> int:
        """Create the ledger if needed, and make the run its owner; return the last committed transaction."""

    @abstractmethod
    def _try_out(self, handle: Handle, pending: Sequence[Handle]) -> None:
        """Check that the database accepts a transaction.

        Args:
            handle: the transaction.
            pending: all uncommitted transactions, in order; `handle` is the last.
        """

    @abstractmethod
    def _write(self, batches: Sequence[PlainBatch], *, cleared: bool, transaction: int | None) -> None:
        """Write rows; for a transaction, also its number in the ledger, and nothing if the ledger has it."""

    @abstractmethod
    def _refused_rows(
        self, batches: Sequence[PlainBatch], *, cleared: bool
    ) -> list[tuple[Sequence[Any], dict[int, Exception]]]:
        """Write batches, and roll back; return the rows of each, and the errors of the refused ones, by position."""

    @abstractmethod
    def _batch_of(self, batch: PlainBatch, rows: Sequence[Any]) -> PlainBatch:
        """Return a batch with some of its rows."""

    @abstractmethod
    def _refused_row(self, batch: PlainBatch, row: Any, error: Exception) -> Refused:
        """Return a row of a batch for a dead letter: the operation as its key, and the cells by column."""

    @abstractmethod
    def _restored(self, operation: str, cells: Mapping[str, Any]) -> PlainBatch:
        """Return a batch of one row that `_refused_row` returned."""

    @property
    def _writing(self) -> str:
        return f"writing to table {self._table_name}"

    def _owned_by(self) -> SinkOwner:
        if self._owner is None:
            raise self._remote.error(
                f"the sink of table {self._table_name} has no owner; the runtime must call fence() first"
            )
        return self._owner

    def _described_rows(self) -> TransactionRows:
        """Return the rows of the transaction; the first call describes the table."""
        if self._rows is None:
            self._rows = self._remote.retry(self._describe, f"describing table {self._table_name}")
        return self._rows

    def _taken(self) -> tuple[tuple[PlainBatch, ...], bool]:
        rows, (again, self._again) = self._rows, (tuple(self._again), [])
        if rows is None or not len(rows):
            return again, False
        batches, cleared = list(rows.batches()), rows.cleared
        rows.reset()
        return (*self._plain(batches), *again), cleared

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the rows; a copy has the description of the table, and need not connect to encode rows."""
        described = None if self._rows is None else self._rows.empty()
        return {**super().__getstate__(), "_rows": described, "_pending": {}, "_again": []}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._remote!r}, {self._table_name!r})"


class LedgerRow(ABC, Generic[C]):
    """One sink's row of the ledger. Its methods run within a transaction. The transaction locks the row until it ends.

    Args:
        table: the name of the ledger's table.
        owner: the sink, and the run that is to own it.
        error: the class of the errors that are raised.

    Attributes:
        name: of the table.
    """

    def __init__(self, table: str, owner: SinkOwner, error: type[MalflowError]) -> None:
        self.name = table
        self._owner = owner
        self._error = error

    @abstractmethod
    def _locked(self, connection: C) -> tuple[int, int] | None:
        """Lock the row; return the last committed transaction and the claim of the row's owner, None without a row."""

    @abstractmethod
    def note(self, connection: C, transaction: int) -> None:
        """Record a transaction, within the database transaction that writes its rows."""

    def last_committed(self, connection: C, confirmed: Confirmed) -> int:
        """Lock the row until this commit; return the last committed transaction.

        Args:
            connection: a connection within a transaction.
            confirmed: the transactions that the ledger must have.

        Raises:
            FencedError: if another run is the owner.
            MalflowError: if the ledger lacks a transaction that was confirmed, or the row is gone.
        """
        row = self._locked(connection)
        if row is None:
            confirmed.check(0)
            raise self._lost()
        transaction = self._checked(row)
        confirmed.check(transaction)
        return transaction

    def _lost(self) -> MalflowError:
        """Return the error for a row that is gone."""
        return self._error(
            f"sink '{self._owner.sink}' of job '{self._owner.job}' has no row in {self.name}: someone deleted it while "
            "the job ran; start the job again"
        )

    def _checked(self, row: tuple[int, int]) -> int:
        """Return the last committed transaction of a row that no later run owns."""
        transaction, claim = row
        owner = self._owner
        if claim > owner.claim:
            raise FencedError(
                f"sink '{owner.sink}' of job '{owner.job}' was taken over by run {claim}; this is run {owner.claim}"
            )
        return transaction


def ledger_id(owner: SinkOwner) -> str:
    """Return the key of a sink's row in a ledger: names that differ only in case or trailing spaces stay distinct."""
    return sha256(f"{owner.job}\n{owner.sink}".encode("utf-8", "surrogatepass")).hexdigest()

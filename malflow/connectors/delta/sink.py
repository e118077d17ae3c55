"""A sink that appends to a Delta table, a commit for each snapshot."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import deltalake
import pyarrow as pa

from malflow.checks import check_flag, check_mapping, checked_seconds
from malflow.columns import Frame
from malflow.connectors.delta.checks import Checks
from malflow.connectors.delta.files import DataFileWriter, Staged
from malflow.connectors.delta.partitions import check_partitions
from malflow.connectors.delta.schemas import delta_schema, delta_type
from malflow.connectors.delta.table import Table
from malflow.connectors.lost_output import OnDataLoss
from malflow.connectors.options import check_delivery, check_on_data_loss
from malflow.connectors.parquet.columns import Columns, UnfitRow
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.sinks.distributed import DistributedSinkImpl, Share, Shares
from malflow.sinks.formatting import Formatter, checked_formatter, formatted
from malflow.sinks.transactional import Delivery, Divided, Refused, SinkOwner
from malflow.store.filesystem import is_local, local_path
from malflow.store.redaction import redacted, secrets_in
from malflow.type_parameters import K, T, V
from malflow.words import short_repr

__all__ = ["DeltaSink"]

_OURS = frozenset({"table_or_uri", "data", "mode", "storage_options", "commit_properties", "predicate"})
_SETTINGS = frozenset(inspect.signature(deltalake.write_deltalake).parameters)


_OF_DELTA = {
    "key": "'AWS_ACCESS_KEY_ID'",
    "secret": "'AWS_SECRET_ACCESS_KEY'",
    "token": "'AWS_SESSION_TOKEN'",
    "endpoint_url": "'AWS_ENDPOINT_URL', with 'AWS_ALLOW_HTTP': 'true' for http",
    "client_kwargs": "'AWS_ENDPOINT_URL', 'AWS_REGION', and 'AWS_ALLOW_HTTP': 'true' for http",
    "anon": "'AWS_SKIP_SIGNATURE': 'true'",
    "profile": "'AWS_PROFILE'",
}
"""The names of options in s3fs, and their equivalents in deltalake."""


class DeltaSink(DistributedSinkImpl[K, V, T]):
    """Append records to a Delta table: one commit for each snapshot interval that had records.

    A record is a dict, a dataclass or a named tuple, or a tuple if `schema` is passed. Records that come as columns
    stay columns, unless there is a `formatter`.

    With ``delivery="exactly-once"``, which needs snapshots, the rows of an interval are written to data files in the
    table's folder, below ``malflow-<sink>``, which one commit adds to the table's log once the snapshot is durable. The
    log records the transactions, so each interval is in the table once, as a whole, and a run that has been replaced
    can't commit. On Spark the workers write the files: one for each 4 MiB or so of compressed records.

    Files can't be added to a table that is neither local nor on S3, to a partitioned one, to one with constraints,
    generated, identity or mapped columns, to one that does not exist yet and has no known schema, or with `settings`.
    Then the rows are in the snapshot, compressed, and the process that started the run appends them; an interval should
    fit in memory.

    Args:
        table: the path or URL of the table; it is created if it does not exist.
        schema: the schema of the records; by default the schema of the table or, if it does not exist, inferred from
            the first records; columns have their own types.
        delivery: ``"exactly-once"``, or ``"at-least-once"``: this commits at each snapshot and at the end of the run,
            and after a restart appends the records since the snapshot again.
        formatter: returns the row for a message; by default its value.
        settings: arguments of `deltalake.write_deltalake`, such as ``{"partition_by": ["day"]}``.
        storage_options: options of deltalake, such as credentials.
        retry_for: how long the run waits for an unreachable object store.
        on_data_loss: ``"fail"`` or ``"continue"`` if the log of the table lacks a committed transaction, at the start
            or during the run, for example since the table was restored from a backup or deleted.
        on_workers: whether the workers write, on Spark; if False, the driver does.

    Raises:
        GraphError: if an argument is not valid.

    >>> DeltaSink("s3://bucket/orders", storage_options={"AWS_REGION": "eu-central-1"})
    DeltaSink('s3://bucket/orders')
    """

    def __init__(  # noqa: PLR0913 - all of them a user's
        self,
        table: str | os.PathLike[str],
        *,
        schema: pa.Schema | None = None,
        delivery: Delivery = "exactly-once",
        formatter: Formatter | None = None,
        settings: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, str] | None = None,
        retry_for: Duration = timedelta(minutes=1),
        on_data_loss: OnDataLoss = "fail",
        on_workers: bool = True,
    ) -> None:
        if not isinstance(table, str | os.PathLike) or not os.fspath(table):
            raise GraphError(f"DeltaSink table must be the path or URL of a table; got {short_repr(table)}")
        check_delivery("DeltaSink", delivery)
        check_flag("DeltaSink", "on_workers", on_workers)
        check_mapping("DeltaSink", "settings", settings, "arguments of deltalake.write_deltalake")
        seconds = checked_seconds("DeltaSink", "retry_for", retry_for, may_be_zero=True)
        check_on_data_loss("DeltaSink", on_data_loss)
        stored = None if schema is None else _checked_schema(schema)
        ours = sorted(_OURS.intersection(settings or {}))
        if ours:
            raise GraphError(f"DeltaSink settings can't have {ours[0]!r}, on which delivery depends")
        unknown = sorted(map(str, set(settings or {}) - _SETTINGS))
        if unknown:
            known = ", ".join(sorted(_SETTINGS - _OURS))
            raise GraphError(f"DeltaSink settings can't have {unknown[0]!r}: write_deltalake takes {known}")
        _check_storage_options(storage_options)
        path = os.fspath(table)
        uri = local_path(path) if is_local(path) else path
        self.delivery = delivery
        self.on_workers = on_workers
        self._shown = redacted(uri, secrets_in(storage_options or {}, uri))
        self._schema = stored
        self._formatter = checked_formatter("DeltaSink", formatter)
        self.takes_columns = formatter is None
        self._table = Table(
            uri,
            storage_options or {},
            settings or {},
            seconds,
            accepts_loss=on_data_loss == "continue",
        )
        self._begin()
        if delivery == "at-least-once":
            self.snapshot, self.restore = self._append_now, self._begin_anew

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write a batch of records.

        Raises:
            UnfitRow: if a record does not fit the schema.
        """
        if self.divides:  # a record that does not fit fails now, and not when types are inferred
            self.write_piece(self.encode(keys, values, timestamps))
            return
        rows = formatted(self._formatter, keys, values, timestamps)
        if self._columns.schema is None:  # types are inferred better from more rows
            self._rows.extend(rows)
        elif rows:
            self.write_piece(self._batch(rows))

    def sink_columns(self, keys: Sequence[K] | None, batch: pa.RecordBatch, timestamps: Sequence[T]) -> None:
        """Write a batch of records that came as columns. Without a schema, the columns have their own types.

        Raises:
            UnfitRow: if a record does not fit the schema.
        """
        self._convert()  # the schema follows from the records before
        if self._columns.schema is None and not self.divides:
            self.write_piece(self._first_batch(partial(self._of_columns, batch), Frame(batch)))
        else:
            self.write_piece(self.encode_columns(keys, batch, timestamps))

    def encode(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> pa.RecordBatch:
        """Return a batch of records as columns; a table that does not exist is created with the first one's schema.

        Raises:
            UnfitRow: if a record does not fit the schema.
        """
        rows = list(formatted(self._formatter, keys, values, timestamps))
        return self._encoded(partial(self._batch, rows), rows)

    def encode_columns(
        self, keys: Sequence[K] | None, batch: pa.RecordBatch, timestamps: Sequence[T]
    ) -> pa.RecordBatch:
        """Return a batch of records that came as columns, like `encode`, with the types of the schema.

        Raises:
            UnfitRow: if a record does not fit the schema.
        """
        return self._encoded(partial(self._of_columns, batch), Frame(batch))

    def open_writer(self, share: Share) -> DataFileWriter | RowsWriter:
        """Return a writer of a data file in the table's folder; if files can't be added, of rows for the handle."""
        return self._table.writer(share) or RowsWriter()

    def prepare(self, transaction: int, /) -> Shares | None:
        """End a transaction; return None if there are no rows."""
        self._convert()
        return super().prepare(transaction)

    def close(self) -> None:
        """Drop records that are not prepared; if delivery is at least once, append them."""
        if self.delivery == "at-least-once":
            self._append_now()
        super().close()

    def fence(self, owner: SinkOwner) -> int:
        """Take over this sink's transactions in the table; return the last one.

        Raises:
            FencedError: if a run with a higher claim has them.
            DeltaSinkError: if the log of the table lacks a committed transaction.
        """
        super().fence(owner)
        self._begin()
        self._last = self._table.fence(owner, self._schema)
        self._columns.schema = self._schema if self._schema is not None else self._table.schema()
        return self._last

    def commit(self, handles: Sequence[Shares]) -> None:
        """Append transactions that are not in the table.

        Raises:
            FencedError: if a run with a higher claim has the table.
            DeltaSinkError: if the table can't be written.
        """
        for transaction, sealed in handles:
            rows, files = _sorted(sealed)
            self._table.append_sealed(transaction, rows, files)
            self._last = max(self._last, transaction)

    def divide(self, handle: Shares) -> Divided[Shares] | None:
        """Return a transaction without the rows that do not meet the conditions of the table; None if all do.

        Raises:
            DeltaSinkError: if the table can't be read, or a condition can't be computed.
        """
        transaction, sealed = handle
        data, checks = self._table.read(*_sorted(sealed)), self._table.checks(None)
        broken = {} if checks is None else self._table.check(partial(checks.broken, data))
        if not broken:
            return None
        rows = data.take([*broken]).to_pylist()
        refused = [
            Refused(row, UnfitRow(self._shown, None, row, reason))
            for row, reason in zip(rows, broken.values(), strict=True)
        ]
        writer = RowsWriter(data.schema)
        for batch in data.filter(pa.array(at not in broken for at in range(data.num_rows))).to_batches():
            writer.write(batch)
        return Divided((transaction, (writer.seal(),)), refused, data.num_rows)

    def encode_refused(self, records: Sequence[Refused]) -> pa.RecordBatch:
        """Return rows that `divide` returned as columns."""
        return self._batch([it.value for it in records])

    def abort(self, keep: Sequence[Shares]) -> None:
        """Drop records that are not prepared, and data files that are not in the table's log, except for `keep`."""
        super().abort(keep)
        self._table.sweep(self._last, [file for _, sealed in keep for file in _sorted(sealed)[1]])

    def _begin(self) -> None:
        self._columns = Columns(self._shown, self._schema, delta_type)
        self._rows: list[Any] = []
        self._partitions: Sequence[str] | None = None
        self._checks: Checks | None = None
        self._last = 0

    def _discard(self) -> None:
        self._rows = []
        super()._discard()

    def _convert(self) -> None:
        """Infer the schema of the first rows."""
        rows, self._rows = self._rows, []
        if rows:
            self.write_piece(self._first_batch(partial(self._batch, rows), rows))

    def _encoded(self, make: Callable[[], pa.RecordBatch], rows: Sequence[Any]) -> pa.RecordBatch:
        """Return a batch that a function makes of rows. The first one creates the table."""
        if self._columns.schema is None:
            self._table.create(self._first_batch(make, rows).schema)
            self._columns.schema = self._table.schema()
        return make()

    def _first_batch(self, make: Callable[[], pa.RecordBatch], rows: Sequence[Any]) -> pa.RecordBatch:
        columns = self._columns
        columns.schema = self._table.schema()  # another writer, or a commit of the last run, may have created it since
        batch = make()
        try:
            delta_schema(batch.schema)
        except ValueError as error:
            raise UnfitRow(self._shown, None, rows[0], f"the rows have {error}; pass formatter=") from None
        return batch

    def _batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """Return rows as columns with partitions that can be written."""
        return self._checked(self._columns.make(rows), rows)

    def _of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return columns with the types of the schema, and partitions that can be written."""
        rows = Frame(batch)
        return self._checked(self._columns.cast(batch, rows), rows)

    def _checked(self, batch: pa.RecordBatch, rows: Sequence[Any]) -> pa.RecordBatch:
        if self._partitions is None:
            self._partitions = self._table.partitions()
            self._checks = self._table.checks(self._columns.schema)
        if self._partitions:
            check_partitions(self._shown, batch, self._partitions, rows)
        divides = self.divides and self.delivery == "exactly-once"  # then the commit tells which rows are refused
        if self._checks is not None and not divides:
            self._table.check(partial(self._checks.refuse, self._shown, batch, rows))
        return batch

    def _append_now(self) -> None:
        """Append the records so far, if delivery is at least once."""
        prepared = self.prepare(self._next_transaction)
        if prepared is not None:
            for rows in _sorted(prepared[1])[0]:
                self._table.append(None, rows)

    def _begin_anew(self, position: object) -> None:
        """Do nothing, since the records after the snapshot are appended again."""

    def __repr__(self) -> str:
        return f"DeltaSink({self._shown!r})"


class RowsWriter:
    """Collects the rows of a share, for a table that data files can't be added to.

    Args:
        schema: their schema; by default that of the first.
    """

    def __init__(self, schema: pa.Schema | None = None) -> None:
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._batches.append(batch)

    def seal(self) -> bytes:
        """Return the rows as a compressed Arrow stream."""
        data = pa.Table.from_batches(self._batches, self._schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, data.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(data)
        rows: bytes = sink.getvalue().to_pybytes()
        return rows

    def discard(self) -> None:
        """Drop the rows."""
        self._batches = []


def _sorted(sealed: Any) -> tuple[list[pa.Table], list[Staged]]:
    """Return the rows and the data files of a transaction; handles of earlier versions have rows alone."""
    rows, files = [], []
    for it in [sealed] if isinstance(sealed, bytes) else sealed:
        if isinstance(it, bytes):
            with pa.ipc.open_stream(it) as reader:
                rows.append(reader.read_all())
        else:
            path, size, statistics, types = it
            files.append((path, size, statistics, dict(types)))
    return rows, files


def _check_storage_options(options: Any) -> None:
    """Refuse options of other libraries. deltalake would ignore them, or reject them without naming them."""
    if options is not None and not isinstance(options, Mapping):
        raise GraphError(
            f"DeltaSink storage_options must be a dict of deltalake's options; got a {type(options).__name__}"
        )
    for name, value in (options or {}).items():
        instead = _OF_DELTA.get(name)
        if instead is not None:
            raise GraphError(f"DeltaSink storage_options has {name!r}, an option of s3fs; deltalake calls it {instead}")
        if not isinstance(name, str) or not isinstance(value, str):
            raise GraphError(
                f"DeltaSink storage_options must be texts, as deltalake requires; {name!r} is of type "
                f"{type(value).__name__}"
            )


def _checked_schema(schema: Any) -> pa.Schema:
    """Return a schema with the types of a Delta table."""
    if not isinstance(schema, pa.Schema):
        raise GraphError(f"DeltaSink schema must be a pyarrow.Schema; got {short_repr(schema)}")
    try:
        return delta_schema(schema)
    except ValueError as error:
        raise GraphError(f"DeltaSink schema can't have {error}") from None

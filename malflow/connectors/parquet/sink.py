"""A sink that writes Parquet files; each becomes visible as a whole with the snapshot that covers it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from malflow.checks import check_mapping, check_whole_number
from malflow.columns import Frame
from malflow.connectors.lost_output import OnDataLoss, SinkFileError
from malflow.connectors.parquet.columns import Columns, stored_type
from malflow.connectors.staging.places import HIDDEN, Staged, StagedFile
from malflow.connectors.staging.sink import StagedFiles
from malflow.durations import Duration
from malflow.errors import GraphError, MalflowError
from malflow.sinks.distributed import Share, Shares
from malflow.sinks.formatting import Formatter, checked_formatter, formatted
from malflow.sinks.transactional import Delivery, SinkOwner
from malflow.store.contract import KeyExists, KeyMissing, Store
from malflow.type_parameters import K, T, V
from malflow.words import short_repr

__all__ = ["ParquetSink"]


_SCHEMA = "schema.arrow"
_SCHEMA_LIMIT = 1 << 20
"""The largest kept schema in bytes: thousands of columns. The limit keeps a foreign object of the same name out of
memory."""

_FAILURES: Final = (pa.ArrowException, OSError, MalflowError, ValueError)
_OURS = frozenset({"where", "schema", "filesystem"})


class ParquetSink(StagedFiles[K, V, T]):
    """Write records to Parquet files in a folder: a file for each snapshot interval that had records.

    On Spark the workers write the files: one for each 4 MiB or so of compressed records in an interval, at most one for
    each worker. Each becomes visible as a whole, and the files of an interval one after the other.

    A record is a dict, a dataclass, a named tuple, or a tuple if `schema` is passed. Records that come as columns stay
    columns, unless there is a `formatter`. Files are named
    ``part-<sink>-<run>-<number>-<random>.parquet``. They sort in the order in which they were written.

    With ``delivery="exactly-once"`` (it needs snapshots) a file becomes visible, as a whole, once the snapshot that
    covers its records is durable; each record is in one file. Until then it is staged: as a file below ``.malflow`` or,
    on S3, as an uncompleted multipart upload. A ledger below ``.malflow`` prevents commits by runs that have been
    replaced.

    Args:
        folder: a local folder (created if missing) or a URL on an object store.
        schema: the schema; by default that of the first columns, or inferred from the first file's records. It is
            kept in the folder for later runs.
        delivery: ``"exactly-once"``, or ``"at-least-once"``: a file becomes visible at each snapshot and at the end of
            the run, and a run that resumes writes the records since the snapshot again.
        formatter: returns the row for a message; by default its value.
        row_group_rows: the maximum number of rows in a row group (all held in memory).
        settings: arguments of `pyarrow.parquet.ParquetWriter`, such as ``{"compression": "snappy"}``; by default
            compression is zstd.
        storage_options: options for the file system, such as credentials.
        retry_for: how long the run waits for an unreachable object store.
        on_data_loss: ``"fail"`` or ``"continue"`` if the ledger lacks a committed transaction, at the start or during
            the run, for example since the folder was restored from a backup or deleted.
        on_workers: whether the workers write, on Spark; all machines must then reach the folder; if False, the driver
            does. A schema is then inferred from the first records of one worker; pass `schema` if those may lack a
            field or differ.

    Raises:
        GraphError: if an argument is not valid, or the folder is neither local nor on an object store.

    >>> ParquetSink("/data/orders", settings={"compression": "snappy"})
    ParquetSink('/data/orders')
    """

    _write_errors = (pa.ArrowException, OSError)

    def __init__(  # noqa: PLR0913 - all of them a user's
        self,
        folder: str | os.PathLike[str],
        *,
        schema: pa.Schema | None = None,
        delivery: Delivery = "exactly-once",
        formatter: Formatter | None = None,
        row_group_rows: int = 100_000,
        settings: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        retry_for: Duration = timedelta(minutes=1),
        on_data_loss: OnDataLoss = "fail",
        on_workers: bool = True,
    ) -> None:
        super().__init__(
            "ParquetSink",
            folder,
            ".parquet",
            delivery=delivery,
            storage_options=storage_options,
            retry_for=retry_for,
            on_data_loss=on_data_loss,
            on_workers=on_workers,
        )
        self._settings = _checked_settings(settings)
        self._schema = None if schema is None else _checked_schema(schema)
        check_whole_number("ParquetSink", "row_group_rows", row_group_rows)
        self._formatter = checked_formatter("ParquetSink", formatter)
        self.takes_columns = formatter is None
        self._most = row_group_rows
        self._reset()

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
            if len(self._rows) >= self._most:
                self._convert()
        elif rows:
            self.write_piece(self._columns.make(rows))

    def sink_columns(self, keys: Sequence[K] | None, batch: pa.RecordBatch, timestamps: Sequence[T]) -> None:
        """Write a batch of records that came as columns. Without `schema`, the columns have their own types.

        Raises:
            UnfitRow: if a record does not fit the schema.
        """
        self._convert()  # the schema follows from the records before
        self.write_piece(self.encode_columns(keys, batch, timestamps))

    def encode(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> pa.RecordBatch:
        """Return a batch of records as columns; of several workers that infer a schema, the first one's counts.

        Raises:
            UnfitRow: if a record does not fit the schema.
        """
        rows = formatted(self._formatter, keys, values, timestamps)
        if self._columns.schema is None:
            self._agree(lambda: self._columns.make(rows))
        return self._columns.make(rows)

    def encode_columns(
        self, keys: Sequence[K] | None, batch: pa.RecordBatch, timestamps: Sequence[T]
    ) -> pa.RecordBatch:
        """Return a batch of records that came as columns, with the types of the schema.

        Raises:
            UnfitRow: if a record does not fit the schema.
        """
        rows = Frame(batch)
        if self._columns.schema is None:
            self._agree(lambda: self._columns.cast(batch, rows))
        return self._columns.cast(batch, rows)

    def open_writer(self, share: Share) -> _ParquetWriter:
        """Return the writer of the file of a share."""
        return _ParquetWriter(lambda: self._new_file(share), self._settings, self._most, self._named)

    def fence(self, owner: SinkOwner) -> int:
        """Take over the folder; return the last transaction whose commit has begun.

        Raises:
            FencedError: if a run with a higher claim has it.
            SinkFileError: if the ledger lacks a committed transaction.
        """
        begun = super().fence(owner)
        self._reset()
        if self._schema is None and self._store is not None:
            self._columns.schema = self._kept_schema(self._store)
        return begun

    def prepare(self, transaction: int, /) -> Shares | None:
        """Complete the file of a transaction: durable, but not visible. Return None if there were no records."""
        self._convert()
        return super().prepare(transaction)

    def _reset(self) -> None:
        self._columns = Columns(self._shown, self._schema, stored_type)
        self._rows: list[Any] = []

    def _convert(self) -> None:
        """Infer the schema of the first rows, and keep it for later runs."""
        rows, self._rows = self._rows, []
        if rows:
            self.write_piece(self._columns.make(rows))
            if self._columns.schema is not None:
                self._keep_schema(self._columns.schema)

    def _agree(self, infer: Callable[[], object]) -> None:
        """Find the schema that another worker has inferred, or infer it by a function and keep it for the others."""
        if self._owner is None:
            return
        store = self._opened_store(self._owner)
        kept = self._kept_schema(store)
        if kept is None:
            infer()
            inferred, self._columns.schema = self._columns.schema, None
            if inferred is not None:
                with suppress(KeyExists):
                    self._retry.of(partial(store.put_new, _SCHEMA, inferred.serialize().to_pybytes()))
            kept = self._kept_schema(store)
        self._columns.schema = kept

    def _discard(self) -> None:
        """Drop everything that is not prepared."""
        self._rows = []
        super()._discard()

    def _kept_schema(self, store: Store) -> pa.Schema | None:
        try:
            data = self._retry.of(partial(store.get, _SCHEMA, _SCHEMA_LIMIT))
        except KeyMissing:
            return None
        try:
            return pa.ipc.read_schema(pa.py_buffer(data))
        except (pa.ArrowException, OSError) as error:
            problem = f"has a damaged {HIDDEN}/.../{_SCHEMA} ({error}); delete it, or pass schema="
            raise SinkFileError(self._shown, problem) from error

    def _keep_schema(self, schema: pa.Schema) -> None:
        if self._store is not None:
            with suppress(KeyExists):
                self._retry.of(partial(self._store.put_new, _SCHEMA, schema.serialize().to_pybytes()))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the records that are not written."""
        return {**super().__getstate__(), "_rows": []}


class _ParquetWriter:
    """Writes record batches to a Parquet file. The file is created with the first row group.

    Args:
        create: creates the file.
        settings: arguments of `pyarrow.parquet.ParquetWriter`.
        most: the maximum number of rows in a row group.
        named: names the folder in errors.
    """

    def __init__(
        self,
        create: Callable[[], StagedFile],
        settings: Mapping[str, Any],
        most: int,
        named: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._create = create
        self._settings = settings
        self._most = most
        self._named = named
        self._batches: list[pa.RecordBatch] = []
        self._buffered = 0
        self._file: StagedFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._buffered += batch.num_rows
        if self._buffered >= self._most:
            self._write()

    def seal(self) -> Staged | None:
        self._write()
        writer, file = self._writer, self._file
        if writer is None or file is None:
            return None
        with self._named():
            writer.close()
            return file.seal()

    def discard(self) -> None:
        if self._file is not None and self._writer is not None:
            with suppress(*_FAILURES):  # the file is deleted anyway
                self._writer.close()
            self._file.discard()

    def _write(self) -> None:
        """Write the buffered rows, as row groups."""
        if not self._batches:
            return
        table, self._batches, self._buffered = pa.Table.from_batches(self._batches), [], 0
        with self._named():
            if self._writer is None:
                self._file = self._create()
                self._writer = pq.ParquetWriter(self._file, table.schema, **self._settings)
            self._writer.write_table(table, row_group_size=self._most)


def _checked_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    check_mapping("ParquetSink", "settings", settings, "arguments of pyarrow.parquet.ParquetWriter")
    given = dict(settings or {})
    ours = sorted(_OURS.intersection(given))
    if ours:
        raise GraphError(
            f"ParquetSink settings can't have {ours[0]!r}: pass folder, schema and storage_options instead"
        )
    checked = {"compression": "zstd", **given}
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([("n", pa.int8())]), **checked).close()
    except TypeError as error:
        raise GraphError(f"ParquetSink settings are not valid for pyarrow.parquet.ParquetWriter: {error}") from None
    except (pa.ArrowException, OSError, ValueError):  # they may fit other columns
        pass
    return checked


def _checked_schema(schema: Any) -> pa.Schema:
    if not isinstance(schema, pa.Schema):
        raise GraphError(f"ParquetSink schema must be a pyarrow.Schema; got {short_repr(schema)}")
    try:
        fields = [field.with_type(stored_type(field.type)) for field in schema]
    except ValueError as error:
        raise GraphError(f"ParquetSink schema can't be stored: {error}") from None
    return pa.schema(fields, schema.metadata)

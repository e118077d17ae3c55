"""A sink that writes Parquet files; each becomes visible as a whole with the snapshot that covers it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from malflow.connectors.lost_output import OnDataLoss
from malflow.connectors.options import require_count, require_mapping
from malflow.connectors.parquet.columns import Columns, stored_type
from malflow.connectors.sink_errors import SinkFileError
from malflow.connectors.staging.places import HIDDEN, Staged, StagedFile
from malflow.connectors.staging.sink import Handle, StagedFiles
from malflow.errors import GraphError, MalflowError, short_repr
from malflow.message import DataMessage
from malflow.sinks.formatting import Formatter, checked_formatter, formatted
from malflow.sinks.transactional import Delivery, SinkOwner, TransactionalSinkImpl
from malflow.store.contract import KeyExists, KeyMissing, Store
from malflow.type_parameters import K, T, V

__all__ = ["Handle", "ParquetSink"]


_SCHEMA = "schema.arrow"
_SCHEMA_LIMIT = 1 << 20
_FAILURES: Final = (pa.ArrowException, OSError, MalflowError, ValueError)
_OURS = frozenset({"where", "schema", "filesystem"})


class ParquetSink(StagedFiles, TransactionalSinkImpl[K, V, T, Handle]):
    """Write records to Parquet files in a folder: a file for each snapshot interval that had records.

    A record is a dict, a dataclass, a named tuple, or a tuple if `schema` is passed. Files are named
    ``part-<sink>-<run>-<number>-<random>.parquet``, so that they sort in the order in which they were written.

    With ``delivery="exactly-once"``, which needs snapshots, a file becomes visible, as a whole, once the snapshot that
    covers its records is durable; each record is in one file. Until then it is staged: as a file below ``.malflow``
    or, on S3, as an uncompleted multipart upload. A ledger below ``.malflow`` prevents commits by runs that have been
    replaced.

    Args:
        folder: a local folder, which is created, or a URL on an object store.
        schema: the schema; by default inferred from the first file's records, and kept in the folder for later runs.
        delivery: ``"exactly-once"``, or ``"at-least-once"``: a file becomes visible at each snapshot and at the end of
            the run, and a run that resumes writes the records since the snapshot again.
        formatter: returns the row for a message; by default its value.
        row_group_rows: the maximum number of rows in a row group, which are held in memory.
        settings: arguments of `pyarrow.parquet.ParquetWriter`, such as ``{"compression": "snappy"}``; by default
            compression is zstd.
        storage_options: options for the file system, such as credentials.
        retry_for: how long the run waits for an unreachable object store.
        on_data_loss: ``"fail"`` or ``"continue"`` if the ledger lacks a committed transaction, at the start or during
            the run, for example since the folder was restored from a backup or deleted.

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
        retry_for: timedelta = timedelta(minutes=1),
        on_data_loss: OnDataLoss = "fail",
    ) -> None:
        super().__init__(
            "ParquetSink",
            folder,
            ".parquet",
            delivery=delivery,
            storage_options=storage_options,
            retry_for=retry_for,
            on_data_loss=on_data_loss,
        )
        self._settings = _checked_settings(settings)
        self._schema = None if schema is None else _checked_schema(schema)
        require_count("ParquetSink", "row_group_rows", row_group_rows)
        self._formatter = checked_formatter("ParquetSink", formatter)
        self._most = row_group_rows
        self._reset()

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Write one record."""
        self.sink_batch([msg.key], [msg.value], [msg.timestamp])

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write a batch of records.

        Raises:
            UnfitRow: if a record does not fit the schema.
        """
        rows = formatted(self._formatter, keys, values, timestamps)
        if self._columns.schema is None:  # types are inferred better from more rows
            self._rows.extend(rows)
            if len(self._rows) >= self._most:
                self._convert()
        elif rows:
            self._add(self._columns.make(rows))

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

    def _reset(self) -> None:
        self._columns = Columns(self._shown, self._schema, stored_type)
        self._rows: list[Any] = []
        self._batches: list[pa.RecordBatch] = []
        self._buffered = 0
        self._file: StagedFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def _convert(self) -> None:
        """Infer the schema of the first rows, and keep it for later runs."""
        rows, self._rows = self._rows, []
        if rows:
            self._add(self._columns.make(rows))
            if self._columns.schema is not None:
                self._keep_schema(self._columns.schema)

    def _add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._buffered += batch.num_rows
        if self._buffered >= self._most:
            self._write()

    def _write(self) -> None:
        """Write the buffered rows, as row groups."""
        if not self._batches:
            return
        table, self._batches, self._buffered = pa.Table.from_batches(self._batches), [], 0
        with self._named():
            if self._writer is None:
                self._file = self._new_file()
                self._writer = pq.ParquetWriter(self._file, self._columns.schema, **self._settings)
            self._writer.write_table(table, row_group_size=self._most)

    def _finished(self) -> Staged | None:
        """Complete the open file; return None if there were no records."""
        self._convert()
        self._write()
        writer, file = self._writer, self._file
        if writer is None or file is None:
            return None
        with self._named():
            writer.close()
            staged = file.seal()
        self._writer = self._file = None
        return staged

    def _drop(self) -> None:
        """Drop everything that is not prepared."""
        file, writer = self._file, self._writer
        self._rows, self._batches, self._buffered, self._file, self._writer = [], [], 0, None, None
        if file is not None and writer is not None:
            with suppress(*_FAILURES):  # the file is deleted anyway
                writer.close()
            file.discard()

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
        """Leave out the file that is open in this process."""
        return {**super().__getstate__(), "_file": None, "_writer": None}


def _checked_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    require_mapping("ParquetSink", "settings", settings, "arguments of pyarrow.parquet.ParquetWriter")
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

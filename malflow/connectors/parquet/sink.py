"""A sink that writes Parquet files, each of which becomes visible as a whole with the snapshot that covers it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from malflow.connectors.files.local_file import SinkFileError
from malflow.connectors.lost_output import Confirmed, OnDataLoss, check_on_data_loss
from malflow.connectors.parquet.columns import Columns, stored_type
from malflow.connectors.parquet.ledger import Ledger
from malflow.connectors.parquet.places import HIDDEN, Place, Staged, StagedFile, open_place
from malflow.errors import GraphError, MalflowError, short_repr
from malflow.filesystem import is_local, local_path
from malflow.message import DataMessage
from malflow.sinks.formatting import Formatter, checked_formatter, formatted
from malflow.sinks.transactional import Delivery, SinkOwner, TransactionalSinkImpl
from malflow.store.contract import KeyExists, KeyMissing, Store
from malflow.store.opening import open_store
from malflow.store.redaction import redacted, secrets_in
from malflow.store.retry import Retry, SystemContext
from malflow.type_parameters import K, T, V

__all__ = ["Handle", "ParquetSink"]


Handle: TypeAlias = tuple[int, Staged]
"""A transaction, and its staged file."""

_SCHEMA = "schema.arrow"
_SCHEMA_LIMIT = 1 << 20
_FAILURES = (pa.ArrowException, OSError, MalflowError, ValueError)
_OURS = frozenset({"where", "schema", "filesystem"})


class ParquetSink(TransactionalSinkImpl[K, V, T, Handle]):
    """Write records to Parquet files in a folder: a file for each snapshot interval that had records.

    A record is a dict, a dataclass, a named tuple, or a tuple if `schema` is passed. Files are named
    ``part-<sink>-<run>-<number>-<random>.parquet``, so that they sort in the order in which they were written.

    With ``delivery="exactly-once"``, which needs snapshots, a file becomes visible, as a whole, once the snapshot that
    covers its records is durable; each record is in one file. Until then it is staged: in a local folder as a file
    below ``.malflow``, on S3 as an uncompleted multipart upload. A ledger below ``.malflow`` keeps runs that were
    replaced from committing.

    Args:
        folder: a local folder, which is created, or a URL on S3.
        schema: the schema; by default inferred from the first file's records, and kept in the folder for later runs.
        delivery: ``"exactly-once"``, or ``"at-least-once"``, where a file becomes visible at each snapshot and at the
            end of the run, and a run that resumes writes the records since the snapshot again.
        formatter: returns the row for a message; by default its value.
        row_group_rows: how many rows a row group has at most; so many are in memory.
        settings: passed to `pyarrow.parquet.ParquetWriter`, such as ``{"compression": "snappy"}``; by default
            compression is zstd.
        storage_options: options for the file system, such as credentials.
        retry_for: how long the run waits while S3 can't be reached.
        on_data_loss: ``"fail"`` when the ledger lacks a transaction that was committed, as after the folder was
            restored from a backup or deleted, at a start or amid a run; or ``"continue"``.

    Raises:
        GraphError: if an argument is not valid, or the folder is neither local nor on S3.

    >>> ParquetSink("/data/orders", settings={"compression": "snappy"})
    ParquetSink('/data/orders')
    """

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
        self._options = dict(storage_options or {})
        self._folder = _checked_folder(folder)
        self._settings = _checked_settings(settings)
        if delivery not in ("exactly-once", "at-least-once"):
            raise GraphError(f"ParquetSink delivery must be 'exactly-once' or 'at-least-once'; got {delivery!r}")
        schema = None if schema is None else _checked_schema(schema)
        if isinstance(row_group_rows, bool) or not isinstance(row_group_rows, int) or row_group_rows < 1:
            raise GraphError(f"ParquetSink row_group_rows must be a positive number; got {row_group_rows!r}")
        if not isinstance(retry_for, timedelta) or retry_for < timedelta(0):
            raise GraphError(f"ParquetSink retry_for must be a timedelta, not negative; got {retry_for!r}")
        check_on_data_loss("ParquetSink", on_data_loss)
        self.delivery = delivery
        self._retry_for = retry_for.total_seconds()
        self._shown = redacted(self._folder, secrets_in(self._options, self._folder))
        self._accepts_loss = on_data_loss == "continue"
        self._schema = schema
        self._formatter = checked_formatter("ParquetSink", formatter)
        self._most = row_group_rows
        self._output: _Output | None = None
        self._owned = ""
        self._reset()
        open_place(self._folder, self._options, "", self._retry)  # refuses other file systems now
        if delivery == "at-least-once":
            self.snapshot, self.restore = self._end_file, self._begin_anew

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Write one record."""
        self.sink_batch([msg.key], [msg.value], [msg.timestamp])

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write a batch of records.

        Raises:
            UnfitRow: if a record does not fit the schema.
        """
        rows = formatted(self._formatter, keys, values, timestamps)
        if self._columns.schema is None:  # more rows tell more of the types
            self._rows.extend(rows)
            if len(self._rows) >= self._most:
                self._convert()
        elif rows:
            self._add(self._columns.make(rows))

    def close(self) -> None:
        """Drop what is not prepared; if delivery is at least once, make it visible."""
        if self.delivery == "at-least-once":
            self._end_file()
        self._drop()

    def fence(self, owner: SinkOwner) -> int:
        """Take the folder over; return the last transaction whose commit was begun.

        Raises:
            FencedError: if a run with a higher claim has it.
            SinkFileError: if the ledger lacks a transaction that was committed.
        """
        digest = blake2b(owner.name.encode(), digest_size=4).hexdigest()
        slug = re.sub(r"[^A-Za-z0-9]+", "-", owner.name)[:60].strip("-")
        sub = f"{slug}-{digest}"
        self._reset()
        with self._named():
            _make_folder(self._folder)
        store = open_store(f"{self._folder}/{HIDDEN}/{sub}", self._options)
        confirmed = Confirmed(f"below {HIDDEN}", self._lost, accepts_loss=self._accepts_loss)
        ledger = Ledger(store, self._shown, self._retry, confirmed)
        ledger.claim(owner)
        place = open_place(self._folder, self._options, f"{sub}/staged", self._retry)
        self._output = _Output(place, f"part-{digest}-{owner.claim:06d}-", self._retry, store, ledger)
        self._owned = f"part-{digest}-"
        self._columns.schema = self._schema if self._schema is not None else self._kept_schema(store)
        return ledger.last.begun

    def prepare(self, transaction: int) -> Handle | None:
        """Finish the file of a transaction, durable and not visible; return None if there were no records."""
        staged = self._finished()
        return None if staged is None else (transaction, staged)

    def commit(self, handles: Sequence[Handle]) -> None:
        """Make files visible.

        Raises:
            FencedError: if a run with a higher claim has the folder.
            SinkFileError: if a prepared file is gone, or the ledger lacks a transaction that was committed.
        """
        output = self._claimed()
        ledger = output.ledger
        due = [(number, staged) for number, staged in handles if ledger is not None and number > ledger.last.done]
        if due and ledger is not None:
            ledger.begin(due[-1][0])
            for _, staged in due:
                output.place.publish(staged)
            ledger.finish()

    def abort(self, keep: Sequence[Handle]) -> None:
        """Drop the open file, and all staged ones but those of `keep`."""
        self._drop()
        output = self._claimed()
        if output.ledger is not None and not any(number <= output.ledger.last.begun for number, _ in keep):
            output.ledger.settle()
        output.place.sweep(self._owned, [staged for _, staged in keep])

    def _reset(self) -> None:
        self._columns = Columns(self._shown, self._schema, stored_type)
        self._rows: list[Any] = []
        self._batches: list[pa.RecordBatch] = []
        self._buffered = 0
        self._file: StagedFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._output = None
        self._files = 0

    def _convert(self) -> None:
        """Infer the schema of the first rows, and keep it for later runs."""
        rows, self._rows = self._rows, []
        if rows:
            self._add(self._columns.make(rows))
            if self._output is not None:
                self._output.keep_schema(self._columns.schema)

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
                output = self._output or self._unclaimed()
                self._files += 1
                self._file = output.place.create(f"{output.prefix}{self._files:06d}-{token_hex(4)}.parquet")
                self._writer = pq.ParquetWriter(self._file, self._columns.schema, **self._settings)
            self._writer.write_table(table, row_group_size=self._most)

    def _finished(self) -> Staged | None:
        """Finish the open file; return None if there were no records."""
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

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the folder in errors of the system and of Arrow."""
        try:
            yield
        except MalflowError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise SinkFileError(self._shown, f"can't be written: {error}") from error

    def _drop(self) -> None:
        """Drop everything that is not prepared."""
        file, writer = self._file, self._writer
        self._rows, self._batches, self._buffered, self._file, self._writer = [], [], 0, None, None
        if file is not None and writer is not None:
            with suppress(*_FAILURES):  # what it writes is deleted
                writer.close()
            file.discard()

    def _end_file(self) -> None:
        """Make the records so far visible, if delivery is at least once."""
        staged = self._finished()
        if staged is not None and self._output is not None:
            self._output.place.publish(staged)

    def _begin_anew(self, position: object) -> None:
        """Do nothing: the records since the snapshot are written again."""

    def _lost(self, told: str) -> SinkFileError:
        return SinkFileError(self._shown, f"lacks what was committed: {told}")

    def _claimed(self) -> _Output:
        if self._output is None:
            raise MalflowError(f"{self!r} was not claimed by a run; it is committed by fence(), prepare() and commit()")
        return self._output

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

    @property
    def _retry(self) -> Retry:
        return Retry(self._retry_for, SystemContext())

    def _unclaimed(self) -> _Output:
        """Return where a sink writes that delivers at least once."""
        token = token_hex(4)
        _make_folder(self._folder)
        place = open_place(self._folder, self._options, f"files-{token}", self._retry)
        self._output = _Output(place, f"part-{token}-", self._retry)
        return self._output

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is open in this process."""
        return {**vars(self), "_file": None, "_writer": None, "_output": None}

    def __repr__(self) -> str:
        return f"ParquetSink({self._shown!r})"


@dataclass(frozen=True, slots=True)
class _Output:
    """Where the files of a run go, how their names begin and, if delivery is exactly once, the ledger beside them."""

    place: Place
    prefix: str
    retry: Retry
    store: Store | None = None
    ledger: Ledger | None = None

    def keep_schema(self, schema: pa.Schema) -> None:
        if self.store is not None:
            with suppress(KeyExists):
                self.retry.of(partial(self.store.put_new, _SCHEMA, schema.serialize().to_pybytes()))


def _make_folder(folder: str) -> None:
    if is_local(folder):  # the store makes folders that others can't read
        Path(local_path(folder)).mkdir(parents=True, exist_ok=True)


def _checked_folder(folder: Any) -> str:
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        raise GraphError(f"ParquetSink needs a folder, a path or URL; got {folder!r}")
    path = os.fspath(folder)
    return local_path(path) if is_local(path) else path.rstrip("/")


def _checked_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    if settings is not None and not isinstance(settings, Mapping):
        raise GraphError(f"ParquetSink settings must be a mapping; got {short_repr(settings)}")
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
        raise GraphError(f"ParquetSink settings are not those of pyarrow.parquet.ParquetWriter: {error}") from None
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

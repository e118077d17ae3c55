"""An open Parquet file, and the detection of changes to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.asyn import AsyncFileSystem

from malflow.columns.arrays import is_text
from malflow.connectors.files.paths import InputFileError, MissingFileError, ReplacedFileError, digest
from malflow.connectors.parquet.constant_columns import ConstantColumns
from malflow.connectors.parquet.int96 import ExactTimes, int96_columns
from malflow.store import s3
from malflow.store.filesystem import filesystem_of, is_local
from malflow.store.redaction import redacted, secrets_in

__all__ = ["FileVersion", "Filter", "OpenParquet", "RowBatch", "open_parquet", "written_of"]

_BUFFER = 1 << 20
"""The number of bytes of a column to read at once, so that a large row group is never in memory as a whole."""

_REMOTE_BUFFER = 8 << 20
"""The bytes of a column to read at once from an object store: each read is a request, so it is larger than for local
files. Half of it doubles the requests, double the memory per column."""

_ROWS = 8192
"""The number of rows to decode at once, so that they stay in the CPU cache."""

_BYTES = 32 << 20
"""The maximum size of rows to decode at once, in bytes, by their average size."""

_DICTIONARY_BYTES = 3
"""The maximum average size of a text, in bytes, if nearly all of a column consists of dictionary indices."""

_NUMBER = "malflow row number"


class FileVersion(NamedTuple):
    """The identity of a file's content, to detect changes.

    Attributes:
        size: the size in bytes.
        written: the ETag or, if there is none, the time of the last modification.
        row_groups: the number of row groups.
        rows: the number of rows.
        footer: a digest of the footer of a local file (its time may be the same after another write); None for other
            files, and if an older version read it.
    """

    size: int
    written: str
    row_groups: int
    rows: int
    footer: str | None = None

    def is_same(self, other: FileVersion) -> bool:
        """Whether it is the version of the same content."""
        return self[:4] == other[:4] and (self.footer == other.footer or None in (self.footer, other.footer))


class RowBatch(NamedTuple):
    """Adjacent rows of one row group, without those that the filter drops.

    Attributes:
        rows: the rows.
        start: the number of the first row in its row group, before the filter.
        end: the number after the last row.
        numbers: the numbers of the rows; None if the filter dropped none.
    """

    rows: pa.RecordBatch
    start: int
    end: int
    numbers: list[int] | None

    def indices(self, start: int, stop: int) -> Sequence[int]:
        """Return the numbers of the rows from `start` to `stop` of the batch."""
        return range(self.start + start, self.start + stop) if self.numbers is None else self.numbers[start:stop]


class Filter:
    """A condition on rows, and the columns it reads.

    Args:
        condition: an expression of `pyarrow.dataset`.
        schema: the schema of the file.
        path: the file, for errors.
        constants: columns that the file does not have; the condition may name them.

    Raises:
        InputFileError: if the condition does not fit the schema.
    """

    def __init__(self, condition: Any, schema: pa.Schema, path: str, constants: ConstantColumns) -> None:
        self._condition = condition
        self._path = path
        self._constants = constants
        empty = schema.empty_table()
        self._apply(empty)
        self.reads = [name for name in dict.fromkeys(schema.names) if not self._works_without(empty, name)]

    def kept(self, batch: pa.RecordBatch, start: int) -> tuple[pa.RecordBatch, list[int] | None]:
        """Return the rows that meet the condition, and their numbers if any row was dropped."""
        numbers = pa.array(range(start, start + batch.num_rows), pa.int64())
        found = self._apply(pa.Table.from_batches([batch]).append_column(_NUMBER, numbers))
        if len(found) == batch.num_rows:
            return batch, None
        kept: list[int] = found.column(_NUMBER).to_pylist()
        whole = found.drop_columns([_NUMBER, *self._constants.scalars]).combine_chunks().to_batches()
        return whole[0] if whole else batch.slice(0, 0), kept

    def _apply(self, table: pa.Table) -> pa.Table:
        try:
            return self._constants.joined_to(table).filter(self._condition)
        except (pa.ArrowException, TypeError) as error:
            raise InputFileError(self._path, f"does not fit filter={self._condition}: {error}") from error

    def _works_without(self, empty: pa.Table, name: str) -> bool:
        try:
            self._constants.joined_to(empty.drop_columns([name])).filter(self._condition)
        except (pa.ArrowException, TypeError):
            return False
        return True


class OpenParquet:
    """An open Parquet file, read batch by batch.

    Attributes:
        schema: its schema.
        version: its version when it was opened.
    """

    def __init__(self, path: str, file: Any, parquet: pq.ParquetFile, written: tuple[int, str]) -> None:
        self._path = path
        self._file = file
        self._parquet = parquet
        metadata = parquet.metadata
        self.schema = parquet.schema_arrow
        footer = _footer_of(path) if file is None else None
        self.version = FileVersion(*written, metadata.num_row_groups, metadata.num_rows, footer)
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        self._sizes: list[int] = [group.num_rows for group in groups]
        self._starts = list(accumulate(self._sizes, initial=0))
        self._bytes: list[int] = [group.total_byte_size for group in groups]
        self._exact: ExactTimes | None = None

    def rows_in(self, group: int) -> int:
        """Return the number of rows in a row group."""
        return self._sizes[group]

    def rows_before(self, group: int) -> int:
        """Return the number of rows in the row groups before this one."""
        return self._starts[group]

    def groups_for(self, condition: Any, constants: ConstantColumns) -> frozenset[int]:
        """Return the row groups that may have rows which meet a condition, by their statistics and the constants."""
        import pyarrow.dataset as ds  # noqa: PLC0415 - it imports pandas
        from pyarrow.fs import LocalFileSystem  # noqa: PLC0415 - only this needs it

        local = LocalFileSystem() if self._file is None else None
        options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        fragment = ds.ParquetFileFormat(options).make_fragment(
            self._path if local else self._file, local, constants.guarantee
        )
        parts = fragment.split_by_row_group(condition, constants.added_to(self.schema))
        return frozenset(group.id for part in parts for group in part.row_groups)

    def keep_dictionaries(self, columns: Sequence[str]) -> None:
        """Read columns of dictionary-encoded text as dictionaries and indices.

        Raises:
            InputFileError: if the file has changed.
        """
        metadata = self._parquet.metadata
        paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
        texts = [name for name in columns if paths.count(name) == 1 and is_text(self.schema.field(name).type)]
        kept = [name for name in texts if self._is_small(paths.index(name))]
        if kept:
            plain, source = self._parquet, self._path if self._file is None else self._file
            try:
                self._parquet = _parquet_file(source, metadata=metadata, read_dictionary=kept)
            except (pa.ArrowException, OSError) as error:
                self.check_unchanged()
                raise InputFileError(self._path, f"cannot be read as Parquet: {error}") from error
            plain.close()

    def check_nanoseconds(self, columns: Sequence[str]) -> None:
        """Refuse times with a fraction of a microsecond in the columns that are stored as INT96."""
        names = int96_columns(self._parquet.metadata.schema, self.schema.names)
        if chosen := [name for name in columns if name in names]:
            source = self._path if self._file is None else self._file
            self._exact = ExactTimes(
                _parquet_file(source, in_microseconds=False, metadata=self._parquet.metadata), chosen
            )

    def _is_small(self, column: int) -> bool:
        """Whether each row group of a column has few distinct texts."""
        groups = (self._parquet.metadata.row_group(group).column(column) for group in range(len(self._sizes)))
        return all(
            it.has_dictionary_page and it.total_uncompressed_size <= _DICTIONARY_BYTES * it.num_values for it in groups
        )

    def batches(self, group: int, columns: Sequence[str], skip: int, condition: Filter | None) -> Iterator[RowBatch]:
        """Yield the rows of a row group, starting at row `skip`.

        Raises:
            InputFileError: if the file is damaged, or has changed.
        """
        self.check_unchanged()
        rows = max(1, min(_ROWS, _BYTES * self._sizes[group] // max(1, self._bytes[group])))
        end, found = 0, self._parquet.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)
        if self._exact is not None:
            found = self._exact.checked(found, rows, group)
        while True:
            try:
                batch = next(found, None)
            except (pa.ArrowException, OSError) as error:
                self.check_unchanged()
                raise InputFileError(self._path, f"is damaged in row group {group}: {error}") from error
            if batch is None:
                return
            start, end = end, end + batch.num_rows
            if end > skip:
                start, batch = max(start, skip), batch.slice(max(0, skip - start))
                rows, numbers = (batch, None) if condition is None else condition.kept(batch, start)
                yield RowBatch(rows, start, end, numbers)

    def check_unchanged(self) -> None:
        """Check that a local file is unchanged since it was opened; an object store checks this at each request.

        Raises:
            ReplacedFileError: if it has changed.
        """
        if self._file is not None:
            return
        try:
            now = _local_version(self._path)
        except OSError as error:
            raise ReplacedFileError(self._path, f"disappeared while it was read ({error.strerror})") from error
        if now != (self.version.size, self.version.written):
            raise ReplacedFileError(self._path, "was changed while it was read")

    def close(self) -> None:
        """Close the file."""
        self._parquet.close()
        if self._exact is not None:
            self._exact.close()
        if self._file is not None:
            self._file.close()


def open_parquet(path: str, storage_options: Mapping[str, Any]) -> OpenParquet:
    """Open a Parquet file.

    Raises:
        MissingFileError: if it does not exist.
        InputFileError: if it is not a Parquet file.
    """
    file = None
    try:
        if is_local(path):
            written = _local_version(path)
            return OpenParquet(path, None, _parquet_file(path), written)
        filesystem, inner = filesystem_of(path, storage_options)
        written = _remote_version(filesystem.info(inner))
        file = filesystem.open(inner, "rb", **_UNCACHED if isinstance(filesystem, AsyncFileSystem) else {})
        return OpenParquet(path, file, _parquet_file(file), written)
    except (pa.ArrowException, OSError) as error:
        if file is not None:
            file.close()
        is_missing = isinstance(error, FileNotFoundError)
        problem = s3.with_hint("does not exist" if is_missing else f"cannot be read as Parquet: {error}", error)
        kind = MissingFileError if is_missing else InputFileError
        failure = kind(path, redacted(problem, secrets_in(storage_options, path)))
    raise failure  # without its cause, which may show secrets


def _parquet_file(source: Any, *, in_microseconds: bool = True, **options: Any) -> pq.ParquetFile:
    """Open a file; times stored as INT96 are read in microseconds, since nanoseconds wrap outside 1677 to 2262."""
    buffer = _BUFFER if isinstance(source, str) else _REMOTE_BUFFER
    unit = "us" if in_microseconds else None
    return pq.ParquetFile(source, pre_buffer=False, buffer_size=buffer, coerce_int96_timestamp_unit=unit, **options)


_UNCACHED = {"cache_type": "none"}
_TAIL = 8
"""The bytes at the end of a file: the length of its footer, and a mark."""


def written_of(path: str, storage_options: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return the size of a file, and its ETag or time; None if there is no such file."""
    try:
        if is_local(path):
            return _local_version(path)
        filesystem, inner = filesystem_of(path, storage_options)
        return _remote_version(filesystem.info(inner))
    except OSError:
        return None


def _footer_of(path: str) -> str:
    """Return a digest of the footer of a local file."""
    with Path(path).open("rb") as file:
        file.seek(-_TAIL, os.SEEK_END)
        length = int.from_bytes(file.read(_TAIL)[:4], "little")
        file.seek(-_TAIL - length, os.SEEK_END)
        return digest(file.read(length))


def _local_version(path: str) -> tuple[int, str]:
    found = os.stat(path)  # noqa: PTH116 - called for each row group
    return found.st_size, str(found.st_mtime_ns)


def _remote_version(info: Mapping[str, Any]) -> tuple[int, str]:
    written = next((info[name] for name in ("ETag", "etag", "md5Hash", "LastModified", "mtime") if name in info), "")
    return int(info["size"]), str(written).strip('"')

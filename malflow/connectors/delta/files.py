"""Data files in the folder of a Delta table that its log does not name yet."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from malflow.connectors.delta.schemas import fitted
from malflow.sinks.distributed import Share
from malflow.sinks.transactional import SinkOwner
from malflow.store.filesystem import filesystem_of, is_local

__all__ = ["DataFileWriter", "Staged", "TableFolder", "why_not"]

Staged: TypeAlias = tuple[str, int, str, dict[str, str]]
"""A data file: its path in the table's folder, its bytes, its statistics, and the type of each column."""

_ROWS = 100_000
"""The most rows of a row group."""

_LONGEST_TEXT = 32
"""Characters of a text whose minimum and maximum are in the statistics."""

_FEATURES = frozenset({"appendOnly", "invariants", "timestampNtz"})
"""The features of a table that do not change how rows are appended."""

_OLD_WRITER: Final = 6
"""The last version of the protocol without a list of features."""

_COMPUTED = ("delta.generationExpression", "delta.identity.start", "delta.invariants")


_S3: Final = {
    "aws_access_key_id": "key",
    "aws_secret_access_key": "secret",
    "aws_session_token": "token",
    "aws_endpoint_url": "endpoint_url",
}
"""Options of deltalake, and the same of s3fs."""

_IGNORED = frozenset({"aws_allow_http", "max_retries", "retry_timeout", "backoff_config.max_backoff"})
"""Options of deltalake that s3fs does not need."""


def why_not(table: Any, settings: Collection[str], uri: str, options: Mapping[str, str]) -> str | None:
    """Return why data files of malflow can't be added to a table; None if they can.

    Args:
        table: the table, or None if it does not exist.
        settings: the names of the arguments of `deltalake.write_deltalake`.
        uri: the path or URL of the table.
        options: options of deltalake.
    """
    if settings:
        return f"the settings have {sorted(settings)[0]!r}"
    return _place_refusal(uri, options) or (None if table is None else _table_refusal(table))


def _place_refusal(uri: str, options: Mapping[str, str]) -> str | None:
    if is_local(uri):
        return None
    if not uri.startswith("s3://"):
        return "it is neither in a local folder nor on S3"
    unknown = sorted(name for name in options if name.lower() not in {*_S3, *_IGNORED, "aws_region"})
    return f"storage_options has '{unknown[0]}', which is known to deltalake alone" if unknown else None


def _table_refusal(table: Any) -> str | None:
    metadata, protocol = table.metadata(), table.protocol()
    if metadata.partition_columns:
        return "it is partitioned"
    for name, value in metadata.configuration.items():
        if name.startswith("delta.constraints.") or (name == "delta.columnMapping.mode" and value != "none"):
            return f"it has {name}"
    features = set(protocol.writer_features or ()) - _FEATURES
    if protocol.min_writer_version > _OLD_WRITER and features:
        return f"it has the feature {sorted(features)[0]}"
    for field in table.schema().fields:
        computed = next((name for name in _COMPUTED if name in (field.metadata or {})), None)
        if computed is not None:
            return f"its column '{field.name}' has {computed}"
    return None


class TableFolder:
    """The folder of a table, in which each transaction of a sink has a folder for its data files.

    Args:
        uri: the path or URL of the table.
        options: options of deltalake.
        owner: the run.
    """

    def __init__(self, uri: str, options: Mapping[str, str], owner: SinkOwner) -> None:
        self._filesystem, root = filesystem_of(uri, {} if is_local(uri) else _options_of_s3fs(options))
        self._root = root.rstrip("/")
        self._is_local = is_local(uri)
        self._folder = f"malflow-{blake2b(owner.name.encode(), digest_size=4).hexdigest()}"
        self._claim = owner.claim

    def writer(self, share: Share, schema: pa.Schema) -> DataFileWriter:
        """Return the writer of the data file of a share, for a table with a schema."""
        name = f"{self._claim:06d}-{share.number:04d}-{share.token}.parquet"
        return DataFileWriter(self, f"{self._folder}/{share.transaction:08d}/{name}", schema)

    def open(self, path: str) -> Any:
        """Open a new file for writing."""
        if self._is_local:
            self._filesystem.makedirs(f"{self._root}/{path}".rpartition("/")[0], exist_ok=True)
        return self._filesystem.open(f"{self._root}/{path}", "wb")

    def keep(self, path: str) -> int:
        """Make a file that is closed durable, and return its size."""
        if self._is_local:
            for name in (f"{self._root}/{path}", f"{self._root}/{path}".rpartition("/")[0]):
                descriptor = os.open(name, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        return self.size(path) or 0

    def size(self, path: str) -> int | None:
        """Return the size of a file; None if it does not exist."""
        self._filesystem.invalidate_cache()
        try:
            return int(self._filesystem.info(f"{self._root}/{path}")["size"])
        except FileNotFoundError:
            return None

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            self._filesystem.rm_file(f"{self._root}/{path}")

    def lacks(self, files: Sequence[Staged]) -> str | None:
        """Return the path of the first of some files that is gone or has another size; None if all are there."""
        return next((path for path, size, *_ in files if self.size(path) != size), None)

    def read(self, file: Staged) -> pa.Table:
        """Return the rows of a file."""
        with self._filesystem.open(f"{self._root}/{file[0]}", "rb") as opened:
            return pq.ParquetFile(opened).read()

    def sweep(self, transaction: int, kept: Collection[str], *, later: bool) -> None:
        """Remove files of a transaction, and of `later` ones, that this run or an earlier one has written.

        Args:
            transaction: the transaction.
            kept: the paths of files that stay.
            later: whether to look at later transactions too.
        """
        for name in self._transactions(transaction) if later else [f"{transaction:08d}"]:
            for path in self._listed(f"{self._folder}/{name}"):
                claim = path.rpartition("/")[2].partition("-")[0]
                if path not in kept and claim.isdecimal() and int(claim) <= self._claim:
                    self.remove(path)

    def _transactions(self, first: int) -> list[str]:
        names = (path.rpartition("/")[2] for path in self._listed(self._folder))
        return [name for name in names if name.isdecimal() and int(name) >= first]

    def _listed(self, folder: str) -> list[str]:
        """Return the paths of the entries of a folder, relative to the table's."""
        self._filesystem.invalidate_cache()
        try:
            found = self._filesystem.ls(f"{self._root}/{folder}", detail=False)
        except FileNotFoundError:
            return []
        return [f"{folder}/{path.rstrip('/').rpartition('/')[2]}" for path in found]


class DataFileWriter:
    """Writes the data file of a share.

    Args:
        folder: the table's folder.
        path: the path in it.
        schema: the schema of the table.
    """

    def __init__(self, folder: TableFolder, path: str, schema: pa.Schema) -> None:
        self._folder = folder
        self._path = path
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._buffered = 0
        self._stream: Any = None
        self._writer: pq.ParquetWriter | None = None
        self._metadata: list[Any] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._batches.append(batch)
        self._buffered += batch.num_rows
        if self._buffered >= _ROWS:
            self._write()

    def seal(self) -> Staged | None:
        """Complete the file."""
        self._write()
        writer, stream = self._writer, self._stream
        if writer is None:
            return None
        writer.close()
        stream.close()
        (metadata,) = self._metadata
        types = {field.name: f"{field.type}" for field in metadata.schema.to_arrow_schema()}
        return self._path, self._folder.keep(self._path), _statistics(metadata), types

    def discard(self) -> None:
        """Drop the file."""
        if self._stream is not None:
            with suppress(Exception):  # it is deleted anyway
                self._stream.close()
            self._folder.remove(self._path)

    def _write(self) -> None:
        if not self._batches:
            return
        rows, self._batches, self._buffered = pa.Table.from_batches(self._batches), [], 0
        rows = fitted(rows, self._schema, grows=False)
        if self._writer is None:
            self._stream = self._folder.open(self._path)
            self._writer = pq.ParquetWriter(self._stream, rows.schema, metadata_collector=self._metadata)
        self._writer.write_table(rows, row_group_size=_ROWS)


def _options_of_s3fs(options: Mapping[str, str]) -> dict[str, Any]:
    given = {name.lower(): value for name, value in options.items()}
    found: dict[str, Any] = {_S3[name]: value for name, value in given.items() if name in _S3}
    if "aws_region" in given:
        found["client_kwargs"] = {"region_name": given["aws_region"]}
    return found


def _statistics(metadata: Any) -> str:
    """Return statistics for Delta's log: the rows, the nulls, and the least and greatest value of simple columns."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        columns = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        name = columns[0].path_in_schema
        known = [it.statistics for it in columns]
        if name not in metadata.schema.to_arrow_schema().names or any(it is None for it in known):
            continue
        if all(it.has_null_count for it in known):
            nulls[name] = sum(it.null_count for it in known)
        values = [value for it in known if it.has_min_max for value in (it.min, it.max)]
        if len(values) == 2 * len(known) and all(_is_exact(value) for value in values):
            lowest[name], highest[name] = min(values), max(values)
    found = {"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return json.dumps(found)


def _is_exact(value: object) -> bool:
    """Whether statistics can have a value as it is: a reader may skip a file by them."""
    return type(value) is int or (isinstance(value, str) and len(value) <= _LONGEST_TEXT)

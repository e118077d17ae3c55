"""The states of an operator as rows: an Arrow table, or a Parquet file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from secrets import token_hex
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from malflow.callables import takes
from malflow.connectors.parquet.columns import UnfitRow, stored_type
from malflow.connectors.staging.opening import open_place
from malflow.connectors.staging.places import LocalPlace, Place
from malflow.errors import GraphError, SnapshotError, StoreError
from malflow.reading.rows import OwnRows, Row, StateRows, Stored, column_names
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.placed_states import WorkerStates
from malflow.snapshot.reading import opened
from malflow.store.filesystem import filesystem_of, is_local
from malflow.store.redaction import redacted, secrets_in
from malflow.store.retry import Retry, SystemContext
from malflow.words import error_line, short_repr

__all__ = ["export_state", "to_arrow"]

_INFERRED = 100_000
"""The number of rows from which the types of columns follow, and the fewest rows of a row group but the last."""

_AT_ONCE = 1 << 14
"""The number of later rows in a batch: few enough for the cache of a processor."""

_RETRY = Retry(60.0, SystemContext())


def to_arrow(
    backend: FsspecBackend,
    operator: str,
    *,
    row: Row | None = None,
    schema: pa.Schema | None = None,
    at: Literal["latest"] | int | datetime = "latest",
) -> pa.Table:
    """Return the states of an operator in a snapshot as an Arrow table, a row for each key.

    The rows have the order of `read_state`. Without `row`, the columns are ``key`` and ``state``; of windows, rollups,
    joins and sorts ``pane``, ``key`` and ``state``, of distinct ``pane``, ``key``, ``id`` and ``state``, and of epochs
    ``worker``, ``name`` and ``state``. Dicts, dataclasses and named tuples are structs of their fields, tuples of
    one length structs of ``_1``, ``_2`` and so on. Besides the table, the states of one worker at a time are in memory.

    Args:
        backend: the backend, configured as for a run.
        operator: the name of the operator, or of a hidden state.
        row: ``(key, state) -> {column: value}``, or None to leave the key out.
        schema: the schema; by default inferred from the first 100,000 rows.
        at: the snapshot: ``"latest"``, an id, or a datetime with a time zone for the latest one at that time.

    Raises:
        GraphError: if an argument is not valid.
        SnapshotError: if there is no such snapshot or operator, it can't be read, or a row does not fit the schema.
        OperatorError: if `row` fails.
        MissingDependency: if pyarrow is not installed.
    """
    kept = opened(backend, operator, at)
    batches = list(_batches(kept, row, schema))
    return pa.Table.from_batches(batches, batches[0].schema if batches else _empty(kept, row, schema))


def export_state(
    backend: FsspecBackend,
    operator: str,
    path: str | os.PathLike[str],
    *,
    row: Row | None = None,
    schema: pa.Schema | None = None,
    at: Literal["latest"] | int | datetime = "latest",
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Write the states of an operator in a snapshot to a Parquet file; return the number of rows.

    The rows and columns are as in `to_arrow`. The file becomes visible as a whole, compressed with zstd; it must not
    exist yet. The states of one worker at a time are in memory.

    Args:
        backend: the backend, configured as for a run.
        operator: the name of the operator, or of a hidden state.
        path: the file: a local path, or a URL on an object store, such as ``s3://bucket/sums.parquet``.
        row: ``(key, state) -> {column: value}``, or None to leave the key out.
        schema: the schema; by default inferred from the first 100,000 rows.
        at: the snapshot: ``"latest"``, an id, or a datetime with a time zone for the latest one at that time.
        storage_options: options of the file's file system, such as credentials.

    Raises:
        GraphError: if an argument is not valid, or the file exists.
        SnapshotError: if there is no such snapshot or operator, it can't be read, or a row does not fit the schema.
        OperatorError: if `row` fails.
        MissingDependency: if pyarrow, or the library for the file's protocol, is not installed.
    """
    place, name = _target(path, dict(storage_options or {}))
    kept = opened(backend, operator, at)
    batches = _batches(kept, row, schema, stored_type)
    first = next(batches, None)
    found = _empty(kept, row, schema) if first is None else first.schema
    file = place.create(name)
    try:
        with pq.ParquetWriter(file, found, compression="zstd") as writer:
            rows = sum(_written(writer, group) for group in _groups([] if first is None else [first], batches))
        place.publish(file.seal())
    except BaseException:
        file.discard()
        raise
    finally:
        if isinstance(place, LocalPlace):
            place.tidy()
    return rows


def _groups(first: list[pa.RecordBatch], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield batches in row groups."""
    group = first
    for batch in batches:
        if sum(it.num_rows for it in group) >= _INFERRED:
            yield pa.Table.from_batches(group)
            group = []
        group.append(batch)
    if group:
        yield pa.Table.from_batches(group)


def _written(writer: pq.ParquetWriter, group: pa.Table) -> int:
    """Write a row group; return the number of its rows."""
    writer.write_table(group)
    return int(group.num_rows)


def _batches(kept: WorkerStates, row: Row | None, schema: pa.Schema | None, stored: Stored = None) -> Iterator[Any]:
    """Check the arguments, and return the rows of all workers in batches."""
    if row is not None and not takes(row, 2):
        raise GraphError(f"row needs a function of a key and its state; got {short_repr(row)}")
    if schema is not None and not isinstance(schema, pa.Schema):
        raise GraphError(f"schema needs a pyarrow.Schema; got {short_repr(schema)}")
    rows = StateRows(kept, schema, stored) if row is None else OwnRows(kept.entry.name, row, schema, stored)
    return _made(kept, rows)


def _made(kept: WorkerStates, rows: StateRows | OwnRows) -> Iterator[pa.RecordBatch]:
    try:
        for keys, states in _chunks(kept):
            batch = rows.make(keys, states)
            if batch is not None:
                yield batch
    except UnfitRow as error:
        raise SnapshotError(
            f"the states of operator {error}; or pass row=, which returns the columns of a key and its state"
        ) from error


def _chunks(kept: WorkerStates) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield keys and states, so many at once that the types of columns follow from them."""
    keys: list[Any] = []
    states: list[Any] = []
    wanted = _INFERRED
    for worker in kept.workers:
        held = kept.states(worker)
        keys += held
        states += held.values()
        del held
        while len(keys) >= wanted:
            yield keys[:wanted], states[:wanted]
            del keys[:wanted], states[:wanted]
            wanted = _AT_ONCE
    if keys:
        yield keys, states


def _empty(kept: WorkerStates, row: Row | None, schema: pa.Schema | None) -> pa.Schema:
    """Return the schema of no rows."""
    if schema is not None:
        return schema
    if row is not None:
        raise SnapshotError(
            f"no row was made of operator '{kept.entry.name}' in snapshot {kept.manifest.snapshot}, so the columns are "
            "not known; pass schema="
        )
    return pa.schema([(name, pa.null()) for name in column_names(kept)])


def _target(path: str | os.PathLike[str], options: dict[str, Any]) -> tuple[Place, str]:
    """Return the place and the name of a file that does not exist yet.

    Raises:
        GraphError: if it exists, or can't be a file.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise GraphError(f"export_state needs a path or URL; got {short_repr(text)}")
    shown = redacted(text, secrets_in(options, text))
    folder, mark, name = text.rpartition("/")
    filesystem, inner = filesystem_of(text, options)
    if not name or (not is_local(text) and "/" not in inner.strip("/")):
        raise GraphError(f"export_state needs the path or URL of a file; got '{shown}'")
    place = open_place(folder + ("/" if mark and not folder else "") or ".", options, f"export-{token_hex(8)}", _RETRY)
    try:
        exists = filesystem.exists(inner)
    except Exception as error:  # noqa: BLE001 - libraries raise anything; raised below, without secrets
        said = redacted(error_line(error), secrets_in(options, text))
        raise StoreError(f"'{shown}' can't be reached: {said}") from None
    if exists:
        raise GraphError(f"'{shown}' exists; delete it, or choose another name")
    return place, name

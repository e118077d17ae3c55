"""The shuffle between workers: batches packed as columns into the blobs of a few Spark rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from malflow.runtime.transport.chunks import MOST_BYTES, Chunk, ChunkBuffer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "SCHEMA",
    "Row",
    "RowKind",
    "ShuffleBuffer",
    "chunks_of",
    "read_rows",
    "sink_chunks",
    "write_rows",
]

SCHEMA: Final = "worker int, kind int, number int, sender int, blob binary, counts array<bigint>"

_BLOB = MOST_BYTES
"""Bytes of the largest blob: Java holds several complete copies of each in memory."""

_BATCH: Final = 256 << 10
"""Bytes of the blobs of rows that are written as one Arrow batch."""

_ROW: Final = 64
"""Bytes of a row beside its blob."""

_HEAD = Struct("<I?")
"""The head of a blob: its number, and whether the next one continues it."""


class RowKind(IntEnum):
    """The kind of a row: records of a channel, or data for the driver."""

    CHANNEL = 0
    SINK = 1
    """Records of a sink on the driver."""
    REPORT = 2
    """A worker's report of its tick."""
    FAILURE = 3
    """An error that ends the run."""


class Row(NamedTuple):
    """One row of the shuffle.

    Attributes:
        worker: the logical worker that receives the row, or passes it on.
        kind: its `RowKind`.
        number: the number of the channel or sink whose records it holds; 0 for reports and failures.
        sender: the worker that sent the row.
        blob: the contents.
        counts: in a report, the number of records that each operator received and each source emitted, in the order of
            `names_of_counts`.
    """

    worker: int
    kind: int
    number: int
    sender: int
    blob: bytes
    counts: Sequence[int] | None = None


class ShuffleBuffer(ChunkBuffer):
    """The records that one worker sends to another, or to a sink on the driver, in a tick, as blobs for Java.

    Large records are packed one by one and cut, so that Java never receives a large blob.
    """

    __slots__ = ()

    def blobs(self) -> Iterator[bytes]:
        """Yield the contents as blobs of limited size, and release them."""
        number = 0
        for group in _groups(self.take()):
            data = pickle.dumps(group, 5)
            for at in range(0, len(data), _BLOB):
                yield _HEAD.pack(number, at + _BLOB < len(data)) + data[at : at + _BLOB]
                number += 1


def _groups(chunks: list[Chunk]) -> Iterator[list[Chunk]]:
    size, group = 0, list[Chunk]()
    chunks.reverse()
    while chunks:
        chunk = chunks.pop()
        if group and size + len(chunk.data) > _BLOB:
            yield group
            size, group = 0, []
        group.append(chunk)
        size += len(chunk.data)
    if group:
        yield group


def chunks_of(blobs: Iterable[bytes]) -> list[Chunk]:
    """Return the chunks of a buffer from its blobs, which may arrive in any order."""
    chunks: list[Chunk] = []
    pieces: list[memoryview] = []
    for _, continues, data in sorted((*_HEAD.unpack_from(blob), memoryview(blob)[_HEAD.size :]) for blob in blobs):
        pieces.append(data)
        if not continues:
            chunks += pickle.loads(pieces[0] if len(pieces) == 1 else b"".join(pieces))  # noqa: S301 - of this run
            pieces = []
    return chunks


def sink_chunks(rows: Sequence[Row]) -> Iterator[tuple[int, Chunk]]:
    """Yield the records of a tick for the sinks on the driver, each chunk with the number of its sink."""
    blobs: dict[tuple[int, int], list[bytes]] = {}
    for row in rows:
        if row.kind == RowKind.SINK:
            blobs.setdefault((row.number, row.sender), []).append(row.blob)
    for number, sender in [*blobs]:
        for chunk in chunks_of(blobs.pop((number, sender))):
            yield number, chunk


def read_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Read rows from Arrow."""
    for batch in batches:
        columns: list[Any] = [column.to_pylist() for column in batch.columns]
        yield from map(Row, *columns)


def write_rows(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Write rows to Arrow: small ones many in a batch, since a batch takes longer than a row, large ones alone."""
    import pyarrow as pa  # noqa: PLC0415 - only the extra has it

    kinds = (pa.int32(), pa.int32(), pa.int32(), pa.int32(), pa.binary(), pa.list_(pa.int64()))
    schema = pa.schema([*zip(Row._fields, kinds, strict=True)])
    for together in _batches(rows):
        columns = zip(*together, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Group rows up to a size; a larger one is alone."""
    size, together = 0, list[Row]()
    for row in rows:
        if together and size + len(row.blob) > _BATCH:
            yield together
            size, together = 0, []
        together.append(row)
        size += len(row.blob) + _ROW
    if together:
        yield together

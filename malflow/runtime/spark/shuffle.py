"""The shuffle between workers: batches packed as columns into the blobs of a few Spark rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from malflow.batch import Batch, concat
from malflow.operators.debug import verify
from malflow.runtime.spark.transfer import dump_columns, load_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "SCHEMA",
    "Chunk",
    "Row",
    "RowKind",
    "ShuffleBuffer",
    "chunks_of",
    "pack",
    "read_rows",
    "unpack",
    "write_rows",
]

SCHEMA: Final = "worker int, kind int, number int, sender int, blob binary, counts array<bigint>"

_CHUNK = 4_096
"""The fewest records of a full chunk: they fit in the processor's cache while they are packed and processed."""

_BLOB = 4 << 20
"""Bytes after which a blob is full: Java holds each blob in memory as a whole."""


class RowKind(IntEnum):
    """The kind of a row: records of a channel, or something for the driver."""

    CHANNEL = 0
    SINK = 1
    """Records of a sink that is on the driver."""
    REPORT = 2
    """A worker's report of its tick."""
    FAILURE = 3
    """An error that ends the run."""


class Row(NamedTuple):
    """One row of the shuffle.

    Attributes:
        worker: the logical worker that receives the row, or passes it on.
        kind: what it is, a `RowKind`.
        number: the number of the channel or sink whose records it holds; 0 for reports and failures.
        sender: the worker that sent the row.
        blob: the contents.
        counts: in a report, the records that each operator took and each source emitted, in the order of
            `names_of_counts`.
    """

    worker: int
    kind: int
    number: int
    sender: int
    blob: bytes
    counts: Sequence[int] | None = None


def pack(batches: Sequence[Batch], operator: str = "") -> bytes:
    """Pickle the columns of batches into one blob.

    Args:
        batches: the batches.
        operator: the operator to name in errors.

    Raises:
        NotPicklable: if a record can't be pickled.
    """
    return pickle.dumps([dump_columns(_columns(batch), operator) for batch in batches], 5)


def unpack(blob: bytes, operator: str = "") -> list[Batch]:
    """Return the batches of a blob that `pack` returned.

    Raises:
        NotPicklable: if a record can't be unpickled.
    """
    return [Batch(*load_columns(data, operator)) for data in pickle.loads(blob)]  # noqa: S301 - this run wrote it


class Chunk(NamedTuple):
    """Records that are pickled together.

    Attributes:
        records: the number of records.
        timed: whether the chunk contains epochs (watermarks).
        data: the pickled columns.
    """

    records: int
    timed: bool
    data: bytes

    def batch(self, operator: str = "") -> Batch:
        """Return the records as a batch; errors name `operator`.

        Raises:
            NotPicklable: if a record can't be unpickled.
        """
        return Batch(*load_columns(self.data, operator))


class ShuffleBuffer:
    """The records that one worker sends to another on one channel in a tick.

    Records are packed as they arrive and unpacked chunk by chunk, so that memory is bounded by the packed size.

    Args:
        operator: the sending operator.
        debug: whether to check that values do not change before they are packed.

    Attributes:
        records: the number of records.
    """

    __slots__ = ("_batches", "_chunks", "_debug", "_operator", "_waiting", "records")

    def __init__(self, operator: str = "", *, debug: bool = False) -> None:
        self.records = 0
        self._debug = debug
        self._operator = operator
        self._chunks: list[Chunk] = []
        self._batches: list[Batch] = []
        self._waiting = 0

    def __bool__(self) -> bool:
        return bool(self._chunks or self._batches)

    def add(self, batches: Iterable[Batch]) -> None:
        """Append batches."""
        for batch in batches:
            self._batches.append(batch)
            self.records += len(batch)
            self._waiting += len(batch)
            if self._waiting >= _CHUNK:
                self._pack()

    def blobs(self) -> Iterator[bytes]:
        """Yield the contents as blobs of limited size."""
        if self._batches:
            self._pack()
        number, size, chunks = 0, 0, list[Chunk]()
        for chunk in self._chunks:
            chunks.append(chunk)
            size += len(chunk.data)
            if size >= _BLOB:
                yield pickle.dumps((number, chunks), 5)
                number, size, chunks = number + 1, 0, []
        if chunks:
            yield pickle.dumps((number, chunks), 5)

    def _pack(self) -> None:
        """Pack the waiting batches into a chunk.

        Raises:
            NotPicklable: if a record can't be pickled.
            OperatorError: if a value has changed since it was emitted.
        """
        if self._debug:
            for emitted in self._batches:
                verify(emitted, self._operator)
        batch = concat(self._batches)
        self._chunks.append(Chunk(len(batch), bool(batch.epochs), dump_columns(_columns(batch), self._operator)))
        self._batches, self._waiting = [], 0


def chunks_of(blobs: Iterable[bytes]) -> list[Chunk]:
    """Return the chunks of a buffer from its blobs, which may arrive in any order."""
    numbered = sorted((pickle.loads(blob) for blob in blobs), key=itemgetter(0))  # noqa: S301 - this run wrote them
    return [chunk for _, chunks in numbered for chunk in chunks]


def _columns(batch: Batch) -> tuple[Any, ...]:
    return batch.keys, batch.values, batch.timestamps, batch.epochs


def read_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Read rows from Arrow."""
    for batch in batches:
        columns: list[Any] = [column.to_pylist() for column in batch.columns]
        yield from map(Row, *columns)


def write_rows(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Write rows to Arrow, each in its own batch since a blob may be large."""
    import pyarrow as pa  # noqa: PLC0415 - only the extra has it

    kinds = (pa.int32(), pa.int32(), pa.int32(), pa.int32(), pa.binary(), pa.list_(pa.int64()))
    schema = pa.schema([*zip(Row._fields, kinds, strict=True)])
    for row in rows:
        arrays = [pa.array([value], kind) for value, kind in zip(row, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

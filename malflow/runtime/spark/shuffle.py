"""The shuffle between workers: batches packed as columns into the blobs of a few Spark rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import islice
from struct import Struct
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from malflow.operators.debug import verify
from malflow.records.batch import Batch, concat
from malflow.runtime.spark.pickling import dump_columns, load_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "SCHEMA",
    "Chunk",
    "Row",
    "RowKind",
    "ShuffleBuffer",
    "chunks_of",
    "estimated_bytes",
    "read_rows",
    "write_rows",
]

SCHEMA: Final = "worker int, kind int, number int, sender int, blob binary, counts array<bigint>"

_CHUNK = 4_096
"""The minimum number of records of a full chunk, which fits in the processor's cache."""

_BLOB = 4 << 20
"""Bytes of the largest blob: Java holds several complete copies of each in memory."""

_HEAD = Struct("<I?")
"""The head of a blob: its number, and whether the next one continues it."""

_LOOKED_AT = 8
"""The number of elements of a value, and of values of a batch, from which the size is estimated."""


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
    """The records that one worker sends to another, or to a sink on the driver, in a tick.

    Records are packed as they arrive and unpacked chunk by chunk, so the packed size bounds memory. Large records are
    packed one by one and cut, so that Java never receives a large blob.

    Args:
        operator: the sending operator.
        debug: whether to check that values do not change before they are packed.

    Attributes:
        records: the number of records.
        bytes: the packed size.
    """

    __slots__ = ("_batches", "_chunks", "_debug", "_operator", "_waiting", "_waiting_bytes", "bytes", "records")

    def __init__(self, operator: str = "", *, debug: bool = False) -> None:
        self.records = 0
        self.bytes = 0
        self._debug = debug
        self._operator = operator
        self._chunks: list[Chunk] = []
        self._batches: list[Batch] = []
        self._waiting = 0
        self._waiting_bytes = 0.0

    def __bool__(self) -> bool:
        return bool(self._chunks or self._batches)

    def add(self, batches: Iterable[Batch]) -> None:
        """Append batches."""
        for batch in batches:
            self._batches.append(batch)
            self.records += len(batch)
            self._waiting += len(batch)
            self._waiting_bytes += estimated_bytes(batch.values)
            if self._waiting >= _CHUNK or self._waiting_bytes >= _BLOB:
                self._pack()

    def blobs(self) -> Iterator[bytes]:
        """Yield the contents as blobs of limited size, and release them."""
        if self._batches:
            self._pack()
        number = 0
        for group in self._groups():
            data = pickle.dumps(group, 5)
            for at in range(0, len(data), _BLOB):
                yield _HEAD.pack(number, at + _BLOB < len(data)) + data[at : at + _BLOB]
                number += 1

    def _groups(self) -> Iterator[list[Chunk]]:
        size, group = 0, list[Chunk]()
        self._chunks.reverse()
        while self._chunks:
            chunk = self._chunks.pop()
            if group and size + len(chunk.data) > _BLOB:
                yield group
                size, group = 0, []
            group.append(chunk)
            size += len(chunk.data)
        if group:
            yield group

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
        chunk = Chunk(len(batch), bool(batch.epochs), dump_columns(_columns(batch), self._operator))
        self.bytes += len(chunk.data)
        self._chunks.append(chunk)
        self._batches, self._waiting, self._waiting_bytes = [], 0, 0.0


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


def estimated_bytes(values: Sequence[Any]) -> float:
    """Return the approximate size of a column of values, judging by the first of them."""
    count = len(values)
    if not count:
        return 0.0
    looked = values[:_LOOKED_AT] if count < _LOOKED_AT else (values[0], values[count // 2], values[-1])
    return sum(map(_weight, looked)) * count / len(looked)


def _weight(value: Any) -> float:
    """Return the approximate size of an object, including its contents."""
    size = getsizeof(value, 0)
    inner: Any = value.values() if isinstance(value, dict) else value
    if not isinstance(value, list | tuple | dict | set | frozenset) or not value:
        return size
    looked = [getsizeof(it, 0) for it in islice(inner, _LOOKED_AT)]
    return size + sum(looked) * len(value) / len(looked)


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

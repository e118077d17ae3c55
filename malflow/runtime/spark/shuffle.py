"""The shuffle between workers: batches packed as columns into the blobs of a few rows, and rows into frames."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from malflow.runtime.transport.chunks import MOST_BYTES, Chunk, ChunkBuffer

__all__ = [
    "Row",
    "RowKind",
    "ShuffleBuffer",
    "chunks_of",
    "frames_of",
    "read_frames",
    "sink_chunks",
]

_BLOB = MOST_BYTES
"""Bytes of the largest blob: Java holds several complete copies of each in memory."""

_FRAME: Final = 256 << 10
"""Bytes of rows that share a frame."""

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

    Large records are packed one by one and cut. Java thus never receives a large blob.
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
    """Return the chunks of a buffer from its blobs. Blobs may arrive in any order."""
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


def frames_of(rows: Iterable[Row]) -> Iterator[tuple[int, bytes]]:
    """Pack rows into frames, each with the worker that receives it.

    Small rows for a worker share a frame; a large one is alone.
    """
    waiting: dict[int, list[Row]] = {}
    sizes: dict[int, int] = {}
    for row in rows:
        target, size = row.worker, len(row.blob) + _ROW
        if target in waiting and sizes[target] + size > _FRAME:
            yield target, _frame(waiting.pop(target))
        if target not in waiting:
            waiting[target], sizes[target] = [], 0
        waiting[target].append(row)
        sizes[target] += size
    for target, together in waiting.items():
        yield target, _frame(together)


def _frame(rows: list[Row]) -> bytes:
    return pickle.dumps([(*row,) for row in rows], 5)


def read_frames(frames: Iterable[bytes]) -> Iterator[Row]:
    """Read the rows of frames."""
    for frame in frames:
        yield from map(Row._make, pickle.loads(frame))  # noqa: S301 - of this run

"""The records between workers: sent, packed for the shuffle, and counted on arrival.

When Spark loses a task's output, it repeats the task. A function that is not deterministic may then return another
result, so that some workers have received the old output and others the new one. Spark compares both outputs as well,
unless configured otherwise.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple

from malflow.engine.worker import Outputs, Worker
from malflow.errors import RunFailed
from malflow.runtime.spark.changelog.changelog import Changelog
from malflow.runtime.spark.protocol import StageReport
from malflow.runtime.transport.chunks import MOST_BYTES, Chunk, ChunkBuffer
from malflow.runtime.transport.sink_proxies import PieceEncoder, SinkProxy, collected, encoded_pieces

__all__ = [
    "OutgoingRecords",
    "RecordCounts",
    "Row",
    "RowKind",
    "ShuffleBuffer",
    "check_counts",
    "chunks_of",
    "frames_of",
    "read_frames",
    "sink_chunks",
    "summed",
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


class OutgoingRecords:
    """Collects the records of a tick, and yields them as rows.

    Args:
        worker: the sending worker; records that a failed attempt left in its sinks are dropped.
        parallelism: the number of receiving workers.
        debug: whether to check that values do not change before they are packed.

    Attributes:
        sent: the number of records, by channel and receiving worker; known once `rows` has been consumed.
    """

    def __init__(self, worker: Worker, parallelism: int, *, debug: bool) -> None:
        self.sent: dict[tuple[int, int], int] = {}
        self._worker = worker
        self._buffers = {
            channel.number: [ShuffleBuffer(channel.name, debug=debug) for _ in range(parallelism)]
            for channel in worker.stage.outputs
        }
        for _ in (*collected(worker.sinks), *encoded_pieces(worker.sinks)):
            pass

    @property
    def bytes(self) -> float:
        """The approximate size of the records that are packed by now."""
        size = sum(buffer.bytes for by_target in self._buffers.values() for buffer in by_target)
        proxies = (sink.resource for sink in self._worker.sinks)
        return size + sum(it.bytes for it in proxies if isinstance(it, SinkProxy | PieceEncoder))

    def add(self, outputs: Outputs) -> None:
        """Add the output of the worker's operators."""
        for channel, by_target in outputs.items():
            for buffer, batches in zip(self._buffers[channel], by_target, strict=True):
                buffer.add(batches)

    def rows(self) -> Iterator[Row]:
        """Yield the rows of all records."""
        sender = self._worker.worker_id
        for channel, by_target in self._buffers.items():
            marks, packed = None, list[bytes]()  # epochs alone are the same for all targets, and packed once
            for target, buffer in enumerate(by_target):
                if not buffer:
                    continue
                self.sent[channel, target] = buffer.records
                if buffer.marks is None or buffer.marks != marks:
                    marks, packed = buffer.marks, list(buffer.blobs())
                yield from (Row(target, RowKind.CHANNEL, channel, sender, blob) for blob in packed)
        for number, name, batches in collected(self._worker.sinks):
            buffer = ShuffleBuffer(name)
            buffer.add(batches)
            yield from (Row(sender, RowKind.SINK, number, sender, blob) for blob in buffer.blobs())

    def pieces(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield the pieces for distributed sinks, with the number of the sink."""
        return encoded_pieces(self._worker.sinks)


Count = tuple[int, int, int, int]
"""Channel, sender, target, and the number of records."""

_MODULO = (1 << 64) - 1
"""Sums of hashes are kept to 64 bits, so that they stay small numbers."""


class RecordCounts(NamedTuple):
    """The records that a stage of a worker received and sent, stored with its output.

    Attributes:
        taken: their number, by channel and sender.
        sent: their number, by channel and target.
    """

    taken: Mapping[tuple[int, int], int]
    sent: Mapping[tuple[int, int], int]

    def received_by(self, worker: int) -> Iterator[Count]:
        """Yield the counts of the records that the worker received."""
        return ((channel, sender, worker, records) for (channel, sender), records in self.taken.items())

    def sent_by(self, worker: int) -> Iterator[Count]:
        """Yield the counts of the records that the worker sent."""
        return ((channel, worker, target, records) for (channel, target), records in self.sent.items())


def summed(counts: Iterable[Count]) -> dict[int, int]:
    """Return a sum of hashes for each channel, modulo 2 to the power of 64.

    Reports have only these. Their size thus does not grow with the number of workers: if all records arrived, the sums
    of all senders and of all receivers are equal. Hashes of integers are the same in all processes of one version of
    Python. Spark requires that.
    """
    sums: dict[int, int] = {}
    for count in counts:
        sums[count[0]] = sums.get(count[0], 0) + hash(count) & _MODULO
    return sums


def check_counts(reports: Sequence[StageReport], changelog: Changelog) -> None:
    """Check that the records sent and received agree on each channel.

    Args:
        reports: the reports of all workers and stages.
        changelog: has the counts of each of them, for the error.

    Raises:
        RunFailed: if they differ.
    """
    sent, taken = (_total(sums) for sums in ([it.sent for it in reports], [it.taken for it in reports]))
    for channel in sorted(sent.keys() | taken.keys()):
        if sent.get(channel, 0) != taken.get(channel, 0):
            raise RunFailed(
                f"{_difference(channel, reports, changelog)} on channel {channel}: Spark repeated a part of the tick "
                "with different records"
            )


def _total(sums: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for of_worker in sums:
        for channel, hashed in of_worker.items():
            total[channel] = total.get(channel, 0) + hashed & _MODULO
    return total


def _difference(channel: int, reports: Sequence[StageReport], changelog: Changelog) -> str:
    """Return which worker received other records than were sent to it."""
    sent: dict[tuple[int, int], int] = {}
    told: dict[int, int] = {}
    taken: dict[tuple[int, int], int] = {}
    known: set[int] = set()
    for it in reports:
        stored = changelog.output(it.stage, it.worker, it.tick)
        counts = None if stored is None else stored.counts
        if channel in it.taken:
            told[it.worker] = it.taken[channel]
        if counts is None:
            continue
        sent.update({(sender, to): n for at, sender, to, n in counts.sent_by(it.worker) if at == channel})
        if channel in it.taken:
            known.add(it.worker)
        taken.update({(sender, to): n for at, sender, to, n in counts.received_by(it.worker) if at == channel})
    for target in sorted(told.keys() | {to for _, to in sent}):
        went = {sender: n for (sender, to), n in sent.items() if to == target}
        if summed((channel, sender, target, n) for sender, n in went.items()).get(channel, 0) == told.get(target, 0):
            continue
        came = {sender: n for (sender, to), n in taken.items() if to == target}
        if target not in known and target in told:
            return f"worker {target} received other records than those that were sent to it"
        sender = next(it for it in sorted(went.keys() | came.keys()) if went.get(it, 0) != came.get(it, 0))
        return (
            f"worker {target} received {came.get(sender, 0)} of the {went.get(sender, 0)} records that worker {sender} "
            "sent"
        )
    return "workers received other records than those that were sent"

"""The records that a stage of a worker sends in a tick: to other workers, and to sinks on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from malflow.engine.worker import Outputs, Worker
from malflow.runtime.spark.shuffle import Row, RowKind, ShuffleBuffer
from malflow.runtime.transport.sink_proxies import PieceEncoder, SinkProxy, collected, encoded_pieces

__all__ = ["OutgoingRecords"]


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

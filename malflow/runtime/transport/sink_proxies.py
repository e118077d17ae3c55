"""Sinks on the driver, the process that started the run: workers collect their records, and the driver writes them.

The records of a distributed sink are encoded on the workers instead, as pieces that the runtime stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from malflow.engine.plan import Program
from malflow.engine.reports import CLOCK, Facts, Report
from malflow.errors import GraphError
from malflow.message import DataMessage, NoKey
from malflow.nodes import SinkNode
from malflow.operators.hosting.sink import SinkWriter
from malflow.records.batch import Batch, concat
from malflow.records.columnar import estimated_bytes, is_columnar
from malflow.runtime.transport.chunks import MOST_BYTES, Chunk
from malflow.sinks.contract import KeepingSinkImpl, StatelessSink, StatelessSinkImpl, offered
from malflow.sinks.distributed import is_distributed

__all__ = [
    "PieceEncoder",
    "SinkProxy",
    "check_sinks",
    "collected",
    "deliver",
    "driver_sinks",
    "encoded_pieces",
    "with_sink_proxies",
]

_PIECE_RECORDS = 4_096
"""The minimum number of records of a piece, except for the last one of a tick."""

_PIECE_COLUMNS = 65_536
"""The same of records as columns. They are encoded together, whatever their number."""


class SinkProxy(KeepingSinkImpl[Any, Any, Any]):
    """Stands in for a sink on the driver, and collects its records.

    Args:
        number: the index of the sink among the driver's sinks.

    Attributes:
        bytes: the approximate size of the collected records.
    """

    takes_all_or_none = True

    def __init__(self, number: int) -> None:
        self.number = number
        self.bytes = 0.0
        self._batches: list[Batch] = []

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Collect one message."""
        self.sink_batch((msg.key,), (msg.value,), (msg.timestamp,))

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Collect columns of messages."""
        self.keep(keys, values, timestamps)

    def keep(self, keys: Sequence[Any] | None, values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Collect columns of messages. The values may be `Columnar`."""
        self._batches.append(Batch(keys, values, timestamps))
        self.bytes += estimated_bytes(values)

    def take(self) -> list[Batch]:
        """Return and clear the collected records."""
        batches, self._batches, self.bytes = self._batches, [], 0.0
        return batches


class PieceEncoder(KeepingSinkImpl[Any, Any, Any]):
    """Encodes the records of a distributed sink into pieces.

    Args:
        number: the index of the sink among the driver's sinks.
        impl: the sink.

    Attributes:
        bytes: the approximate size of the records that `take` has not returned.
        encodes_at_once: whether each call encodes its records, so that it fails for one that can't be encoded.
    """

    takes_all_or_none = True
    encodes_at_once = False

    def __init__(self, number: int, impl: Any) -> None:
        self.number = number
        self.bytes = 0.0
        self._impl = impl
        self._batches: list[Batch] = []
        self._waiting = 0
        self._waiting_bytes = 0.0
        self._pieces: list[Any] = []

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Encode one message."""
        self.sink_batch((msg.key,), (msg.value,), (msg.timestamp,))

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Encode columns of messages, together with those that follow if they are few."""
        self.keep(keys, values, timestamps)

    def keep(self, keys: Sequence[Any] | None, values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Encode columns of messages like `sink_batch`. The values may be `Columnar`."""
        if self._batches and _schema(self._batches[-1].values) != _schema(values):
            self._encode()  # joined, they would be rows
        self._batches.append(Batch(keys, values, timestamps))
        size = estimated_bytes(values)
        self.bytes += size
        self._waiting += len(values)
        self._waiting_bytes += size
        if _schema(values) is None:
            is_full = self._waiting >= _PIECE_RECORDS
        else:
            is_full = self._waiting >= _PIECE_COLUMNS or self._waiting_bytes >= MOST_BYTES
        if self.encodes_at_once or is_full:
            self._encode()

    def flush(self) -> None:
        """Encode the rest of the records."""
        if self._waiting:
            self._encode()

    def take(self) -> list[Any]:
        """Return and clear the pieces, and drop records that are not encoded."""
        pieces, self._pieces, self._batches, self._waiting, self.bytes = self._pieces, [], [], 0, 0.0
        self._waiting_bytes = 0.0
        return pieces

    def _encode(self) -> None:
        batches, self._batches, self._waiting, self._waiting_bytes = self._batches, [], 0, 0.0
        together = concat(batches)
        encode = offered(self._impl, "encode_columns") if getattr(self._impl, "takes_columns", True) else None
        columns = together.values.record_batch() if encode is not None and is_columnar(together.values) else None
        if encode is not None and columns is not None:
            self._pieces.append(encode(together.keys, columns, together.timestamps))
            return
        rows = together.listed()
        keys = [NoKey] * len(rows) if rows.keys is None else rows.keys
        self._pieces.append(self._impl.encode(keys, rows.values, rows.timestamps))


def _schema(values: Sequence[Any]) -> Any:
    """Return the schema of values that are columns of Arrow; None for others."""
    columns = values.record_batch() if is_columnar(values) else None
    return None if columns is None else columns.schema


def driver_sinks(program: Program) -> list[SinkNode]:
    """Return the sinks of a program that run on the driver."""
    return [node for node in program.sinks if node.is_on_driver]


def with_sink_proxies(program: Program, *, encodes: bool = False) -> Program:
    """Return the program with each driver sink replaced by a `SinkProxy`.

    Args:
        program: the program.
        encodes: whether distributed sinks are replaced by a `PieceEncoder` instead.
    """
    numbers = {id(node): number for number, node in enumerate(driver_sinks(program))}

    def proxy(node: SinkNode) -> StatelessSinkImpl[Any, Any, Any]:
        impl = node.sink.impl
        return (
            PieceEncoder(numbers[id(node)], impl) if encodes and is_distributed(impl) else SinkProxy(numbers[id(node)])
        )

    vertices = tuple(
        replace(vertex, node=replace(vertex.node, sink=StatelessSink(proxy(vertex.node))))
        if isinstance(vertex.node, SinkNode) and id(vertex.node) in numbers
        else vertex
        for vertex in program.vertices
    )
    return replace(program, vertices=vertices)


def collected(sinks: Iterable[SinkWriter]) -> Iterator[tuple[int, str, list[Batch]]]:
    """Take the records that a worker collected for sinks on the driver, with index and name of the sink."""
    for sink in sinks:
        if isinstance(sink.resource, SinkProxy) and (batches := sink.resource.take()):
            yield sink.resource.number, sink.context.operator_name, batches


def encoded_pieces(sinks: Iterable[SinkWriter]) -> Iterator[tuple[int, list[Any]]]:
    """Take the pieces that a worker encoded for distributed sinks, with the index of the sink."""
    for sink in sinks:
        if isinstance(sink.resource, PieceEncoder) and (pieces := sink.resource.take()):
            yield sink.resource.number, pieces


def deliver(writers: Sequence[SinkWriter], chunks: Iterable[tuple[int, Chunk]]) -> Report:
    """Write the records of a tick to the sinks in this process.

    Args:
        writers: the operators of the sinks, in the order of `driver_sinks`.
        chunks: the records, each chunk with the index of its sink.

    Returns:
        A report of the time that each sink took, as a report of the first worker.

    Raises:
        OperatorError: if a sink fails.
    """
    busy = [0] * len(writers)
    for number, chunk in chunks:
        began = CLOCK()
        writer = writers[number]
        writer.process(chunk.batch(writer.context.operator_name))
        busy[number] += CLOCK() - began
    for number, writer in enumerate(writers):
        began = CLOCK()
        writer.flush()
        busy[number] += CLOCK() - began
    return Report(0, facts={it.context.operator_name: Facts(took) for it, took in zip(writers, busy, strict=True)})


def check_sinks(program: Program) -> None:
    """Check that each sink with a position or transactions is on the driver, rather than a copy in each process."""
    for vertex in program.vertices:
        node = vertex.node
        if not isinstance(node, SinkNode) or node.is_on_driver:
            continue
        if node.is_resumable or node.is_transactional:
            what = (
                "a position, by its snapshot() and restore()" if node.is_resumable else "transactions, by its prepare()"
            )
            raise GraphError(
                f"sink '{node.name}' has {what}, but each process of the run would "
                "have its own copy; set on_driver = True in its class, or write it as a StatefulSink",
                operator=node.name,
                location=vertex.location,
            )

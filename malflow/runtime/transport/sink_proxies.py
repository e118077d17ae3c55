"""Sinks on the driver, the process that started the run: workers collect their records, and the driver writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from malflow.engine.plan import Program
from malflow.errors import GraphError
from malflow.graph import SinkNode
from malflow.message import DataMessage
from malflow.operators.hosting.sink import SinkWriter
from malflow.records.batch import Batch
from malflow.runtime.transport.chunks import Chunk, estimated_bytes
from malflow.sinks.contract import StatelessSink, StatelessSinkImpl

__all__ = ["SinkProxy", "check_sinks", "collected", "deliver", "driver_sinks", "with_sink_proxies"]


class SinkProxy(StatelessSinkImpl[Any, Any, Any]):
    """Stands in for a sink on the driver, and collects its records.

    Args:
        number: the index of the sink among the driver's sinks.

    Attributes:
        bytes: the approximate size of the collected records.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.bytes = 0.0
        self._batches: list[Batch] = []

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Collect one message."""
        self.sink_batch((msg.key,), (msg.value,), (msg.timestamp,))

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Collect columns of messages."""
        self._batches.append(Batch(keys, values, timestamps))
        self.bytes += estimated_bytes(values)

    def take(self) -> list[Batch]:
        """Return and clear the collected records."""
        batches, self._batches, self.bytes = self._batches, [], 0.0
        return batches


def driver_sinks(program: Program) -> list[SinkNode]:
    """Return the sinks of a program that run on the driver."""
    return [node for node in program.sinks if node.is_on_driver]


def with_sink_proxies(program: Program) -> Program:
    """Return the program with each driver sink replaced by a `SinkProxy`."""
    numbers = {id(node): number for number, node in enumerate(driver_sinks(program))}
    vertices = tuple(
        replace(vertex, node=replace(vertex.node, sink=StatelessSink(SinkProxy(numbers[id(vertex.node)]))))
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


def deliver(writers: Sequence[SinkWriter], chunks: Iterable[tuple[int, Chunk]]) -> None:
    """Write the records of a tick to the sinks in this process.

    Args:
        writers: the operators of the sinks, in the order of `driver_sinks`.
        chunks: the records, each chunk with the index of its sink.

    Raises:
        OperatorError: if a sink fails.
    """
    for number, chunk in chunks:
        writer = writers[number]
        writer.process(chunk.batch(writer.context.operator_name))
    for writer in writers:
        writer.flush()


def check_sinks(program: Program) -> None:
    """Check that each sink with a position or transactions is on the driver, rather than a copy in each process.

    Raises:
        GraphError: naming a sink that is not.
    """
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

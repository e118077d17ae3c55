"""Sinks that are on the driver: what workers do with their records, and how these get there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from malflow.batch import Batch
from malflow.engine.plan import Program
from malflow.errors import GraphError
from malflow.graph import SinkNode
from malflow.message import DataMessage
from malflow.sinks.contract import StatelessSink, StatelessSinkImpl, is_resumable

__all__ = ["Shipped", "check_sinks", "driver_sinks", "shipping"]


class Shipped(StatelessSinkImpl[Any, Any, Any]):
    """Takes the place of a sink that is on the driver, and collects what is for it.

    Args:
        number: which of the driver's sinks it stands for.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._batches: list[Batch] = []

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Take one message."""
        self._batches.append(Batch((msg.key,), (msg.value,), (msg.timestamp,)))

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Take columns."""
        self._batches.append(Batch(keys, values, timestamps))

    def take(self) -> list[Batch]:
        """Give what was collected, and begin anew."""
        batches, self._batches = self._batches, []
        return batches


def driver_sinks(program: Program) -> list[SinkNode]:
    """List the sinks of a program that write from one place: the driver."""
    nodes = (vertex.node for vertex in program.vertices)
    return [node for node in nodes if isinstance(node, SinkNode) and _is_on_driver(node)]


def shipping(program: Program) -> Program:
    """Put a `Shipped` in the place of each sink that is on the driver."""
    numbers = {id(node): number for number, node in enumerate(driver_sinks(program))}
    vertices = tuple(
        replace(vertex, node=replace(vertex.node, sink=StatelessSink(Shipped(numbers[id(vertex.node)]))))
        if isinstance(vertex.node, SinkNode) and id(vertex.node) in numbers
        else vertex
        for vertex in program.vertices
    )
    return replace(program, vertices=vertices)


def check_sinks(program: Program) -> None:
    """Refuse a sink whose position would be kept, while each process has a copy of it.

    Raises:
        GraphError: naming it.
    """
    for vertex in program.vertices:
        node = vertex.node
        if isinstance(node, SinkNode) and isinstance(node.sink, StatelessSink) and is_resumable(node.sink.impl):
            if _is_on_driver(node):
                continue
            raise GraphError(
                f"sink '{node.name}' has a position, by its snapshot() and restore(), but each process of Spark would "
                "have a copy of it; say on_driver = True in its class, or write it as a StatefulSink",
                operator=node.name,
                location=vertex.location,
            )


def _is_on_driver(node: SinkNode) -> bool:
    return isinstance(node.sink, StatelessSink) and bool(getattr(node.sink.impl, "on_driver", False))

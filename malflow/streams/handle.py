"""The position of a stream in a graph, from which operators are added."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from malflow.graph import Graph, Node, Port, SourceNode
from malflow.streams.arguments import location, malformed

__all__ = ["StreamHandle"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")


class StreamHandle(Generic[K, V_co, T]):
    """The base of all families of stream methods: an output of a graph's node, from which operators are added."""

    __slots__ = ("_graph", "_port")

    _is_keyed: ClassVar[bool] = False

    def __init__(self, graph: Graph, port: Port | None) -> None:
        self._graph = graph
        self._port = port

    def _append(self, node: Node) -> Port:
        """Claim the node's name, and add the node after this stream."""
        inputs = () if isinstance(node, SourceNode) else (self._input(node.name),)
        self._graph.claim(node.name, location())
        return self._add(node, *inputs)

    def _add(self, node: Node, *inputs: Port) -> Port:
        return self._graph.add(node, inputs, location())

    def _input(self, name: object) -> Port:
        if self._port is None:
            raise malformed(name, "needs a stream with a source; call .source() on the new stream first")
        return self._port

    def _at(self, port: Port) -> Any:
        """Return the stream at another port, of the same class."""
        return type(self)(self._graph, port)

    def _stream(self, port: Port, *, keyed: bool) -> Any:
        """Return the stream at another port, keyed or not."""
        raise NotImplementedError

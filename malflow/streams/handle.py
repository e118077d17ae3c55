"""A stream's place in the graph, to which operators are added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from malflow.graph import Graph
from malflow.nodes import Node, Port, SourceNode
from malflow.partitioners import Partitioner
from malflow.streams.arguments import location, malformed
from malflow.words import short_repr

__all__ = ["StreamHandle"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")


class StreamHandle(Generic[K, V_co, T]):
    """The base of all families of stream methods: an output of a node in the graph."""

    __slots__ = ("_graph", "_port")

    _is_keyed: ClassVar[bool] = False

    def __init__(self, graph: Graph, port: Port | None) -> None:
        self._graph = graph
        self._port = port

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the dataflow so far for notebooks, as text and as a picture; this stream is marked."""
        from malflow.drawing.notebook import picture_bundle  # noqa: PLC0415 - only notebooks draw a stream

        del include, exclude
        return picture_bundle(self._graph, self._port)

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

    def _placed_by(self) -> Partitioner | None:
        """Return the partitioner that placed the keys of this stream on workers; None without exactly one."""
        return None if self._port is None else self._graph.settled(self._port)

    def _ports(self, name: str, others: Sequence[Any], *, keyed: bool = False) -> list[Port]:
        """Return the outputs that an operator reads: of this stream and of others.

        Args:
            name: the operator's name.
            others: the other streams.
            keyed: whether they must be keyed.

        Raises:
            GraphError: if one is not a stream, belongs to another dataflow, or is not keyed.
        """
        ports = [self._input(name)]
        for stream in others:
            if not isinstance(stream, StreamHandle):
                raise malformed(name, f"takes streams as separate arguments; got {short_repr(stream)}")
            if stream._graph is not self._graph:
                raise malformed(name, "needs streams of the same dataflow; got one of another")
            if keyed and not stream._is_keyed:
                raise malformed(name, "needs keyed streams; one has no key; call .key_distribute() on it")
            ports.append(stream._input(name))
        return ports

    def _at(self, port: Port) -> Any:
        """Return the stream at another port, of the same class."""
        return type(self)(self._graph, port)

    def _timed(self, port: Port) -> Any:
        """Return the on-time stream of an epoch generator. The generator's other output has the late records."""
        raise NotImplementedError

    def _stream(self, port: Port, *, keyed: bool) -> Any:
        """Return the stream at another port, keyed or not."""
        raise NotImplementedError

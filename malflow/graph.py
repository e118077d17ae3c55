"""The dataflow as plain data: node kinds, the graph they form, and its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, assert_never

from malflow.diagnostics import describe
from malflow.errors import GraphError
from malflow.operators.contract import Logic
from malflow.partitioners import Partitioner, rendezvous_select
from malflow.sinks.contract import StatefulSink, StatelessSink, is_resumable
from malflow.sources.contract import StatefulSource, StatelessSource
from malflow.state import StateKind

__all__ = [
    "EpochsNode",
    "ExchangeNode",
    "Graph",
    "KeyNode",
    "Node",
    "NodeFacts",
    "Port",
    "SinkNode",
    "SourceNode",
    "SplitNode",
    "StatefulNode",
    "StatelessNode",
    "TimestampsNode",
    "UnionNode",
    "Vertex",
    "check_name",
    "names_of",
]


class NodeFacts:
    """What the passes over a graph ask of a kind of node; each kind states where it differs from the most common.

    Attributes:
        merges_inputs: whether it has any number of inputs, each with a frontier of its own; others have one at most.
        starts_stage: whether it begins a stage, since its records may come from any worker.
        issues_epochs: whether epochs begin here, so that records can be late.
        role: what its state is to the operator that it belongs to, where that is not the operator's own state.
    """

    __slots__ = ()
    merges_inputs: ClassVar[bool] = False
    starts_stage: ClassVar[bool] = False
    issues_epochs: ClassVar[bool] = False
    role: ClassVar[str | None] = None


@dataclass(frozen=True, slots=True)
class SourceNode(NodeFacts):
    """Where records begin; `keyed` tells whether they have their part as key."""

    outputs: ClassVar[int] = 1
    name: str
    source: StatelessSource[Any, Any, Any] | StatefulSource[Any, Any, Any, Any]
    keyed: bool


@dataclass(frozen=True, slots=True)
class StatelessNode(NodeFacts):
    """An operator that remembers nothing; `keeps_keys` tells whether what it emits has the key of what came in."""

    outputs: ClassVar[int] = 1
    name: str
    logic: Logic
    keeps_keys: bool = True


@dataclass(frozen=True, slots=True)
class KeyNode(NodeFacts):
    """Sets the key of each record."""

    outputs: ClassVar[int] = 1
    name: str
    logic: Logic


@dataclass(frozen=True, slots=True)
class ExchangeNode(NodeFacts):
    """Moves each record to the worker that its key belongs to."""

    outputs: ClassVar[int] = 1
    starts_stage: ClassVar[bool] = True
    role: ClassVar[str | None] = "exchange"
    name: str
    partitioner: Partitioner


@dataclass(frozen=True, slots=True)
class StatefulNode(NodeFacts):
    """An operator that keeps a state for each key.

    Attributes:
        placement: what chose the worker of each key; None where they stay where they came.
        kind: the method that made it.
        version: the version of the states' form.
        migrate: makes a state of this version of one of an older version, or None to drop it.
        validate: takes what `migrate` returns; returns the state, or None to drop it, and raises a `TypeError` that
            says what it must be; None where any object is a state.
        keeps_keys: whether what it emits has the key of what came in.
    """

    outputs: ClassVar[int] = 1
    name: str
    logic: Logic
    placement: Partitioner | None
    kind: StateKind = StateKind.STATEFUL_OP
    version: int = 1
    migrate: Callable[[Any, int], Any] | None = None
    validate: Callable[[Any], Any] | None = None
    keeps_keys: bool = True


@dataclass(frozen=True, slots=True)
class TimestampsNode(NodeFacts):
    """Sets the timestamp of each record; its stream has no epochs."""

    outputs: ClassVar[int] = 1
    name: str
    logic: Logic


@dataclass(frozen=True, slots=True)
class EpochsNode(NodeFacts):
    """Issues epochs; output 0 has the records on time, output 1 the late ones.

    Attributes:
        placement: what chose the worker of each key of its input; None where nothing did.
        source: the source whose parts have an epoch each; None where the stream has one epoch.
    """

    outputs: ClassVar[int] = 2
    issues_epochs: ClassVar[bool] = True
    name: str
    logic: Logic
    placement: Partitioner | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class SplitNode(NodeFacts):
    """Copies each record to any of its outputs."""

    name: str
    logic: Logic
    outputs: int


@dataclass(frozen=True, slots=True)
class UnionNode(NodeFacts):
    """Joins streams into one; where the user gave it no name, it is made of theirs."""

    outputs: ClassVar[int] = 1
    merges_inputs: ClassVar[bool] = True
    role: ClassVar[str | None] = "union"
    name: str


@dataclass(frozen=True, slots=True)
class SinkNode(NodeFacts):
    """Where records end."""

    outputs: ClassVar[int] = 0
    name: str
    sink: StatelessSink[Any, Any, Any] | StatefulSink[Any, Any, Any, Any, Any]

    @property
    def is_resumable(self) -> bool:
        """Whether this is a stateless sink that has a position."""
        return isinstance(self.sink, StatelessSink) and is_resumable(self.sink.impl)

    @property
    def is_on_driver(self) -> bool:
        """Whether the sink writes from one place, the process that started the run, under every runtime."""
        return isinstance(self.sink, StatelessSink) and bool(getattr(self.sink.impl, "on_driver", False))


Node = (
    SourceNode
    | StatelessNode
    | KeyNode
    | ExchangeNode
    | StatefulNode
    | TimestampsNode
    | EpochsNode
    | SplitNode
    | UnionNode
    | SinkNode
)


@dataclass(frozen=True, slots=True)
class Port:
    """An output of a node, both by index."""

    vertex: int
    output: int = 0


@dataclass(frozen=True, slots=True)
class Vertex:
    """A node in its place: where its input comes from, and where in the user's code it was added."""

    node: Node
    inputs: tuple[Port, ...]
    location: str | None


_Placements = tuple[Partitioner | None, ...]
"""What put the records of a stream on their workers: partitioners, or None where they stay where they are keyed.

A source's parts are placed by `rendezvous_select`. More than one are the work of a union.
"""


@dataclass(slots=True)
class Graph:
    """The vertices in the order in which they were added, which puts every input before its consumer.

    Attributes:
        vertices: the vertices; a `Port` names one by its index.
        unfinished: the operators whose stream still needs epochs.
        closed: whether the dataflow is built, so that nothing may be added any more.
    """

    vertices: list[Vertex] = field(default_factory=list)
    unfinished: set[str] = field(default_factory=set)
    closed: bool = False
    _locations: dict[str, str | None] = field(default_factory=dict)
    _shared: set[str] = field(default_factory=set)
    _placements: list[_Placements] = field(default_factory=list)
    _parts: list[str | None] = field(default_factory=list)

    def claim(self, name: str, location: str | None) -> None:
        """Check a name and take it.

        Raises:
            GraphError: if it is no name, or taken.
        """
        check_name(name, location)
        self._take(name, location)

    def share(self, name: str, location: str | None) -> None:
        """Take a name that was made of others; the unions of the same streams share one.

        Raises:
            GraphError: if a user gave it to an operator.
        """
        if name not in self._shared:
            self._take(name, location)
            self._shared.add(name)

    def _take(self, name: str, location: str | None) -> None:
        if name in self._locations:
            first = self._locations[name]
            where = f", first at {first}" if first else ""
            message = f"operator '{name}' exists already{where}; every operator needs a name of its own"
            raise GraphError(message, operator=name, location=location)
        self._locations[name] = location

    def add(self, node: Node, inputs: Iterable[Port], location: str | None) -> Port:
        """Append a node; give its first output.

        Raises:
            GraphError: if the dataflow is built already.
        """
        if self.closed:
            message = f"operator '{node.name}' comes too late: the dataflow is built; add it inside build_dataflow"
            raise GraphError(message, operator=node.name, location=location)
        vertex = Vertex(node, tuple(inputs), location)
        self.vertices.append(vertex)
        self._placements.append(self._placements_of(vertex))
        self._parts.append(self._parts_of(vertex))
        return Port(len(self.vertices) - 1)

    def close(self) -> None:
        """Finish building.

        Raises:
            GraphError: if a stream was left without the epochs it needs.
        """
        self.closed = True
        for name in sorted(self.unfinished):
            message = f"operator '{name}' leaves a stream without epochs; call .generate_epochs() on what it gives"
            raise GraphError(message, operator=name, location=self._locations[name])

    def placement(self, name: str, port: Port, location: str | None) -> Partitioner | None:
        """Tell what put the records of an edge on their workers: a partitioner, or None for where they came from.

        Raises:
            GraphError: if a union brought together streams whose keys were placed in different ways.
        """
        placements = self._placements[port.vertex]
        if len(placements) == 1:
            return placements[0]
        ways = sorted("key_local" if way is None else describe(way) for way in placements)
        message = (
            f"operator '{name}' would keep the state of one key on several workers; its input joins streams that "
            f"were placed by {' and '.join(ways)}; call .key_distribute() after .union()"
        )
        raise GraphError(message, operator=name, location=location)

    def settled(self, port: Port) -> Partitioner | None:
        """Return what put the keys of an edge on their workers, or None where that is not one partitioner."""
        placements = self._placements[port.vertex]
        return placements[0] if len(placements) == 1 else None

    def parts(self, port: Port) -> str | None:
        """Return the name of the source whose parts are the keys of an edge, or None where they are not."""
        return self._parts[port.vertex]

    def _parts_of(self, vertex: Vertex) -> str | None:
        match vertex.node:
            case SourceNode(name=name, keyed=keyed):
                return name if keyed else None
            case StatelessNode(keeps_keys=False) | StatefulNode(keeps_keys=False):
                return None
            case StatelessNode() | StatefulNode() | TimestampsNode() | EpochsNode() | SplitNode():
                return self._parts[vertex.inputs[0].vertex]
            case KeyNode() | ExchangeNode() | UnionNode() | SinkNode():
                return None
            case _:
                assert_never(vertex.node)

    def _placements_of(self, vertex: Vertex) -> _Placements:
        match vertex.node:
            case SourceNode(keyed=keyed):
                return (rendezvous_select if keyed else None,)
            case KeyNode():
                return (None,)
            case ExchangeNode(partitioner=partitioner):
                return (partitioner,)
            case (
                StatelessNode()
                | StatefulNode()
                | TimestampsNode()
                | EpochsNode()
                | SplitNode()
                | UnionNode()
                | SinkNode()
            ):
                ways: list[Partitioner | None] = []
                for way in chain.from_iterable(self._placements[port.vertex] for port in vertex.inputs):
                    if way not in ways:
                        ways.append(way)
                return tuple(ways)
            case _:
                assert_never(vertex.node)


def check_name(name: object, location: str | None) -> None:
    """Check that a name is one.

    Raises:
        GraphError: if it is no text, blank, or has a ``/`` or characters that can't be printed.
    """
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        hint = "" if isinstance(name, str) else "; the name comes first"
        message = f"an operator's name is a printable text that is not blank; got {name!r}{hint}"
        raise GraphError(message, location=location)
    if "/" in name:
        message = (
            f"operator '{name}' has a '/' in its name, which is reserved: 'sum/exchange' is a state inside of operator "
            f"'sum'; write '{name.replace('/', '-')}'"
        )
        raise GraphError(message, operator=name, location=location)


def names_of(vertices: Sequence[Vertex], ports: Iterable[Port]) -> str:
    """Name a union by the outputs it joins, so that unions of different ones have different names."""
    named = ((vertices[port.vertex].node.name, port.output) for port in ports)
    return f"({' + '.join(name if output == 0 else f'{name}[{output}]' for name, output in named)})"

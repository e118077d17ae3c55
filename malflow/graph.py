"""The graph that the nodes of a dataflow form, and its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal, assert_never

from malflow.connectors.by_name import Replacement
from malflow.diagnostics import describe
from malflow.errors import ConfigFault, GraphError
from malflow.failures import OnError, Retry
from malflow.nodes import (
    EpochsNode,
    ExchangeNode,
    KeyNode,
    Lineage,
    Node,
    Port,
    SinkNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    StatelessNode,
    TimestampsNode,
    UnionNode,
    Vertex,
    keyed_anew,
    merged,
    read_from,
    sent_by,
    timed,
)
from malflow.partitioners import Partitioner, part_select, rendezvous_select

__all__ = ["Form", "Graph", "check_name", "forms_of", "names_of", "stages_of"]

Form = Literal["columns", "rows"]
"""How an input takes columns: as they are, or as rows that are made of them."""

_Placements = tuple[Partitioner | None, ...]
"""The partitioners that placed a stream's records on workers; None if records stay where they are keyed.

A source's parts are placed by `part_select`. Where their stream merges with one placed by `rendezvous_select`, they are
placed by it too: see `malflow.engine.plan.Program.hashed_sources`. Only a union results in more than one partitioner.
"""


@dataclass(slots=True)
class Graph:
    """The vertices in the order in which they were added. Every input thus precedes its consumer.

    Attributes:
        vertices: the vertices; a `Port` refers to a vertex by its index.
        unfinished: the operators whose stream still needs epochs.
        closed: whether the dataflow is complete, so that nothing can be added.
        replacements: the configured URLs of sources and sinks that the code makes by `connect`, by operator.
        last: functions that add operators once all others are there, such as those on dead letters.
        misconfigured: the faults of these, found so far.
        policies: the configured policies for failed records, by operator.
        default_policy: that of other operators whose code has the policy to fail; None leaves them.
        retries: the configured retries of calls of functions, by operator.
    """

    vertices: list[Vertex] = field(default_factory=list)
    unfinished: set[str] = field(default_factory=set)
    closed: bool = False
    replacements: Mapping[str, Replacement] = field(default_factory=dict)
    last: list[Callable[[], object]] = field(default_factory=list)
    misconfigured: list[ConfigFault] = field(default_factory=list)
    policies: Mapping[str, OnError] = field(default_factory=dict)
    default_policy: OnError | None = None
    retries: Mapping[str, Retry] = field(default_factory=dict)
    _locations: dict[str, str | None] = field(default_factory=dict)
    _shared: set[str] = field(default_factory=set)
    _placements: list[_Placements] = field(default_factory=list)
    _lineages: list[Lineage] = field(default_factory=list)
    _late: dict[Port, Port] = field(default_factory=dict)

    def claim(self, name: str, location: str | None) -> None:
        """Check and reserve an operator name.

        Raises:
            GraphError: if it is invalid or already taken.
        """
        check_name(name, location)
        self._take(name, location)

    def share(self, name: str, location: str | None) -> None:
        """Reserve a name composed of others; unions of the same streams share it.

        Raises:
            GraphError: if the user has given this name to an operator.
        """
        if name not in self._shared:
            self._take(name, location)
            self._shared.add(name)

    def _take(self, name: str, location: str | None) -> None:
        if name in self._locations:
            first = self._locations[name]
            where = f", first at {first}" if first else ""
            message = f"operator '{name}' already exists{where}; operator names must be unique"
            raise GraphError(message, operator=name, location=location)
        self._locations[name] = location

    def add(self, node: Node, inputs: Iterable[Port], location: str | None) -> Port:
        """Append a node and return its first output.

        Raises:
            GraphError: if the dataflow is already complete.
        """
        if self.closed:
            message = (
                f"operator '{node.name}' was added too late: the dataflow is complete; add it inside build_dataflow"
            )
            raise GraphError(message, operator=node.name, location=location)
        vertex = Vertex(node, tuple(inputs), location)
        self.vertices.append(vertex)
        self._placements.append(self._placements_of(vertex))
        self._lineages.append(self._lineage_of(vertex))
        return Port(len(self.vertices) - 1)

    def close(self) -> None:
        """Complete the dataflow.

        Raises:
            GraphError: if a stream lacks the epochs it needs.
        """
        self.complete()
        self.closed = True
        for name in sorted(self.unfinished):
            message = f"operator '{name}' leaves a stream without epochs; call .generate_epochs() on its result"
            raise GraphError(message, operator=name, location=self._locations[name])

    def complete(self) -> None:
        """Add the operators that are added last."""
        while self.last:
            self.last.pop(0)()

    def placement(self, name: str, ports: Sequence[Port], location: str | None) -> Partitioner | None:
        """Return the partitioner that placed the records of all edges on workers, or None if no exchange moved them.

        Raises:
            GraphError: if the keys of the edges, or of merged streams, were placed in different ways.
        """
        placements = self._combined(ports)
        if len(placements) == 1:
            return placements[0]
        ways = " and ".join(sorted(map(_named_way, placements)))
        what, remedy = (
            (f"its input merges streams placed by {ways}", "call .key_distribute() after .union()")
            if len(ports) == 1
            else (f"its inputs are placed by {ways}", "call .key_distribute() on all of them, with one partitioner")
        )
        message = f"operator '{name}' would keep the state of one key on several workers; {what}; {remedy}"
        raise GraphError(message, operator=name, location=location)

    def settled(self, port: Port) -> Partitioner | None:
        """Return the partitioner that placed the keys of an edge on workers, or None if there are several."""
        placements = self._placements[port.vertex]
        return placements[0] if len(placements) == 1 else None

    def generator(self, port: Port) -> Port | None:
        """Return the output of the epoch generator upstream of an edge, or None if there is not exactly one."""
        while True:
            vertex = self.vertices[port.vertex]
            if isinstance(vertex.node, EpochsNode):
                return port
            if isinstance(vertex.node, TimestampsNode) or len(vertex.timed_by) != 1:
                return None
            port = vertex.inputs[0]

    def late_of(self, port: Port) -> Port | None:
        """Return the late records of the generator upstream of an edge, with the keys of the edge.

        The operators that set and distribute the keys are copied for the late records once, under composed names.
        Return None if any other operator is between the generator and the edge.
        """
        if port in self._late:
            return self._late[port]
        vertex, generator = self.vertices[port.vertex], self.generator(port)
        if generator is None or generator.output != 0:
            return None
        if generator == port:
            return Port(port.vertex, 1)
        before = self.late_of(vertex.inputs[0])
        if before is None or not isinstance(vertex.node, KeyNode | ExchangeNode):
            return None
        late = f"{self.vertices[generator.vertex].node.name}[1]"
        name = f"({late} by {vertex.node.name})"
        self.share(name, vertex.location)
        self._late[port] = self.add(replace(vertex.node, name=name), (before,), vertex.location)
        return self._late[port]

    def has_epochs(self, port: Port) -> bool:
        """Whether all records of an edge have passed a generator of epochs."""
        vertex = self.vertices[port.vertex]
        if isinstance(vertex.node, EpochsNode):
            return True
        return bool(vertex.timed_by) and all(map(self.has_epochs, vertex.timed_by))

    def is_on_time(self, port: Port) -> bool:
        """Whether no record of an edge is late: a generator has separated late ones, and no operator sets new times."""
        while True:
            vertex = self.vertices[port.vertex]
            if isinstance(vertex.node, EpochsNode):
                return port.output == 0
            keeps_times = isinstance(vertex.node, KeyNode | ExchangeNode | SplitNode)
            if not keeps_times and not (isinstance(vertex.node, StatelessNode) and vertex.node.keeps_keys):
                return False
            (port,) = vertex.inputs

    def lineage(self, port: Port) -> Lineage:
        """Return the lineage of the timestamps of an edge."""
        return self._lineages[port.vertex]

    def first_after_exchange(self, port: Port) -> Vertex | None:
        """Return the first operator on the way of records to an edge that is after an exchange; None if none is."""
        stages, found = stages_of(self.vertices), None
        while stages[port.vertex]:
            found = self.vertices[port.vertex]
            port = found.timed_by[0]
        return found

    def _lineage_of(self, vertex: Vertex) -> Lineage:
        before, name = [self._lineages[port.vertex] for port in vertex.timed_by], vertex.node.name
        if vertex.has_letters:
            return read_from(name, keyed=False)
        if len(before) > 1:
            return merged(before, name, vertex.location)
        match vertex.node:
            case SourceNode(keyed=keyed):
                return read_from(name, keyed=keyed)
            case KeyNode():
                return keyed_anew(before[0], name, vertex.location)
            case EpochsNode():
                return timed(before[0])
            case StatelessNode(keeps_keys=False) | StatefulNode(keeps_keys=False):
                return sent_by(name, before[0])
            case (
                StatelessNode()
                | StatefulNode()
                | TimestampsNode()
                | ExchangeNode()
                | SplitNode()
                | UnionNode()
                | SinkNode()
            ):
                return before[0]
            case _:
                assert_never(vertex.node)

    def _placements_of(self, vertex: Vertex) -> _Placements:
        if vertex.has_letters:
            return (None,)
        match vertex.node:
            case SourceNode(keyed=keyed):
                return (part_select if keyed else None,)
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
                return self._combined(vertex.timed_by)
            case _:
                assert_never(vertex.node)

    def _combined(self, ports: Iterable[Port]) -> _Placements:
        """Return the different placements of the records of edges."""
        ways: list[Partitioner | None] = []
        for way in chain.from_iterable(self._placements[port.vertex] for port in ports):
            if way not in ways:
                ways.append(way)
        if rendezvous_select in ways and part_select in ways:
            ways.remove(part_select)
        return tuple(ways)


def _named_way(way: Partitioner | None) -> str:
    """Name a placement in an error."""
    if way is None:
        return "key_local"
    return "the parts of a source" if way is part_select else describe(way)


def check_name(name: object, location: str | None) -> None:
    """Check that a name is a printable, non-blank string without ``/``."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        hint = "" if isinstance(name, str) else "; the name is the first argument"
        message = f"an operator name must be a printable, non-blank string; got {name!r}{hint}"
        raise GraphError(message, location=location)
    if "/" in name:
        message = (
            f"operator '{name}' has a '/' in its name, which is reserved: 'sum/exchange' is a state inside operator "
            f"'sum'; write '{name.replace('/', '-')}'"
        )
        raise GraphError(message, operator=name, location=location)


def names_of(vertices: Sequence[Vertex], ports: Iterable[Port]) -> str:
    """Return a name for a union, composed of its inputs. Different unions thus have different names."""
    named = ((vertices[port.vertex].node.name, port.output) for port in ports)
    return f"({' + '.join(name if output == 0 else f'{name}[{output}]' for name, output in named)})"


def forms_of(vertices: Sequence[Vertex]) -> dict[tuple[int, int], Form]:
    """Return how columns arrive at each input, by vertex and number: as ``columns``, or as ``rows`` made of them.

    Inputs that get no columns are left out. Where columns and objects meet, rows are made of the columns.
    """
    forms: dict[tuple[int, int], Form] = {}
    columnar: set[Port] = set()
    for index, vertex in enumerate(vertices):
        node, inputs = vertex.node, vertex.inputs
        taken = node.takes_columns and bool(inputs) and columnar.issuperset(inputs)
        forms |= {(index, at): "columns" if taken else "rows" for at, port in enumerate(inputs) if port in columnar}
        if node.gives_columns(taken=taken):
            columnar.update(Port(index, output) for output in range(node.outputs))
    return forms


def stages_of(vertices: Sequence[Vertex]) -> list[int]:
    """Return the stage of each vertex: the latest of its inputs, and one later for an exchange."""
    stages: list[int] = []
    for vertex in vertices:
        latest = max((stages[port.vertex] for port in vertex.inputs), default=0)
        stages.append(latest + vertex.node.starts_stage)
    return stages

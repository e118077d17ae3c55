"""A program: the operators of a dataflow in stages, and the channels between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from malflow.errors import GraphError
from malflow.failures import OnError
from malflow.nodes import (
    LETTERS_OUTPUT,
    EpochsNode,
    ExchangeNode,
    KeyNode,
    Node,
    Port,
    SinkNode,
    SourceNode,
    StatefulNode,
    StatelessNode,
    TellsBy,
    TimestampsNode,
    Vertex,
)
from malflow.operators.contract import Counts
from malflow.operators.failures.guard import GUARD_COUNTS
from malflow.partitioners import Partitioner, rendezvous_select
from malflow.records.rows import ReadField
from malflow.sinks.contract import is_resumable
from malflow.sources.contract import StatefulSource
from malflow.states.kinds import StateKind

if TYPE_CHECKING:
    from malflow.operators.windows.local_aggregate import LocalAggregate

__all__ = [
    "NO_GROUPS",
    "Channel",
    "PartAssignment",
    "PartGroups",
    "Program",
    "Stage",
    "Step",
    "check_not_input",
    "epoch_groups",
    "epochs_along",
    "fields_of_source",
    "key_of_count",
    "keys_of_given",
    "meetings",
    "with_columns_kept",
    "written_files",
]


PartAssignment: TypeAlias = Literal["auto", "dynamic", "static"]
"""Whether workers get the parts of sources at once or one after the other: see `malflow.SingleThreadRuntime`."""


@dataclass(frozen=True, slots=True)
class Channel:
    """An edge into a later stage.

    Attributes:
        number: its index in the `channels` of the program, by which runtimes address it.
        source: the output where it begins.
        target: the vertex where it ends.
        edge: which input of that vertex it is.
        partitioner: chooses the worker of each record; None if records stay on their worker.
        name: its operator, for errors.
        fields: the fields of the values that the next stage reads, by the names of their columns, if it reads nothing
            else of them; None otherwise.
        local: makes the aggregation of records before they are sent; None if their only reader has none.
        tells_by: the partitions of time by which the operators that its epochs reach tell them apart.
    """

    number: int
    source: Port
    target: int
    edge: int
    partitioner: Partitioner | None
    name: str
    fields: Mapping[str, ReadField] | None = None
    local: Callable[[], LocalAggregate] | None = None
    tells_by: TellsBy = None


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a stage.

    Attributes:
        vertex: its index in the graph.
        edges: the number of inputs; 1 for a source.
        timed: whether epochs are generated downstream; the merge order can then make records late.
        consumers: for each output, the ``(vertex, edge)`` of this stage that read it.
        channels: for each output, the numbers of the channels that begin there.
        letter_consumers: the ``(vertex, edge)`` of this stage that read its dead letters.
        letter_channels: the numbers of the channels that take its dead letters to later stages.
    """

    vertex: int
    edges: int
    timed: bool
    consumers: tuple[tuple[tuple[int, int], ...], ...]
    channels: tuple[tuple[int, ...], ...]
    letter_consumers: tuple[tuple[int, int], ...] = ()
    letter_channels: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """The operators between two exchanges; every worker runs it."""

    steps: tuple[Step, ...]
    inputs: tuple[Channel, ...]
    outputs: tuple[Channel, ...]


@dataclass(frozen=True, slots=True)
class PartGroups:
    """The sources with streams that are keyed by parts, in groups: equal parts of a group have one worker.

    Streams of a group meet in an operator, such as a union. A group has the name of one of its sources.

    Attributes:
        sources: the group of each of these sources.
        operators: the group of the streams that each operator reads.
    """

    sources: Mapping[str, str]
    operators: Mapping[str, str]


NO_GROUPS: Final = PartGroups({}, {})
"""The groups of a program without such streams."""


@dataclass(frozen=True, slots=True)
class Program:
    """A dataflow that is ready to run: checked, ordered, and picklable if the user's functions are.

    Attributes:
        vertices: the operators.
        stages: the stages.
        channels: the edges between stages.
        policies: the policies, by operator, that replace the policies of the program's code.
        part_assignment: when workers get the parts of sources, as in `malflow.SingleThreadRuntime`.
    """

    vertices: tuple[Vertex, ...]
    stages: tuple[Stage, ...]
    channels: tuple[Channel, ...]
    policies: Mapping[str, OnError] = field(default_factory=dict)
    part_assignment: PartAssignment = "auto"

    def policy(self, node: Node) -> OnError | None:
        """Return the policy of an operator for failed records; None if every failure ends the run."""
        policy = None if node.on_error is None else self.policies.get(node.name, node.on_error)
        return None if policy is None or policy.never_passes else policy

    def counts(self, node: Node) -> Counts:
        """Return the counters and gauges of an operator."""
        return node.counts if self.policy(node) is None else node.counts.with_those_of(GUARD_COUNTS)

    @property
    def counting(self) -> dict[str, Counts]:
        """The counters and gauges of the operators that have any, by the operator's name."""
        counting: dict[str, Counts] = {}
        for vertex in self.vertices:
            if counts := self.counts(vertex.node):
                held = counting.get(vertex.node.name)  # of the operator's other node, as of `event_time`
                counting[vertex.node.name] = counts if held is None else held.with_those_of(counts)
        return counting

    @property
    def counters(self) -> list[str]:
        """The keys of the counts in reports: the records that each operator took and gave, and its own counters."""
        nodes = [vertex.node for vertex in self.vertices]
        given = [key for node in nodes if not node.starts_stage for key in keys_of_given(node)]
        own = [key_of_count(name, it) for name, counts in self.counting.items() for it in counts.counters]
        return [*(node.name for node in nodes), *given, *own]

    @property
    def gauges(self) -> list[str]:
        """The keys of the gauges in reports."""
        return [key_of_count(name, it) for name, counts in self.counting.items() for it in counts.gauges]

    @property
    def least_batch(self) -> int:
        """The number of records that sources should poll at least in a tick."""
        nodes = (vertex.node for vertex in self.vertices)
        return max((node.least_batch for node in nodes if isinstance(node, StatelessNode)), default=1)

    @property
    def patterns(self) -> list[str]:
        """The names of the operators that find patterns."""
        nodes = (vertex.node for vertex in self.vertices)
        return [node.name for node in nodes if isinstance(node, StatefulNode) and node.kind is StateKind.MATCH]

    @property
    def generators(self) -> list[str]:
        """The operators that issue epochs."""
        return [vertex.node.name for vertex in self.vertices if vertex.node.issues_epochs]

    @property
    def sources(self) -> dict[str, SourceNode]:
        """The sources by name."""
        return {v.node.name: v.node for v in self.vertices if isinstance(v.node, SourceNode)}

    @property
    def sinks(self) -> list[SinkNode]:
        """The sinks, in the order of the dataflow."""
        return [vertex.node for vertex in self.vertices if isinstance(vertex.node, SinkNode)]

    @property
    def without_positions(self) -> list[str]:
        """The sources with readers without positions. They start over in each run."""
        return [name for name, node in self.sources.items() if not isinstance(node.source, StatefulSource)]

    @property
    def part_groups(self) -> PartGroups:
        """The sources with streams that are keyed by parts, in groups of streams that meet."""
        groups: dict[str, set[str]] = {name: {name} for name, node in self.sources.items() if node.keyed}
        reached: list[frozenset[str]] = []
        operators: dict[str, str] = {}
        for vertex in self.vertices:
            node, before = vertex.node, [] if vertex.has_letters else [reached[port.vertex] for port in vertex.inputs]
            found = {node.name} & groups.keys() if isinstance(node, SourceNode) else frozenset[str]().union(*before)
            if len(found) > 1:
                together = set[str]().union(*(groups[name] for name in found))
                groups.update(dict.fromkeys(together, together))
            if found:
                operators.setdefault(node.name, min(found))
            is_cut = isinstance(node, ExchangeNode | KeyNode)
            reached.append(frozenset() if is_cut else frozenset(found))
        sources = {name: min(them) for name, them in groups.items()}
        return PartGroups(sources, {name: sources[source] for name, source in operators.items()})

    @property
    def hashed_sources(self) -> frozenset[str]:
        """The sources with parts that are placed as keys are: their streams meet streams placed by `rendezvous_select`.

        An operator that keeps state for both finds a key's records on one worker only if parts are not dealt.
        """
        reached = [v for v in self.vertices if _keys_placed_by(v) is rendezvous_select]
        found: set[str] = set()
        seen: set[int] = set()
        while reached:
            for port in reached.pop().inputs:
                vertex = self.vertices[port.vertex]
                if port.vertex in seen or vertex.has_letters or isinstance(vertex.node, ExchangeNode | KeyNode):
                    continue
                seen.add(port.vertex)
                if isinstance(vertex.node, SourceNode) and vertex.node.keyed:
                    found.add(vertex.node.name)
                reached.append(vertex)
        return frozenset(found)

    @property
    def lifts_silent(self) -> bool:
        """Whether any epoch generator advances without input, by ``idle_after``."""
        return any(isinstance(v.node, EpochsNode) and v.node.idle_after is not None for v in self.vertices)


def key_of_count(name: str, it: str) -> str:
    """Return the key of an operator's own counter or gauge in reports; no operator's name has a ``/``."""
    return f"{name}/{it}"


def keys_of_given(node: Node) -> list[str]:
    """Return the keys in reports of the numbers of records that have left each output of an operator."""
    return [key_of_count(node.name, f"out/{output}" if output else "out") for output in range(node.outputs)]


def epochs_along(program: Program) -> list[frozenset[str]]:
    """Return, for each vertex, the epoch (watermark) generators of the epochs that its output carries.

    Epochs do not pass another generator, nor new timestamps.
    """
    carried: list[frozenset[str]] = []
    for vertex in program.vertices:
        if vertex.node.issues_epochs:
            carried.append(frozenset({vertex.node.name}))
        elif isinstance(vertex.node, TimestampsNode):
            carried.append(frozenset())
        else:
            carried.append(frozenset[str]().union(*(carried[port.vertex] for port in vertex.timed_by)))
    return carried


def generators_behind(program: Program) -> list[frozenset[str]]:
    """Return, for each vertex, the epoch (watermark) generators downstream of it."""
    behind: list[frozenset[str]] = [frozenset()] * len(program.vertices)
    for index, vertex in reversed([*enumerate(program.vertices)]):
        issued = frozenset({vertex.node.name}) if vertex.node.issues_epochs else frozenset[str]()
        for port in vertex.timed_by:
            behind[port.vertex] |= behind[index] | issued
    return behind


def with_columns_kept(program: Program) -> frozenset[int]:
    """Return the vertices upstream of an operator that needs columns; a debug run keeps columns there."""
    found: set[int] = set()
    for index, vertex in reversed([*enumerate(program.vertices)]):
        if index in found or getattr(vertex.node, "needs_columns", False):
            found.update(port.vertex for port in vertex.inputs)
    return frozenset(found)


def meetings(program: Program) -> list[frozenset[str]]:
    """Return, for each vertex with several inputs, the epoch generators of the streams that meet there."""
    carried = epochs_along(program)
    met = [
        frozenset[str]().union(*(carried[port.vertex] for port in vertex.timed_by))
        for vertex in program.vertices
        if len(vertex.timed_by) > 1
    ]
    return [names for names in met if names]


def epoch_groups(program: Program) -> list[frozenset[str]]:
    """Return the epoch (watermark) generators, grouped by whether their streams meet downstream."""
    groups = {name: {name} for name in program.generators}
    for met in meetings(program):
        together = set().union(*(groups[name] for name in met))
        groups.update(dict.fromkeys(together, together))
    return [frozenset(group) for group in {id(group): group for group in groups.values()}.values()]


def _keys_placed_by(vertex: Vertex) -> Partitioner | None:
    """Return the partitioner that an operator relies on to find a key's records on one worker."""
    if vertex.has_letters:
        return None
    return vertex.node.placement if isinstance(vertex.node, EpochsNode) else vertex.node.placed_by


def check_not_input(program: Program, parts: Mapping[str, Iterable[object]]) -> None:
    """Check that no sink writes to a file that a source reads.

    Args:
        program: the program.
        parts: the parts of each source.
    """
    targets = {target: vertex for vertex, _, target in written_files(program.vertices)}
    for source, listed in parts.items():
        for part in listed if targets else ():
            if isinstance(part, str) and part in targets:
                sink = targets[part]
                raise GraphError(
                    f"sink '{sink.node.name}' writes to '{part}', which source '{source}' reads; write to another file",
                    operator=sink.node.name,
                    location=sink.location,
                )


def written_files(vertices: Iterable[Vertex]) -> Iterator[tuple[Vertex, object, str]]:
    """Yield the resumable sinks that write to a file, with the file."""
    for vertex in vertices:
        impl = vertex.node.sink.impl if isinstance(vertex.node, SinkNode) else None
        target = getattr(impl, "target", None)
        if is_resumable(impl) and isinstance(target, str):
            yield vertex, impl, target


def fields_of_source(program: Program, vertex: int) -> frozenset[str] | None:
    """Return the fields that are read of a source's values, by name; None if anybody reads, or keeps, whole values.

    Args:
        program: the program.
        vertex: the source.
    """
    fields: frozenset[str] = frozenset()
    for index, reader in enumerate(program.vertices):
        for port in reader.inputs:
            if port.vertex != vertex:
                continue
            read = None if port.output == LETTERS_OUTPUT else _fields_of_reader(program, index)
            if read is None:
                return None
            fields |= read
    return fields


def _fields_of_reader(program: Program, index: int) -> frozenset[str] | None:
    node = program.vertices[index].node
    if program.policy(node) is not None:  # a dead letter holds the whole value
        return None
    if isinstance(node, StatefulNode):
        reads = node.reads
        return None if reads is None or not all(isinstance(it, str) for it in reads.values()) else frozenset(reads)
    if node.passes is None:
        return None
    after = fields_of_source(program, index)
    return None if after is None else after | node.passes

"""The kinds of nodes of a dataflow, as plain data, the edges between them, and the lineage of timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from malflow.event_time.panes import Fitting, Panes
from malflow.failures import OnError
from malflow.operators.contract import NO_COUNTS, Counts, Logic, OperatorContext
from malflow.operators.epochs.generator import LATE, GenerateEpochs
from malflow.partitioners import Partitioner
from malflow.records.rows import ReadField
from malflow.sinks.contract import StatefulSink, StatelessSink, is_resumable, takes_columns
from malflow.sinks.transactional import is_transactional
from malflow.sources.contract import StatefulSource, StatelessSource
from malflow.states.kinds import Arrangement, StateKind, StateLayout

if TYPE_CHECKING:
    from malflow.operators.windows.local_aggregate import LocalAggregate

__all__ = [
    "LETTERS_OUTPUT",
    "EpochsNode",
    "ExchangeNode",
    "KeyNode",
    "Lineage",
    "Mixture",
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
    "keyed_anew",
    "merged",
    "read_from",
    "sent_by",
    "timed",
]


TellsBy = tuple[Panes | Fitting, ...] | None
"""The partitions of time by which an operator tells epochs (watermarks) apart.

Two epochs are the same to it if they close the same panes of each. Without any, all epochs are the same until the next
batch; None: no two are.
"""


class NodeFacts:
    """Facts about node kinds for graph passes, with defaults; each kind overrides those that differ.

    Attributes:
        starts_stage: whether it starts a stage, since its records may arrive from any worker.
        issues_epochs: whether it issues epochs (watermarks); records can then be late.
        role: the role of a hidden state of its operator, such as ``exchange``; None for the operator's own state.
    """

    __slots__ = ()
    starts_stage: ClassVar[bool] = False
    issues_epochs: ClassVar[bool] = False
    role: ClassVar[str | None] = None

    @property
    def counts(self) -> Counts:
        """The counters and gauges that its operator has."""
        return NO_COUNTS

    @property
    def on_error(self) -> OnError | None:
        """The policy for records at which the user's function fails; None if its operator can't have one."""
        return None

    @property
    def placed_by(self) -> Partitioner | None:
        """The partitioner that placed the keys of its input on workers, for its dead letters; None without one."""
        return None

    @property
    def tells_by(self) -> TellsBy:
        """The partitions of time by which it tells epochs apart: see `TellsBy`."""
        return ()

    @property
    def passes(self) -> frozenset[str] | None:
        """The fields that it reads of values that it passes on unchanged; None if it reads more, or changes them."""
        return None

    @property
    def takes_columns(self) -> bool:
        """Whether it takes batches of columns without making rows of them."""
        return self.passes is not None

    def gives_columns(self, *, taken: bool) -> bool:
        """Whether its output is columns. Only a run can tell whether each value fits them.

        Args:
            taken: whether it gets columns, and makes no rows of them.
        """
        return taken


@dataclass(frozen=True, slots=True)
class SourceNode(NodeFacts):
    """Emits records; `keyed` is whether a record's key is its part."""

    outputs: ClassVar[int] = 1
    name: str
    source: StatelessSource[Any, Any, Any] | StatefulSource[Any, Any, Any, Any]
    keyed: bool

    @property
    def on_error(self) -> OnError | None:
        """The policy for records that can't be read; None if its source can't have one."""
        policy = getattr(self.source.impl, "policy", None)
        return policy if isinstance(policy, OnError) else None

    def gives_columns(self, *, taken: bool) -> bool:
        """Whether the source emits columns."""
        del taken
        return bool(getattr(self.source.impl, "emits_columns", False))

    def with_policy(self, policy: OnError) -> SourceNode:
        """Return a source with another policy for records that can't be read.

        Raises:
            GraphError: if it can't have it.
        """
        impl: Any = self.source.impl
        return replace(self, source=replace(self.source, impl=impl.with_policy(policy)))


@dataclass(frozen=True, slots=True)
class StatelessNode(NodeFacts):
    """An operator without state.

    Attributes:
        keeps_keys: whether its output keeps the keys of its input.
        least_batch: the number of records that sources should poll at least, since it calls out for many at a time.
        tells_by: the partitions of time by which it tells epochs apart.
        needs_columns: whether its input must be columns.
    """

    outputs: ClassVar[int] = 1
    name: str
    logic: Logic
    keeps_keys: bool = True
    counts: Counts = NO_COUNTS
    on_error: OnError | None = None
    placed_by: Partitioner | None = None
    least_batch: int = 1
    tells_by: TellsBy = None
    needs_columns: bool = False

    @property
    def takes_columns(self) -> bool:
        """Whether its operator does."""
        return bool(getattr(_made_by(self.logic), "keeps_columns", False))

    def gives_columns(self, *, taken: bool) -> bool:
        """Whether its operator makes columns, or keeps those that it gets."""
        return taken or bool(getattr(_made_by(self.logic), "makes_columns", False))


def _made_by(logic: Logic) -> Any:
    """Return the class of an operator, without the arguments that `functools.partial` adds."""
    return getattr(logic, "func", logic)


@dataclass(frozen=True, slots=True)
class KeyNode(NodeFacts):
    """Sets the key of each record; `passes` has its field if the key is one."""

    outputs: ClassVar[int] = 1
    name: str
    logic: Logic
    on_error: OnError | None = None
    placed_by: Partitioner | None = None
    passes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ExchangeNode(NodeFacts):
    """Moves each record to the worker that owns its key."""

    outputs: ClassVar[int] = 1
    starts_stage: ClassVar[bool] = True
    role: ClassVar[str | None] = "exchange"
    name: str
    partitioner: Partitioner
    passes: ClassVar[frozenset[str] | None] = frozenset()


@dataclass(frozen=True, slots=True)
class StatefulNode(NodeFacts):
    """An operator that keeps a state for each key. A join has several inputs, and their frontiers as a hidden state.

    Attributes:
        placement: the partitioner that placed the keys on workers; None if records stay where they are keyed.
        kind: the kind of state, determined by the method that added the node.
        version: the schema version of the states.
        migrate: converts a state of an older version, or returns None to drop it.
        validate: checks the result of `migrate`: returns the state or None to drop it, or raises a `TypeError` with the
            requirement. None if any object is a valid state.
        keeps_keys: whether its output keeps the keys of its input.
        hidden: the role and the kind of each additional state of the operator.
        definition: the windows and aggregators that create its states; None if the user's functions create them.
        panes: the partition of time of the panes in its state; None for a state without panes.
        layout: what its states hold, if the program says so in words; its definition is made of it.
        arrange: returns a state of another layout in the places of its own, given the key and the arrangement.
        outputs: how many outputs it has.
        counts: the counters and gauges that its operator has.
        reads: the fields of the values that it reads, by the names of their columns, if it neither reads nor emits
            anything else of them; otherwise None.
        local: makes the aggregation of records on their way to it, which must have the same result; None without one.
        times: how many of its first inputs its output has the records and epochs of; None for all of them.
        on_error: the policy for records at which the user's function fails; None if its operator can't have one.
        method: the method of streams that adds it, for drawings; None if that has the name of the kind.
        tells_by: the partitions of time by which it tells epochs apart.
        takes_columns: whether it reads fields by name: of arrays, or of columns as lists.
        results: tells whether its results are columns if its input is; None if they never are.
    """

    name: str
    logic: Logic
    placement: Partitioner | None
    kind: StateKind = StateKind.STATEFUL_OP
    version: int = 1
    migrate: Callable[[Any, int], Any] | None = None
    validate: Callable[[Any], Any] | None = None
    keeps_keys: bool = True
    hidden: tuple[tuple[str, StateKind], ...] = ()
    definition: str | None = None
    panes: str | None = None
    layout: StateLayout | None = None
    arrange: Callable[[Any, Any, Arrangement], Any] | None = None
    outputs: int = 1
    counts: Counts = NO_COUNTS
    reads: Mapping[str, ReadField] | None = None
    local: Callable[[], LocalAggregate] | None = None
    times: int | None = None
    on_error: OnError | None = None
    method: str | None = None
    tells_by: TellsBy = None
    takes_columns: bool = False
    results: Callable[[], bool] | None = None

    def gives_columns(self, *, taken: bool) -> bool:
        """Whether its results are columns."""
        return taken and self.results is not None and self.results()

    @property
    def placed_by(self) -> Partitioner | None:
        """The partitioner that placed the keys of its input on workers."""
        return self.placement


@dataclass(frozen=True, slots=True)
class TimestampsNode(NodeFacts):
    """Sets the timestamp of each record; its stream has no epochs. `passes` has its field if the timestamp is one."""

    outputs: ClassVar[int] = 1
    name: str
    logic: Logic
    on_error: OnError | None = None
    placed_by: Partitioner | None = None
    passes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class EpochsNode(NodeFacts):
    """Issues epochs (watermarks); output 0 has the records on time, output 1 the late ones.

    Attributes:
        placement: the partitioner that placed the keys of its input on workers, or None.
        source: the source whose parts each have an epoch; None if the stream has one epoch.
        idle_after: the silence after which time advances without input; None if it does not.
        second: how many units of a numeric timestamp make a second; None if unknown.
        passes: no fields, if its generator reads timestamps alone; None if it reads values.
        layout: the unit of its epochs, if the program says so in words.
    """

    outputs: ClassVar[int] = 2
    issues_epochs: ClassVar[bool] = True
    counts: ClassVar[Counts] = Counts(counters=(LATE,))
    name: str
    logic: Callable[[OperatorContext], GenerateEpochs]
    placement: Partitioner | None = None
    source: str | None = None
    idle_after: timedelta | None = None
    second: Any = None
    passes: frozenset[str] | None = None
    layout: StateLayout | None = None

    @property
    def tells_by(self) -> TellsBy:
        """None: it issues each epoch that arrives."""
        return None


@dataclass(frozen=True, slots=True)
class SplitNode(NodeFacts):
    """Copies each record to any of its outputs; `passes` has no fields if that is each of them."""

    name: str
    logic: Logic
    outputs: int
    on_error: OnError | None = None
    placed_by: Partitioner | None = None
    passes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class UnionNode(NodeFacts):
    """Merges streams into one; by default, its name is composed of theirs."""

    outputs: ClassVar[int] = 1
    role: ClassVar[str | None] = "union"
    passes: ClassVar[frozenset[str] | None] = frozenset()
    name: str


@dataclass(frozen=True, slots=True)
class SinkNode(NodeFacts):
    """Writes records to a sink.

    Attributes:
        on_error: the policy for records that the sink, or its external system, refuses.
    """

    outputs: ClassVar[int] = 0
    name: str
    sink: StatelessSink[Any, Any, Any] | StatefulSink[Any, Any, Any, Any, Any]
    on_error: OnError | None = None

    @property
    def takes_columns(self) -> bool:
        """Whether the sink has a method for columns."""
        return isinstance(self.sink, StatelessSink) and takes_columns(self.sink.impl)

    @property
    def is_resumable(self) -> bool:
        """Whether this is a stateless sink with its position in snapshots."""
        return isinstance(self.sink, StatelessSink) and is_resumable(self.sink.impl)

    @property
    def is_transactional(self) -> bool:
        """Whether this is a stateless sink that is committed with snapshots."""
        return isinstance(self.sink, StatelessSink) and is_transactional(self.sink.impl)

    @property
    def is_on_driver(self) -> bool:
        """Whether the sink writes from the process that started the run (the driver) on every runtime."""
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


LETTERS_OUTPUT = -1
"""The index of the output with the dead letters of a node, beside those that it counts as its outputs."""


@dataclass(frozen=True, slots=True)
class Port:
    """An output of a node, both by index; `LETTERS_OUTPUT` for its dead letters."""

    vertex: int
    output: int = 0


@dataclass(frozen=True, slots=True)
class Vertex:
    """A node with its inputs and the location in the user's code that added it."""

    node: Node
    inputs: tuple[Port, ...]
    location: str | None

    @property
    def timed_by(self) -> tuple[Port, ...]:
        """The inputs whose records and epochs its output has; others only change their values, or are dead letters."""
        inputs = self.inputs[: self.node.times] if isinstance(self.node, StatefulNode) else self.inputs
        return tuple(port for port in inputs if port.output != LETTERS_OUTPUT)

    @property
    def has_letters(self) -> bool:
        """Whether its input consists of the dead letters of other operators. Their stream has no epochs."""
        return any(port.output == LETTERS_OUTPUT for port in self.inputs)


@dataclass(frozen=True, slots=True)
class Mixture:
    """The place where records of different parts merged into a stream that no longer distinguishes them.

    Attributes:
        operator: the operator that merged them.
        location: its line in the user's code; None if unknown.
        sources: the sources of the parts.
        is_merge: whether the operator merges streams; otherwise it sets keys.
        is_of_branches: whether it merges branches of one stream, whose records are then not in their order.
    """

    operator: str
    location: str | None
    sources: frozenset[str]
    is_merge: bool
    is_of_branches: bool = False

    def __str__(self) -> str:
        where = f" [{self.location}]" if self.location else ""
        if self.is_of_branches:
            return f"operator '{self.operator}'{where} merges branches of one stream"
        does = "merges streams" if self.is_merge else "sets keys in place of the parts"
        return f"operator '{self.operator}'{where} {does}"


@dataclass(frozen=True, slots=True)
class Lineage:
    """The sources and parts that give the records of a stream their times.

    Attributes:
        parts: the source whose parts are the keys, or None.
        untimed: the sources whose records have passed no generator of epochs (watermarks).
        mixture: where their parts merged into one stream; None if they did not.
        sender: the last operator whose logic chooses the keys of the messages that it sends, or None.
    """

    parts: str | None = None
    untimed: frozenset[str] = frozenset()
    mixture: Mixture | None = None
    sender: str | None = None


def read_from(source: str, *, keyed: bool) -> Lineage:
    """Return the lineage of a source's records; `keyed` is whether their keys are its parts."""
    return Lineage(source if keyed else None, frozenset({source}))


def timed(lineage: Lineage) -> Lineage:
    """Return the lineage after a generator of epochs."""
    return Lineage(lineage.parts, sender=lineage.sender)


def sent_by(operator: str, lineage: Lineage) -> Lineage:
    """Return the lineage after an operator with logic that sends messages with keys of its choice."""
    return replace(lineage, sender=operator)


def keyed_anew(lineage: Lineage, operator: str, location: str | None) -> Lineage:
    """Return the lineage after an operator that sets keys."""
    mixture = lineage.mixture
    if mixture is None and lineage.parts in lineage.untimed:
        mixture = Mixture(operator, location, lineage.untimed, is_merge=False)
    return Lineage(None, lineage.untimed, mixture)


def merged(lineages: Sequence[Lineage], operator: str, location: str | None) -> Lineage:
    """Return the lineage after an operator that merges streams."""
    untimed = frozenset[str]().union(*(it.untimed for it in lineages))
    parts = {it.parts for it in lineages}
    mixture = next((it.mixture for it in lineages if it.mixture is not None), None)
    if mixture is None and untimed:
        are_branches = len(untimed) == 1 and len(parts) == 1
        mixture = Mixture(operator, location, untimed, is_merge=True, is_of_branches=are_branches)
    sender = next((it.sender for it in lineages if it.sender is not None), None)
    return Lineage(parts.pop() if len(parts) == 1 else None, untimed, mixture, sender)

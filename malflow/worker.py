"""One stage of a program on one logical worker; it knows neither the runtime that hosts it nor files nor threads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, assert_never

from malflow.batch import Batch
from malflow.graph import (
    EpochsNode,
    ExchangeNode,
    KeyNode,
    Node,
    SinkNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    StatelessNode,
    TimestampsNode,
    UnionNode,
)
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.debug import one_by_one, verify, watch
from malflow.operators.endpoints import Source, StatefulSinkWriter, StatelessSinkWriter
from malflow.operators.routing import Merge, Router
from malflow.plan import Program, Step
from malflow.sinks.contract import StatelessSink
from malflow.state import Delta

__all__ = ["Inputs", "Outputs", "Worker"]

Inputs = Sequence[Sequence[Sequence[Batch]]]
"""For each input channel of a stage, and each worker that may have sent, the batches it sent in this tick."""

Outputs = list[list[list[Batch]]]
"""For each output channel of a stage, and each worker, the batches for it."""


class Worker:
    """One stage on one logical worker: ``run`` is a tick. Its `sources` and `sinks` are those of the stage.

    `largest` is the size of the largest batch of the last tick.

    Args:
        program: the whole program.
        stage: which of its stages this worker runs.
        worker_id: which worker this is, ``0..parallelism-1``.
        parallelism: how many workers there are.
        parts: the parts that this worker holds, by source.
        tracked: whether `delta` will be asked for.
        debug: whether to check what costs too much to check always.
    """

    def __init__(
        self,
        program: Program,
        stage: int,
        worker_id: int,
        *,
        parallelism: int,
        parts: Mapping[str, Sequence[Any]],
        tracked: bool = False,
        debug: bool = False,
    ) -> None:
        self.stage = program.stages[stage]
        self.worker_id = worker_id
        self._workers = range(parallelism)
        self._parts = parts
        self._tracked = tracked
        self._debug = debug
        self._active = {
            step.vertex: self._activate(program.vertices[step.vertex].node, step) for step in self.stage.steps
        }
        self._routers = [
            None if channel.partitioner is None else Router(channel.name, channel.partitioner, self._workers)
            for channel in self.stage.outputs
        ]
        self._outputs: Outputs = []
        self.largest = 1
        self._wire()
        operators = [active.operator for active in self._active.values()]
        self.sources = [operator for operator in operators if isinstance(operator, Source)]
        self.sinks = [op for op in operators if isinstance(op, (StatelessSinkWriter, StatefulSinkWriter))]

    def open(self) -> None:
        """Build the readers of the parts, after the state is loaded and before the first tick."""
        for source in self.sources:
            source.open()

    def run(self, inputs: Inputs, ended: Collection[str] = ()) -> Outputs:
        """Take one tick: poll the sources once, and carry everything through the stage.

        Args:
            inputs: what the workers of earlier stages sent.
            ended: the sources that have no unfinished part on any worker.
        """
        self._outputs = [[[] for _ in self._workers] for _ in self.stage.outputs]
        for source in self.sources:
            source.ended = source.context.operator_name in ended
        self._receive(inputs)
        largest = 1
        for active in self._active.values():
            emitted = self._checked(active) if self._debug else active.operator.run(active.edges)
            for batches in emitted:
                for batch, targets in zip(batches, active.targets, strict=True):
                    if batch:
                        largest = max(largest, len(batch))
                        for target in targets:
                            target.append(batch)
            for edge in active.edges:
                edge.clear()
        self.largest = largest
        return self._outputs

    def _checked(self, active: _Active) -> Iterator[Sequence[Batch]]:
        name = active.operator.context.operator_name
        for batch in chain.from_iterable(active.edges):
            verify(batch, name)
        pieces = [[piece for batch in batches for piece in one_by_one(batch)] for batches in active.edges]
        for batches in active.operator.run(pieces):
            yield [watch(batch, name) for batch in batches]

    def delta(self) -> dict[str, Delta]:
        """Give what changed in the state of each operator since the last call. States are live: serialise at once."""
        deltas = {active.state_id: active.operator.delta() for active in self._active.values()}
        return {state_id: delta for state_id, delta in deltas.items() if delta}

    def apply(self, deltas: Mapping[str, Delta]) -> None:
        """Bring the state to where `deltas` left it; operators that are not named in it are left alone."""
        for active in self._active.values():
            if active.state_id in deltas:
                active.operator.apply(deltas[active.state_id])

    def send(self, channel: int, batch: Batch) -> None:
        """Put a batch on an output channel."""
        router = self._routers[channel]
        if router is None:
            self._outputs[channel][self.worker_id].append(batch)
            return
        for worker, part in router.route(batch):
            self._outputs[channel][worker].append(part)

    def _receive(self, inputs: Inputs) -> None:
        for channel, by_worker in zip(self.stage.inputs, inputs, strict=True):
            edges = self._active[channel.target].edges
            if channel.partitioner is not None:
                for edge, batches in zip(edges, by_worker, strict=True):
                    edge.extend(batches)
                continue
            for batches in by_worker:
                edges[channel.edge].extend(batches)

    def _activate(self, node: Node, step: Step) -> _Active:
        context = OperatorContext(
            operator_name=node.name,
            worker_id=self.worker_id,
            workers=self._workers,
            tracked=self._tracked,
            debug=self._debug,
            placement=node.placement if isinstance(node, StatefulNode) else None,
        )
        operator = self._open(node, step, context)
        count = len(self._workers) if isinstance(node, ExchangeNode) else step.edges
        return _Active(_state_id(node), operator, [[] for _ in range(count)], [])

    def _open(self, node: Node, step: Step, context: OperatorContext) -> Operator:
        match node:
            case SourceNode(source=source, keyed=keyed):
                return Source(context, source, keyed=keyed, parts=self._parts.get(node.name, ()))
            case StatelessNode() | KeyNode() | StatefulNode() | TimestampsNode() | EpochsNode() | SplitNode():
                return node.logic(context)
            case ExchangeNode():
                return Merge(context, len(self._workers))
            case UnionNode():
                return Merge(context, step.edges)
            case SinkNode(sink=sink):
                return (
                    StatelessSinkWriter(context, sink)
                    if isinstance(sink, StatelessSink)
                    else StatefulSinkWriter(context, sink)
                )
            case _:
                assert_never(node)

    def _wire(self) -> None:
        for step in self.stage.steps:
            for consumers, channels in zip(step.consumers, step.channels, strict=True):
                targets: list[_Target] = [self._active[vertex].edges[edge] for vertex, edge in consumers]
                targets.extend(_Sender(self, channel) for channel in channels)
                self._active[step.vertex].targets.append(targets)


def _state_id(node: Node) -> str:
    """Name the state of a node: no two of a program have one name; a user's has no line break in it."""
    if isinstance(node, ExchangeNode):
        return f"{node.name}-distribute"
    return f"\n{node.name}" if isinstance(node, UnionNode) else node.name


class _Target(Protocol):
    def append(self, batch: Batch, /) -> None: ...


@dataclass(slots=True)
class _Active:
    """An operator at work: what comes in during a tick, and where what it gives goes."""

    state_id: str
    operator: Operator
    edges: list[list[Batch]]
    targets: list[Iterable[_Target]]


@dataclass(frozen=True, slots=True)
class _Sender:
    worker: Worker
    channel: int

    def append(self, batch: Batch, /) -> None:
        """Send a batch to a later stage."""
        self.worker.send(self.channel, batch)

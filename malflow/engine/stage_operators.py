"""The operators of a stage on one worker, and the edges between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from malflow.engine.facts import Facts
from malflow.engine.output_channels import OutputChannels, Sender, Target
from malflow.engine.part_placement import Parts
from malflow.engine.plan import Program, Stage, Step, keys_of_given
from malflow.nodes import (
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
from malflow.operators.epochs.generator import GenerateEpochs
from malflow.operators.failures.guard import Guard, guard_of
from malflow.operators.failures.letters import Letters
from malflow.operators.guarded import guarded
from malflow.operators.hosting.sink import SinkWriter, open_sink
from malflow.operators.hosting.source import Source
from malflow.operators.routing import Merge
from malflow.records.batch import Batch

__all__ = ["Active", "StageOperators"]


@dataclass(slots=True)
class Active:
    """An operator during a tick: its input, and the targets of its output and of its dead letters.

    The edges of an exchange, one for each worker, are made by its first input: workers that only hold states need none.

    Attributes:
        given: the number of records that have left each output.
        given_keys: the keys of these numbers in reports.
        busy: the nanoseconds that the operator was busy since its facts were last taken.
        batches: the number of non-empty batches since then.
        largest: the number of records in the largest of them.
    """

    node: Node
    operator: Operator
    edges: list[list[Batch]]
    targets: list[list[Target]]
    exchange: bool
    given: list[int]
    given_keys: Sequence[str]
    letter_targets: list[Target] = field(default_factory=list)
    busy: int = 0
    batches: int = 0
    largest: int = 0

    def count_taken(self) -> int:
        """Return the number of records in the input, and count its batches."""
        taken = 0
        for batches in self.edges:
            for batch in batches:
                if size := len(batch):
                    taken += size
                    self.batches += 1
                    self.largest = max(self.largest, size)
        return taken

    def take_facts(self) -> Facts:
        """Return the facts since the last call, except those about polls."""
        batches, largest = (0, 0) if self.exchange else (self.batches, self.largest)
        facts = Facts(self.busy, batches, largest, self.operator.calls)
        self.busy = self.batches = self.largest = self.operator.calls = 0
        return facts

    def count_given(self, counts: dict[str, int]) -> None:
        """Move the numbers of records that have left to the counts of a tick."""
        given = self.given
        for port, count in enumerate(given):
            key = self.given_keys[port]
            if count or key in counts:  # a step of the operator, under its name, has counted its output
                counts[key] = count
                given[port] = 0


class StageOperators:
    """The operators of a stage on one worker, in the order in which records pass them, connected by their edges.

    Args:
        program: the whole program.
        stage: the stage.
        parts: the parts of each source that each worker holds.
        output: takes the batches that leave the stage.
        new_context: makes the context of an operator.

    Attributes:
        active: the operators, by vertex.
        sources: the operators that host a source.
        sinks: the operators that host a sink.
        generators: the operators that issue epochs, by vertex.
        letters: the dead letters of each operator that can have them, by vertex.
    """

    def __init__(
        self,
        program: Program,
        stage: Stage,
        parts: Parts,
        output: OutputChannels,
        new_context: Callable[[Node], OperatorContext],
    ) -> None:
        self._program = program
        self._parts = parts
        self.sources: list[Source] = []
        self.sinks: list[SinkWriter] = []
        self.generators: dict[int, GenerateEpochs] = {}
        self.letters: dict[int, Letters] = {}
        self.active = {
            step.vertex: self._activate(step, new_context(program.vertices[step.vertex].node)) for step in stage.steps
        }
        self._wire(stage, output)
        sources = {source.context.operator_name: source for source in self.sources}
        for generator in self.generators.values():
            generator.join_source(sources)

    def _activate(self, step: Step, context: OperatorContext) -> Active:
        node = self._program.vertices[step.vertex].node
        operator = self._build(node, step, context)
        exchange = node.starts_stage
        edges: list[list[Batch]] = [[] for _ in range(0 if exchange else step.edges)]
        return Active(node, operator, edges, [], exchange, [0] * node.outputs, keys_of_given(node))

    def _build(self, node: Node, step: Step, context: OperatorContext) -> Operator:
        match node:
            case SourceNode(source=source, keyed=keyed):
                operator = Source(context, source, keyed=keyed, parts=self._parts[node.name][context.worker_id])
                self.sources.append(operator)
                if node.on_error is not None:
                    self.letters[step.vertex] = letters = Letters(context, None)
                    policy = self._program.policy(node)
                    operator.guard = None if policy is None else Guard(operator, policy, letters)
                return operator
            case StatelessNode() | KeyNode() | StatefulNode() | TimestampsNode() | SplitNode():
                if node.on_error is None:
                    return node.logic(context)
                self.letters[step.vertex] = letters = Letters(context, node.placed_by)
                policy = self._program.policy(node)
                return node.logic(context) if policy is None else guarded(node.logic, context, policy, letters)
            case EpochsNode():
                self.generators[step.vertex] = generator = node.logic(context)
                return generator
            case ExchangeNode():
                return Merge(context, len(context.workers), in_turn=step.timed)
            case UnionNode():
                return Merge(context, step.edges, in_turn=True)
            case SinkNode(sink=sink):
                policy = self._program.policy(node)
                if node.on_error is not None:
                    self.letters[step.vertex] = Letters(context, None)
                self.sinks.append(open_sink(context, sink, policy, self.letters.get(step.vertex)))
                return self.sinks[-1]
            case _:
                assert_never(node)

    def _wire(self, stage: Stage, output: OutputChannels) -> None:
        for step in stage.steps:
            for consumers, channels in zip(step.consumers, step.channels, strict=True):
                targets: list[Target] = [self.active[vertex].edges[edge] for vertex, edge in consumers]
                targets.extend(Sender(output, channel) for channel in channels)
                self.active[step.vertex].targets.append(targets)
            active = self.active[step.vertex]
            active.letter_targets += [self.active[vertex].edges[edge] for vertex, edge in step.letter_consumers]
            active.letter_targets += [Sender(output, channel) for channel in step.letter_channels]
            guard = guard_of(active.operator)
            if active.letter_targets and guard is not None:
                guard.taken = []

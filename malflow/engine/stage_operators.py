"""The operators of a stage on one worker, and the channels by which it sends batches to later stages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from traceback import walk_tb
from typing import Any, Protocol, TypeVar, assert_never

from malflow.diagnostics import is_of_malflow
from malflow.engine.parts.places import PartPlaces, Parts
from malflow.engine.plan import Program, Stage, Step, fields_of_source, keys_of_given
from malflow.engine.reports import Facts
from malflow.engine.state_specs import placement_of
from malflow.errors import MalflowError
from malflow.message import MAX
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
from malflow.operators.epochs.fewer import FewerEpochs
from malflow.operators.epochs.generator import GenerateEpochs
from malflow.operators.failures.dead_letters import Letters
from malflow.operators.failures.guard import Guard
from malflow.operators.failures.surviving import guarded
from malflow.operators.hosting.sink import SinkWriter, open_sink
from malflow.operators.hosting.source import Source, reading
from malflow.operators.key_sampling import HotSample
from malflow.operators.routing import Merge, Router
from malflow.records.batch import Batch

__all__ = [
    "Active",
    "OutputChannels",
    "Outputs",
    "Sender",
    "StageOperators",
    "Target",
    "act_for",
]

R = TypeVar("R")

_log = logging.getLogger("malflow.runtime")

Outputs = dict[int, list[list[Batch]]]
"""The batches for each worker, by the number of the output channel."""


class Target(Protocol):
    """A receiver of an operator's output: an edge of an operator of the same stage, a channel, or an observer."""

    def append(self, batch: Batch, /) -> None:
        """Receive a batch."""


class OutputChannels:
    """The output channels of a stage on one worker. Accumulators are held back until the end of a tick.

    Args:
        stage: the stage.
        worker: the index of the worker.
        workers: all workers.
        debug: whether to run the checks that are too slow for production.
    """

    def __init__(self, stage: Stage, worker: int, workers: Sequence[int], *, debug: bool) -> None:
        self._channels = stage.outputs
        self._worker = worker
        self._workers = workers
        self._routers = {
            channel.number: Router(
                channel.name,
                channel.partitioner,
                workers,
                channel,
                fields=None if debug else channel.fields,
                is_fixed=None if channel.local is None else _has_accumulated,
            )
            for channel in stage.outputs
            if channel.partitioner is not None
        }
        self._names = {channel.number: channel.name for channel in stage.outputs}
        self._locals = {
            channel.number: channel.local()
            for channel in stage.outputs
            if channel.local is not None and len(workers) > 1 and not debug
        }
        self._fewer = {
            channel.number: FewerEpochs(channel.tells_by)
            for channel in stage.outputs
            if channel.tells_by is not None and channel.partitioner is not None and len(workers) > 1 and not debug
        }
        self._outputs = self._nothing()

    def send(self, channel: int, batch: Batch) -> None:
        """Send a batch through a channel."""
        if len(batch.epochs) > 1 and channel in self._fewer:
            batch = self._fewer[channel].of(batch)
        local = self._locals.get(channel)
        if local is None:
            self._route(channel, batch)
            return
        for passing in local.take(batch):
            self._route(channel, passing)

    def drain(self) -> Outputs:
        """Return the output since the last call, with the accumulators that were held back."""
        for channel, local in self._locals.items():
            for batch in local.end_tick():
                self._route(channel, batch)
        return self.take()

    def take(self) -> Outputs:
        """Return the output since the last call."""
        outputs, self._outputs = self._outputs, self._nothing()
        return outputs

    def take_saved(self) -> Iterator[tuple[str, int]]:
        """Yield each operator whose channel pre-aggregates, and how many records that has saved since the last call."""
        return ((local.operator, local.take_saved()) for local in self._locals.values())

    def take_hot(self) -> dict[str, HotSample]:
        """Return the samples of the keys sent since the last call, by the names of the channels that have any."""
        if not self._routers:
            return {}
        hot = {self._names[number]: router.hot.take() for number, router in self._routers.items()}
        return {name: it for name, it in hot.items() if it is not None}

    def _route(self, channel: int, batch: Batch) -> None:
        router = self._routers.get(channel)
        if router is None:
            self._outputs[channel][self._worker].append(batch)
            return
        for worker, part in router.route(batch):
            self._outputs[channel][worker].append(part)

    def _nothing(self) -> Outputs:
        return {channel.number: [[] for _ in self._workers] for channel in self._channels}


def _has_accumulated(values: Sequence[Any]) -> bool:
    from malflow.aggregators.exactness import has_accumulated  # noqa: PLC0415 - only programs that use it need it

    return has_accumulated(values)


@dataclass(frozen=True, slots=True)
class Sender:
    """A channel to a later stage, as the target of an operator.

    Attributes:
        channels: the output of the stage.
        number: the number of the channel.
    """

    channels: OutputChannels
    number: int

    def append(self, batch: Batch, /) -> None:
        """Send a batch to a later stage."""
        self.channels.send(self.number, batch)


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
        made: the number of records that came as columns and became objects since then.
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
    made: int = 0

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

    def emit(self, batches: Sequence[Batch]) -> None:
        """Pass on output, one batch for each output of the operator."""
        for port, (batch, targets) in enumerate(zip(batches, self.targets, strict=True)):
            self.given[port] += len(batch)
            for target in targets if batch else ():
                target.append(batch)

    def post_letters(self, *, final: bool) -> None:
        """Pass on the dead letters that the operator has made; the only epoch of their stream is the last."""
        guard = self.operator.guard
        letters = [] if guard is None or guard.taken is None else guard.taken
        batch = Batch(None, [*letters], [it.at for it in letters], [(len(letters), MAX)] if final else ())
        letters.clear()
        for target in self.letter_targets if batch else ():
            target.append(batch)

    def take_facts(self) -> Facts:
        """Return the facts since the last call, except those about polls."""
        batches, largest = (0, 0) if self.exchange else (self.batches, self.largest)
        operator = self.operator
        facts = Facts(self.busy, batches, largest, operator.calls, made=self.made, demotions=operator.demotions)
        self.busy = self.batches = self.largest = self.made = operator.calls = operator.demotions = 0
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
        places: places the keys that are parts.
        output: takes the batches that leave the stage.
        context: the context of all operators. Each gets its name and its partitioner.
        errors: the exceptions that are attributed to user code.

    Attributes:
        active: the operators with their input and targets, by vertex.
        operators: the operators, by vertex.
        errors: as above.
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
        places: PartPlaces,
        output: OutputChannels,
        context: OperatorContext,
        errors: type[BaseException],
    ) -> None:
        self.errors = errors
        self._program = program
        self._parts = parts
        self._places = places
        self.sources: list[Source] = []
        self.sinks: list[SinkWriter] = []
        self.generators: dict[int, GenerateEpochs] = {}
        self.letters: dict[int, Letters] = {}
        self.active = {step.vertex: self._activate(step, context) for step in stage.steps}
        self.operators = {vertex: active.operator for vertex, active in self.active.items()}
        self._wire(stage, output)
        sources = {source.context.operator_name: source for source in self.sources}
        for generator in self.generators.values():
            generator.join_source(sources)

    def act(self, operator: Operator, act: Callable[..., R], *arguments: Any) -> R:
        """Run an action of an operator; errors of user code name the operator: see `act_for`."""
        return act_for(operator, self.errors, act, *arguments)

    def _activate(self, step: Step, context: OperatorContext) -> Active:
        node = self._program.vertices[step.vertex].node
        placement = self._places.bound(placement_of(node), node.name)
        operator = self._build(node, step, replace(context, operator_name=node.name, placement=placement))
        exchange = node.starts_stage
        edges: list[list[Batch]] = [[] for _ in range(0 if exchange else step.edges)]
        return Active(node, operator, edges, [], exchange, [0] * node.outputs, keys_of_given(node))

    def _build(self, node: Node, step: Step, context: OperatorContext) -> Operator:
        match node:
            case SourceNode(source=source, keyed=keyed):
                fields = None if context.debug else fields_of_source(self._program, step.vertex)
                parts = self._parts[node.name][context.worker_id]
                operator = Source(context, reading(source, fields), keyed=keyed, parts=parts)
                self.sources.append(operator)
                if node.on_error is not None:
                    self.letters[step.vertex] = letters = Letters(context, None)
                    policy = self._program.policy(node)
                    operator.guard = None if policy is None else Guard(operator, policy, letters)
                return operator
            case StatelessNode() | KeyNode() | StatefulNode() | TimestampsNode() | SplitNode():
                if node.on_error is None:
                    return node.logic(context)
                self.letters[step.vertex] = letters = Letters(context, self._places.bound(node.placed_by, node.name))
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
            guard = active.operator.guard
            if active.letter_targets and guard is not None:
                guard.taken = []


def act_for(operator: Operator, kind: type[BaseException], act: Callable[..., R], *arguments: Any) -> R:
    """Run an action of an operator; errors of user code, including comparisons and hashes, name the operator.

    Args:
        operator: the operator.
        kind: the exceptions to attribute to the operator; others, such as KeyboardInterrupt, propagate unchanged.
        act: the action.
        arguments: the arguments of `act`.

    Raises:
        OperatorError: if user code fails, unless malflow has already raised an error for it.
        SystemExit: if user code asks for the end of the process; a line of the log names the operator.
    """
    try:
        return act(*arguments)
    except MalflowError:
        raise
    except kind as error:
        raise operator.error(error) from error
    except SystemExit as error:
        _log_exit(operator, error)
        raise


def _log_exit(operator: Operator, error: SystemExit) -> None:
    """Name the operator that ends the process, unless a signal ends it."""
    frames = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    if not is_of_malflow(frames[-1]):
        _log.warning("The process ends, as user code asks for it: %s", operator.error(error))

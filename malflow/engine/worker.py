"""One stage of a program on one logical worker, independent of the runtime that hosts it, of files and of threads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar

from malflow.engine.dead_letters import WorkerReplays
from malflow.engine.parts.places import PartPlaces, Parts, everywhere
from malflow.engine.plan import Program, with_columns_kept
from malflow.engine.reports import CLOCK
from malflow.engine.stage_operators import Active, OutputChannels, Outputs, StageOperators, Target, act_for
from malflow.engine.worker_reports import WorkerReports
from malflow.engine.worker_states import WorkerStates
from malflow.engine.worker_time import WorkerTime
from malflow.errors import release_all
from malflow.event_time.tick import Tick
from malflow.nodes import ExchangeNode, KeyNode, Port, SinkNode, SourceNode, StatefulNode, UnionNode
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.debug import Trail, verify, verify_kinds, verify_placement, watch
from malflow.operators.hosting.source import Source
from malflow.operators.waiting import Waiting
from malflow.records.batch import Batch
from malflow.records.columnar import is_columnar, rows_made

__all__ = ["Inputs", "Outputs", "Worker"]

R = TypeVar("R")

Inputs = Mapping[int, Sequence[Sequence[Batch]]]
"""The batches that each worker sent in this tick, by the number of the input channel."""

_NO_TICK = Tick()

_PLACING = (SourceNode, KeyNode, ExchangeNode, UnionNode)
"""The nodes whose output has the keys that determine workers."""


class Worker:
    """One stage on one logical worker: ``run`` is a tick.

    The worker opens, runs and closes its operators. Between runs, `states` and `time` answer for them. `reports` counts
    each run, and reports the tick once its operators are flushed.

    Attributes:
        stage: the stage.
        worker_id: the index of this worker.
        operators: the operators of the stage, in the order in which records pass them.
        sources: the operators that host a source.
        sinks: the operators that host a sink.
        flushing: the operators that have something to flush.
        running: the operator that is running now; for other threads.
        states: the states, and the finished parts of sources.
        reports: the counts of the last run, and the report of the tick.
        time: the progress in event time.

    Args:
        program: the whole program.
        stage: the index of this worker's stage.
        worker_id: the index of this worker, ``0..parallelism-1``.
        parallelism: the number of workers.
        parts: the parts of each source that each worker holds.
        waiting: the parts that no worker holds yet, of sources with parts that are handed out.
        tracked: whether to track changes for `WorkerStates.deltas`.
        debug: whether to run the checks that are too slow for production.
        errors: the exceptions that are attributed to user code; BaseException in processes that malflow owns, in which
            SystemExit and KeyboardInterrupt in user code are operator errors.
        pickle_reader: pickles a reader without a position; set where workers move between processes at any time.
    """

    def __init__(
        self,
        program: Program,
        stage: int,
        worker_id: int,
        *,
        parallelism: int,
        parts: Parts,
        waiting: Mapping[str, Collection[Any]] = MappingProxyType({}),
        tracked: bool = False,
        debug: bool = False,
        errors: type[BaseException] = Exception,
        pickle_reader: Callable[[Any], bytes] | None = None,
    ) -> None:
        self.stage = program.stages[stage]
        self.worker_id = worker_id
        self.running: Operator | None = None
        self._workers = range(parallelism)
        self._debug = debug
        self._errors = errors
        self._channels = program.channels
        self._output = OutputChannels(self.stage, worker_id, self._workers, debug=debug)
        context = OperatorContext("", worker_id, self._workers, tracked, debug, pickle_reader=pickle_reader)
        self._places = PartPlaces(parallelism, program.part_groups, parts)
        made = StageOperators(program, self.stage, parts, self._places, self._output, context, errors)
        self.sources, self.sinks, self._active, self._act = made.sources, made.sinks, made.active, made.act
        self.operators = [*made.operators.values()]
        self.flushing = [it for it in self.operators if type(it).flush is not Operator.flush]
        self._guards = [it.guard for it in self.operators if it.guard is not None]
        self._clocked = [it for it in self.operators if type(it).begin_tick is not Operator.begin_tick]
        kept = with_columns_kept(program) if debug else frozenset[int]()
        self._keeping = {active.operator for vertex, active in self._active.items() if vertex in kept}
        self._active_of = {active.operator: active for active in self._active.values()}
        self._replays = WorkerReplays(program, made)
        self.states = WorkerStates(made)
        self.time = WorkerTime(program, worker_id, self._workers, made)
        self.reports = WorkerReports(program, worker_id, made, self._output, self.time, self._replays)
        self._waited: frozenset[str] = frozenset()
        self.set_parts(parts, {}, waiting)

    def set_parts(
        self,
        parts: Parts,
        discovered: Mapping[str, Collection[Any]],
        waiting: Mapping[str, Collection[Any]] = MappingProxyType({}),
    ) -> None:
        """Set the parts of each source that each worker holds, between ticks; `open` builds the missing readers.

        Args:
            parts: the parts, including all that this worker reads.
            discovered: the parts that appeared after the job's first start.
            waiting: the parts that no worker holds yet, of sources with parts that are handed out.
        """
        for source in self.sources:
            name = source.context.operator_name
            source.set_parts(parts[name][self.worker_id], discovered.get(name, ()), waiting.get(name, ()))
        self._places.set(parts)
        self._waited = frozenset(waiting)
        self.time.set_parts(everywhere(parts, waiting))

    def note_waiting(self, names: Collection[str]) -> None:
        """Note the sources with parts that no worker has got yet, before a tick that reports the times before it."""
        for source in self.sources:
            source.may_get_more = source.context.operator_name in names

    def _take_parts(self, tick: Tick) -> None:
        """Take the parts that are handed out to this worker, and note where the others are."""
        for source in self.sources:
            name = source.context.operator_name
            if name in self._waited:
                new = tick.given[name][self.worker_id] if name in tick.given else ()
                self._act(source, partial(source.take_parts, new, may_get_more=name in tick.waiting))
        self._places.add(tick.given)
        self._waited = tick.waiting

    @property
    def parallelism(self) -> int:
        """The number of workers."""
        return len(self._workers)

    @property
    def shared(self) -> list[Operator]:
        """The operators with `flush` and `close` that act on an object shared with other workers of the process."""
        return [operator for operator in self.operators if operator.resource is not operator]

    def act(self, operator: Operator, act: Callable[..., R], *arguments: Any) -> R:
        """Run an action of an operator; errors of user code name the operator."""
        return self._act(operator, act, *arguments)

    def open(self) -> None:
        """Open the operators, after loading the state and before the first tick."""
        for operator in self.operators:
            self._act(operator, operator.open)
        for source in self.sources if self._waited else ():  # some may have come to it in another process
            held = [source.parts if at == self.worker_id else () for at in self._workers]
            self._places.add({source.context.operator_name: held})

    def reopen(self, source: Source) -> None:
        """Build the readers of a source's new parts, between ticks."""
        self._act(source, source.open)

    def flush(self) -> None:
        """Make all output so far visible."""
        for operator in self.flushing:
            self.flush_operator(operator)

    def flush_operator(self, operator: Operator) -> None:
        """Make all output of an operator so far visible."""
        self.running, began = operator, CLOCK()
        self._act(operator, operator.flush)
        self._active_of[operator].busy += CLOCK() - began
        self.running = None

    def park(self) -> None:
        """Close, but keep readers that can continue from the positions that will be loaded before the next `open`."""
        release_all(partial(self._act, operator, operator.park) for operator in self._own)

    def close(self) -> None:
        """Close the operators except for `shared`; `open` and the next records reacquire their resources."""
        release_all(partial(self._act, operator, operator.close) for operator in self._own)

    @property
    def _own(self) -> list[Operator]:
        return [operator for operator in self.operators if operator.resource is operator]

    @property
    def takes_pieces(self) -> bool:
        """Whether several runs may share a tick's epoch-free input with the same result.

        The order must be kept: by input, and by worker.
        """
        return all(active.operator.takes_pieces for active in self._active.values())

    def run(self, inputs: Inputs, tick: Tick = _NO_TICK, *, ends: bool = True) -> Outputs:
        """Process one tick: poll the sources once, and pass all records through the stage.

        Args:
            inputs: the batches from the workers of earlier stages.
            tick: the tick. In the final tick, the sources emit only the epoch `MAX`; no deltas follow it.
            ends: whether the tick ends with it; otherwise `drain` follows the tick's last run.
        """
        self._begin(tick)
        self._receive(inputs)
        replays = self._replays.requests(tick)
        counts: dict[str, int] = {}
        largest, before, made = 1, CLOCK(), rows_made()
        for vertex, active in self._active.items():
            self.running = active.operator
            taken = active.count_taken()
            if replays:
                taken += self._act(active.operator, self._replays.serve, vertex, replays)
            largest = max(largest, act_for(active.operator, self._errors, self._carry, active))
            if active.letter_targets:
                active.post_letters(final=tick.final)
            for edge in active.edges:
                edge.clear()
            if not active.exchange:
                counts[active.operator.context.operator_name] = taken
                active.count_given(counts)
            now = CLOCK()
            active.busy += now - before
            before = now
            if (count := rows_made()) != made:
                active.made += count - made
                made = count
        self.running = None
        self.reports.note(counts, largest, before)
        return self._output.drain() if ends else self._output.take()

    def _begin(self, tick: Tick) -> None:
        if self._waited:
            self._take_parts(tick)
        for source in self.sources:
            source.final, source.pauses = tick.final, not tick.polls
        self.time.note_ended(tick.ended, final=tick.final)
        self.time.finished = tick.finished
        for guard in self._guards:
            guard.begin_tick(tick)
        for operator in self._clocked:
            self._act(operator, operator.begin_tick, tick)
        if tick.lifts:
            self.time.lift(tick.lifts)

    def drain(self) -> Outputs:
        """Return the rest of the tick's output: the accumulators that were held back."""
        return self._output.drain()

    def has(self, vertex: int) -> bool:
        """Whether the stage has an operator, by its vertex."""
        return vertex in self._active

    def targets_of(self, port: Port) -> list[Target]:
        """Return the targets of an output. They may be changed between ticks."""
        return self._active[port.vertex].targets[port.output]

    def _carry(self, active: Active) -> int:
        """Run an operator and pass on its output; return the size of the largest batch."""
        largest, given = 1, active.given
        for batches in self._checked(active) if self._debug else active.operator.run(active.edges):
            for port, (batch, targets) in enumerate(zip(batches, active.targets, strict=True)):
                if batch:
                    size = len(batch)
                    given[port] += size
                    largest = max(largest, size)
                    if len(targets) > 1 and is_columnar(batch.values):
                        _share_out(batch, targets)
                        continue
                    for target in targets:
                        target.append(batch)
        return largest

    def _checked(self, active: Active) -> Iterator[Sequence[Batch]]:
        name = active.operator.context.operator_name
        for batch in chain.from_iterable(active.edges):
            verify(batch, name)
            verify_kinds(batch, active.operator, at_the_end=isinstance(active.node, SinkNode))
            if isinstance(active.node, StatefulNode):
                verify_placement(batch, active.operator)
        if active.operator.takes_batches:
            for batches in active.operator.run(active.edges):
                yield [watch(batch, name) for batch in batches]
            return
        trails = [Trail(batches, keeps_columns=active.operator in self._keeping) for batches in active.edges]
        if isinstance(active.node, _PLACING) or len(trails) > 1:
            for batches in active.operator.run([trail.pieces for trail in trails]):
                yield [watch(batch, name) for batch in batches]
            return
        for batches in active.operator.run(trails):
            yield [watch(batch, name, trails[0].placed) for batch in batches]

    def _receive(self, inputs: Inputs) -> None:
        for number, by_worker in inputs.items():
            channel = self._channels[number]
            edges = self._active[channel.target].edges
            if channel.partitioner is not None:
                edges.extend([] for _ in range(len(edges), len(by_worker)))
                for edge, batches in zip(edges, by_worker, strict=True):
                    edge.extend(batches)
                continue
            for batches in by_worker:
                edges[channel.edge].extend(batches)

    def held(self) -> dict[str, Waiting]:
        """Return the open results of operators. The end of the input would emit them."""
        held = {it.context.operator_name: self._act(it, it.held) for it in self.operators}
        return {name: it for name, it in held.items() if it is not None}


def _share_out(batch: Batch, targets: Sequence[Target]) -> None:
    """Append a batch of columns to several targets. Where one makes rows, the others keep the columns."""
    for number, target in enumerate(targets):
        target.append(batch if not number or not is_columnar(batch.values) else batch.with_values(batch.values.apart()))

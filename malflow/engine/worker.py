"""One stage of a program on one logical worker, independent of the runtime that hosts it, of files and of threads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from malflow.engine.dead_letters import reached_by, replay, total
from malflow.engine.parts import Parts, Place
from malflow.engine.plan import Program, key_of_count
from malflow.engine.reports import CLOCK, LEAST_BUSY, FactPacing, Facts, Report, merge_facts
from malflow.engine.stage_operators import Active, OutputChannels, Outputs, StageOperators, Target
from malflow.engine.state_specs import hidden_id, placement_of, state_id
from malflow.engine.worker_time import WorkerTime
from malflow.errors import MalflowError, release_all
from malflow.event_time.tick import Tick
from malflow.failures import Replay, Replayed
from malflow.message import MAX
from malflow.nodes import (
    ExchangeNode,
    KeyNode,
    Node,
    Port,
    SinkNode,
    SourceNode,
    StatefulNode,
    UnionNode,
)
from malflow.operators.contract import Operator, OperatorContext, StateKeeper
from malflow.operators.debug import Trail, verify, verify_kinds, verify_placement, watch
from malflow.operators.failures.letters import LETTERS
from malflow.operators.hosting.parts import PartOperator
from malflow.operators.hosting.source import Source
from malflow.operators.waiting import OperatorTime, Reached, Waiting
from malflow.records.batch import Batch
from malflow.states.keyed import Delta
from malflow.states.paned import OperatorState

__all__ = ["Inputs", "Outputs", "Worker", "act_for"]

R = TypeVar("R")

Inputs = Mapping[int, Sequence[Sequence[Batch]]]
"""The batches that each worker sent in this tick, by the number of the input channel."""

_NO_TICK = Tick()

_PLACING = (SourceNode, KeyNode, ExchangeNode, UnionNode)
"""The nodes whose output has the keys that determine workers."""


class Worker:
    """One stage on one logical worker: ``run`` is a tick.

    `largest` is the size of the largest batch of the last tick. `counts` has the number of records that each operator
    processed and each source emitted, those that left it, and the counters that operators have; `gauges` has their
    gauges: see `malflow.engine.plan.key_of_count`. `lateness` has the greatest lateness at each generator that had
    late records.

    Attributes:
        operators: the operators of the stage, in the order in which records pass them.
        sources: the operators that host a source.
        sinks: the operators that host a sink.
        flushing: the operators that have something to flush.
        running: the operator that is running now; for other threads.
        errors: the exceptions that are attributed to user code; BaseException in processes that malflow owns, in which
            SystemExit and KeyboardInterrupt in user code are operator errors.

    Args:
        program: the whole program.
        stage: the index of this worker's stage.
        worker_id: the index of this worker, ``0..parallelism-1``.
        parallelism: the number of workers.
        parts: the parts of each source that each worker holds.
        tracked: whether to track changes for `delta`.
        debug: whether to run the checks that are too slow for production.
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
        tracked: bool = False,
        debug: bool = False,
        pickle_reader: Callable[[Any], bytes] | None = None,
    ) -> None:
        self.stage = program.stages[stage]
        self._program = program
        self.worker_id = worker_id
        self._workers = range(parallelism)
        self._parts = parts
        self._tracked = tracked
        self._debug = debug
        self._pickle_reader = pickle_reader
        self.errors: type[BaseException] = Exception if pickle_reader is None else BaseException
        self._channels = program.channels
        self._lifts_silent = program.lifts_silent
        self._output = OutputChannels(self.stage, worker_id, self._workers, debug=debug)
        built = StageOperators(program, self.stage, parts, self._output, self._context_of)
        self.sources, self.sinks = built.sources, built.sinks
        self._active, self._generators, self._letters = built.active, built.generators, built.letters
        self.largest = 1
        self.counts: dict[str, int] = {}
        self.gauges: dict[str, int] = {}
        self.lateness: dict[str, Any] = {}
        self._replayed_in = 0
        self._replayed: dict[str, Replayed] = {}
        self.operators = [active.operator for active in self._active.values()]
        self._ended = 0
        self.running: Operator | None = None
        self._pacing = FactPacing()
        self._active_of = {active.operator: active for active in self._active.values()}
        self._polling = [(source, self._active_of[source]) for source in self.sources]
        self.flushing = [it for it in self.operators if type(it).flush is not Operator.flush]
        self._guards = [(it.context.operator_name, it.guard) for it in self.operators if it.guard is not None]
        self._keepers = self._list_keepers()
        self._clocked = [it for it in self.operators if type(it).begin_tick is not Operator.begin_tick]
        counting = [(it.operator, program.counts(it.node)) for it in self._active.values()]
        self._counting = [(operator, own) for operator, own in counting if own]
        self._time = WorkerTime(
            program,
            worker_id,
            self._workers,
            {vertex: active.operator for vertex, active in self._active.items()},
            self._generators,
        )
        self._time.set_parts(parts)

    def set_parts(self, parts: Parts, discovered: Mapping[str, Collection[Any]]) -> None:
        """Set the parts of each source that each worker holds, between ticks; `open` builds the missing readers.

        Args:
            parts: the parts, including all that this worker reads.
            discovered: the parts that appeared after the job's first start.
        """
        self._parts = parts
        for source in self.sources:
            name = source.context.operator_name
            source.set_parts(parts[name][self.worker_id], discovered.get(name, ()))
        self._time.set_parts(parts)

    @property
    def parallelism(self) -> int:
        """The number of workers."""
        return len(self._workers)

    def _context_of(self, node: Node) -> OperatorContext:
        return OperatorContext(
            operator_name=node.name,
            worker_id=self.worker_id,
            workers=self._workers,
            tracked=self._tracked,
            debug=self._debug,
            placement=placement_of(node),
            pickle_reader=self._pickle_reader,
        )

    @property
    def shared(self) -> list[Operator]:
        """The operators with `flush` and `close` that act on an object shared with other workers of the process."""
        return [operator for operator in self.operators if operator.resource is not operator]

    def open(self) -> None:
        """Open the operators, after loading the state and before the first tick."""
        for operator in self.operators:
            self._act(operator, operator.open)

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
        for source in self.sources:
            source.final, source.pauses = tick.final, not tick.polls
        self._time.note_ended(tick.ended, final=tick.final)
        self.note_finished(tick.finished)
        for _, guard in self._guards:
            guard.begin_tick(tick)
        for operator in self._clocked:
            self._act(operator, operator.begin_tick, tick)
        if tick.lifts:
            self._time.lift(tick.lifts)
        self._receive(inputs)
        largest = 1
        self.counts, self.lateness = {}, {}
        replays = tick.replays if tick.number != self._replayed_in else ()  # once a tick, however many runs share it
        self._replayed_in = tick.number
        before = CLOCK()
        for vertex, active in self._active.items():
            self.running = active.operator
            taken = active.count_taken()
            if replays and vertex in self._letters:
                taken += self._act(active.operator, self._replay, vertex, active, replays)
            largest = max(largest, act_for(active.operator, self.errors, self._carry, active))
            if active.letter_targets:
                self._post_letters(active, final=tick.final)
            for edge in active.edges:
                edge.clear()
            if not active.exchange:
                self.counts[active.operator.context.operator_name] = taken
                active.count_given(self.counts)
            now = CLOCK()
            active.busy += now - before
            before = now
        self._ended, self.running = before, None
        self._count()
        self.largest = largest
        return self._output.drain() if ends else self._output.take()

    def drain(self) -> Outputs:
        """Return the rest of the tick's output: the accumulators that were held back."""
        return self._output.drain()

    def _count(self) -> None:
        """Record the tick's counts of sources, and of operators that have counters and gauges."""
        for source, active in self._polling:
            self.counts[source.context.operator_name] = source.emitted
            if source.emitted:
                active.batches += 1
                active.largest = max(active.largest, source.emitted)
        for name, saved in self._output.take_saved():
            self.counts[name] = self.counts.get(name, 0) + saved
        for generator in self._generators.values():
            if (lateness := generator.take_lateness()) is not None:
                self.lateness[generator.context.operator_name] = lateness
        for operator, own in self._counting:
            name, counters, gauges = operator.context.operator_name, operator.take_counts(), operator.gauges()
            self.counts.update({key_of_count(name, it): counters[it] for it in own.counters})
            self.gauges.update({key_of_count(name, it): gauges[it] for it in own.gauges})

    def report(self, tick: Tick) -> Report:
        """Return the report of the tick that `run` has processed, after the operators were flushed."""
        report = Report(self.worker_id, self.counts, self.gauges, self.lateness, largest=self.largest)
        if self._guards:
            failures = {name: guard.take_failures() for name, guard in self._guards}
            report.failures = {name: it for name, it in failures.items() if it is not None}
        if self._replayed:
            report.replayed, self._replayed = self._replayed, {}
        if tick.finished or self._lifts_silent:
            report.reached = self.reached()
        report.hot = self._output.take_hot()
        if self._pacing.is_due(self._ended) or tick.final:
            report.facts = self._take_facts()
        if not self.sources:
            return report
        report.polled = sum(source.polled for source in self.sources)
        report.largest_poll = max(source.polled for source in self.sources)
        report.emitting = [it.context.operator_name for it in self.sources if it.emitted]
        report.live = [it.context.operator_name for it in self.sources if not it.is_finished]
        report.skipped = max(source.take_skipped() for source in self.sources)
        if not tick.final:
            report.lags = {it.context.operator_name: it.lags() for it in self.sources if it.tells_lag}
            report.shares = {it.context.operator_name: it.share() for it in self.sources if it.tells_share}
        return report

    def _take_facts(self) -> dict[str, Facts]:
        """Return the facts since the last call of the operators that were active."""
        facts: dict[str, Facts] = {}
        for active in self._active.values():
            if active.batches or active.busy >= LEAST_BUSY:
                merge_facts(facts, {active.operator.context.operator_name: active.take_facts()})
        for source in self.sources:
            if source.polls:
                polls = Facts(polls=source.polls, saturated=source.saturated)
                source.polls = source.saturated = 0
                merge_facts(facts, {source.context.operator_name: polls})
        return facts

    def note_finished(self, places: frozenset[Place]) -> None:
        """Record which sources have no unfinished part on which workers."""
        self._time.finished = places

    def has(self, vertex: int) -> bool:
        """Whether the stage has an operator, by its vertex."""
        return vertex in self._active

    def targets_of(self, port: Port) -> list[Target]:
        """Return the targets of an output. They may be changed between ticks."""
        return self._active[port.vertex].targets[port.output]

    def _act(self, operator: Operator, act: Callable[..., R], *arguments: Any) -> R:
        return act_for(operator, self.errors, act, *arguments)

    def _carry(self, active: Active) -> int:
        """Run an operator and pass on its output; return the size of the largest batch."""
        largest, given = 1, active.given
        for batches in self._checked(active) if self._debug else active.operator.run(active.edges):
            for port, (batch, targets) in enumerate(zip(batches, active.targets, strict=True)):
                if batch:
                    size = len(batch)
                    given[port] += size
                    largest = max(largest, size)
                    for target in targets:
                        target.append(batch)
        return largest

    def _replay(self, vertex: int, active: Active, replays: Sequence[Replay]) -> int:
        """Serve the requests about the dead letters of an operator; return the number of records that it processed."""
        name, records = active.operator.context.operator_name, 0
        for request in replays:
            if request.operator == name:
                operators = {at: it.operator for at, it in self._active.items()}
                reached = reached_by(self._program, operators, vertex)
                emit = partial(self._emit, active)
                found = replay(request, active.operator, self._letters[vertex], reached, emit)
                self._replayed[name] = total([self._replayed.get(name, Replayed()), found])
                records += 0 if request.discards else found.done
        return records

    @staticmethod
    def _emit(active: Active, batches: Sequence[Batch]) -> None:
        for port, (batch, targets) in enumerate(zip(batches, active.targets, strict=True)):
            active.given[port] += len(batch)
            for target in targets if batch else ():
                target.append(batch)

    @staticmethod
    def _post_letters(active: Active, *, final: bool) -> None:
        """Pass on the dead letters that an operator has made; the only epoch of their stream is the last."""
        guard = active.operator.guard
        letters = [] if guard is None or guard.taken is None else guard.taken
        batch = Batch(None, [*letters], [it.at for it in letters], [(len(letters), MAX)] if final else ())
        letters.clear()
        for target in active.letter_targets if batch else ():
            target.append(batch)

    def _checked(self, active: Active) -> Iterator[Sequence[Batch]]:
        name = active.operator.context.operator_name
        for batch in chain.from_iterable(active.edges):
            verify(batch, name)
            verify_kinds(batch, active.operator, at_the_end=isinstance(active.node, SinkNode))
            if isinstance(active.node, StatefulNode):
                verify_placement(batch, active.operator)
        trails = [Trail(batches) for batches in active.edges]
        if isinstance(active.node, _PLACING) or len(trails) > 1:
            for batches in active.operator.run([trail.pieces for trail in trails]):
                yield [watch(batch, name) for batch in batches]
            return
        for batches in active.operator.run(trails):
            yield [watch(batch, name, trails[0].placed) for batch in batches]

    def delta(self, whole: bool = False) -> dict[str, Delta]:
        """Return the changes of each operator's state since the last call. States are live: serialise at once.

        Args:
            whole: whether to return the full states, not only the changes.
        """
        if whole:
            self.forget()
        deltas = {name: self._act(operator, keeper.delta) for name, operator, keeper in self._keepers}
        return {state_id: delta for state_id, delta in deltas.items() if delta}

    def apply(self, deltas: Mapping[str, Delta]) -> None:
        """Apply deltas to the states of the operators that they name."""
        for name, _, keeper in self._keepers:
            if name in deltas:
                keeper.apply(deltas[name])

    def take_finished(self, *, whole: bool) -> dict[str, list[Any]]:
        """Return the parts of each source that have finished since the last call, or all finished ones in this run."""
        finished = {source.context.operator_name: source.take_finished(whole=whole) for source in self.sources}
        return {name: parts for name, parts in finished.items() if parts}

    def finish(self, parts: Mapping[str, Collection[Any]]) -> None:
        """Mark parts that finished earlier in this run. `open` then does not poll them."""
        for source in self.sources:
            source.finish(parts.get(source.context.operator_name, ()))

    def forget(self, names: Container[str] | None = None) -> None:
        """Make the next deltas complete, for all states or the named ones."""
        for name, _, keeper in self._keepers:
            if names is None or name in names:
                keeper.forget()

    def states(self) -> dict[str, OperatorState]:
        """Return the live states of each operator. Positions are as of the last delta."""
        for _, _, keeper in self._keepers:
            keeper.sync_state()
        return {name: keeper.state for name, _, keeper in self._keepers if keeper.state is not None}

    def state(self, name: str) -> OperatorState:
        """Return the live state with a name.

        Raises:
            KeyError: if no operator of the stage has it.
        """
        for it, _, keeper in self._keepers:
            if it == name and keeper.state is not None:
                keeper.sync_state()
                return keeper.state
        raise KeyError(name)

    def note_positions(self) -> None:
        """Write the current positions of readers and writers to the states; they still count as changes."""
        for operator in (*self.sources, *self.sinks):
            if isinstance(operator, PartOperator):
                self._act(operator, operator.note_positions)

    def _list_keepers(self) -> list[tuple[str, Operator, StateKeeper]]:
        """List the keepers of states, with the state's name and its operator."""
        keepers: list[tuple[str, Operator, StateKeeper]] = []
        for vertex, active in self._active.items():
            operator = active.operator
            keepers.append((state_id(active.node), operator, operator))
            if vertex in self._letters:
                keepers.append((hidden_id(active.node, LETTERS), operator, self._letters[vertex]))
            keepers += ((hidden_id(active.node, role), operator, keeper) for role, keeper in operator.hidden.items())
        return keepers

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

    def explain(self) -> dict[int, OperatorTime]:
        """Return the progress of each operator in event time, by vertex."""
        return self._time.explain()

    def held(self) -> dict[str, Waiting]:
        """Return the open results of operators. The end of the input would emit them."""
        held = {it.context.operator_name: self._act(it, it.held) for it in self.operators}
        return {name: it for name, it in held.items() if it is not None}

    def reached(self) -> dict[str, list[Reached]]:
        """Return the progress of the epoch generators that records on this worker reach.

        With ``idle_after``, generators with an epoch per part are reported part by part. Also report operators of this
        worker that hold records for generators on any worker.
        """
        return self._time.reached(lambda operator: self._act(operator, operator.held))


def act_for(operator: Operator, kind: type[BaseException], act: Callable[..., R], *arguments: Any) -> R:
    """Run an action of an operator; errors of user code, including comparisons and hashes, name the operator.

    Args:
        operator: the operator.
        kind: the exceptions to attribute to the operator; others, such as KeyboardInterrupt, propagate unchanged.
        act: the action.
        arguments: the arguments of `act`.

    Raises:
        OperatorError: if user code fails, unless malflow has already raised an error for it.
    """
    try:
        return act(*arguments)
    except MalflowError:
        raise
    except kind as error:
        raise operator.error(error) from error

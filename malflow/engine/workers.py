"""The workers of every stage of a program in this process: loading, ticks, rescales and new parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from malflow.checks import check_whole_number
from malflow.engine.parts.dealing import deal, redeal, with_listed, with_new
from malflow.engine.parts.discovery import discovering
from malflow.engine.parts.places import PartPlaces, Parts, Place, Redeal, held_parts, waiting_parts, with_given
from malflow.engine.plan import Program, Stage, check_not_input
from malflow.engine.reports import Report
from malflow.engine.state_specs import States, stored_once
from malflow.engine.states.rescale import check_placed, reroute
from malflow.engine.worker import Worker
from malflow.errors import release_all
from malflow.event_time.tick import Tick
from malflow.operators.contract import Operator
from malflow.operators.hosting.parts import gone_error, list_parts
from malflow.operators.hosting.source import Source
from malflow.operators.waiting import OperatorTime, Running, Waiting, merge_held
from malflow.partitioners import Partitioner, rendezvous_select
from malflow.records.batch import Batch
from malflow.states.keyed import Delta, StateDelta
from malflow.states.paned import OperatorState

if TYPE_CHECKING:
    from malflow.engine.states.loading import Loaded

__all__ = ["Exchange", "Sent", "Workers", "raised_epochs"]

Sent: TypeAlias = dict[int, list[list[list[Batch]]]]
"""The batches of each channel, by its number, for each sending worker, by the receiving worker."""

Exchange: TypeAlias = Callable[[Stage, Sent], None]
"""Completes the output of a stage's workers in this process with that of all others, in the order of workers."""


class Workers:
    """The workers of every stage, run in a fixed order; a context manager that closes them.

    Args:
        program: the program.
        parallelism: the number of workers of each stage.
        tracked: whether to track changes for `deltas`.
        debug: whether to run the checks that are too slow for production.
        listed: the parts of each source; None to let the sources list them.
        parts: the parts of each source that each worker holds; None to deal them.
        hosted: the workers that this process hosts, one of several that malflow owns; None for all workers.

    Raises:
        GraphError: if a sink would write to a file that a source reads.
        OperatorError: if a source can't list its parts.

    Attributes:
        listed: the parts of each source.
        parts: the parts of each source that each worker holds.
        waiting: the parts that no worker held when the workers were made or loaded, of sources with parts that are
            handed out.
        parallelism: the number of workers of each stage.
        discovered: the parts of each source that appeared after the job's first start.
    """

    def __init__(
        self,
        program: Program,
        *,
        parallelism: int,
        tracked: bool,
        debug: bool = False,
        listed: Mapping[str, Sequence[Any]] | None = None,
        parts: Parts | None = None,
        hosted: Sequence[int] | None = None,
    ) -> None:
        self.parallelism = parallelism
        self._hosted = hosted
        self._program = program
        self._tracked = tracked
        self._debug = debug
        self._is_open = False
        self._remade: list[Worker] = []
        self._discovering = discovering(program)
        self._once = stored_once(program)
        self.discovered: dict[str, set[Any]] = {}
        if listed is None:
            listed = {name: list_parts(name, node.source) for name, node in program.sources.items()}
        self.listed = listed
        self.parts = deal(program, listed, parallelism) if parts is None else parts
        self.waiting: Mapping[str, Sequence[Any]] = waiting_parts(listed, self.parts)
        check_not_input(program, listed)
        self._stages = self._make_workers(parallelism)
        self._list_workers()

    def load(self, found: Loaded) -> None:
        """Load the states of a snapshot before `open`: see `malflow.engine.states.loading.load_into`."""
        self.parts, self.waiting = found.parts, waiting_parts(self.listed, found.parts)
        self.discovered.update(found.discovered)
        self._set_parts()
        self._fill(found.routed)
        for worker in self._workers:
            worker.states.forget(found.changed(worker.worker_id, self.parallelism))

    def begin(
        self,
        discovered: Mapping[str, Iterable[Any]],
        states: Mapping[int, Mapping[str, States]],
        changed: Mapping[int, Collection[str]],
        finished: Mapping[int, Mapping[str, Collection[Any]]],
    ) -> None:
        """Continue as the same number of workers, elsewhere, have ended; called before `open`.

        Args:
            discovered: the parts of each source that appeared after the job's first start.
            states: the states, by worker and name: see `handover`.
            changed: the states with complete next deltas, by worker.
            finished: the finished parts of sources, by worker and name.
        """
        self.discovered = {name: set(parts) for name, parts in discovered.items()}
        self._set_parts()
        for worker in self._workers:
            at = worker.worker_id
            worker.states.apply({name: Delta(state, whole=True) for name, state in states.get(at, {}).items()})
            worker.states.forget(changed.get(at, ()))
            worker.states.finish(finished.get(at, {}))

    def make_up_ticks(self, finished: frozenset[Place]) -> list[Report]:
        """Continue as if the workers had made the ticks of an earlier run; return their progress; for tests.

        Args:
            finished: the sources and workers that had finished before its last tick.
        """
        for worker in self._workers:
            worker.time.finished = finished
        return [Report(worker.worker_id, reached=worker.time.reached()) for worker in self._workers]

    def handover(self) -> tuple[dict[int, dict[str, States]], dict[int, set[str]]]:
        """Return all states, by worker and name, and those that differ from the last snapshot, by worker."""
        changed: dict[int, set[str]] = {}
        for it in self.deltas():
            changed.setdefault(it.worker, set()).add(it.name)
        states: dict[int, dict[str, States]] = {}
        for (worker, name), state in self.states().items():
            states.setdefault(worker, {})[name] = state
        return states, changed

    def states_to_move(self, pickle_reader: Callable[[Any], bytes]) -> dict[tuple[int, str], States]:
        """Return all states, by worker and name, with which other processes can continue.

        Args:
            pickle_reader: pickles a reader without a position.

        Raises:
            GraphError: if a reader can't be pickled.
        """
        for worker in self._workers:
            worker.states.note_positions()
        states: dict[tuple[int, str], States] = {**self.states()}
        for source in self._sources:
            states[source.context.worker_id, source.context.operator_name] = source.states_to_move(pickle_reader)
        return states

    def finished_parts(self) -> dict[int, dict[str, list[Any]]]:
        """Return the parts that have finished in this run, by worker and source."""
        readers = [worker for worker in self._workers if worker.sources]
        found = {worker.worker_id: worker.states.take_finished(whole=True) for worker in readers}
        return {worker: parts for worker, parts in found.items() if parts}

    def park(self) -> None:
        """Close the operators, except for objects that workers share, such as sinks; others continue elsewhere."""
        release_all(worker.close for worker in self._workers)

    def add_parts(self, new: Mapping[str, Sequence[Any]]) -> None:
        """Continue with new parts of sources; called between ticks.

        Raises:
            GraphError: if a sink writes to a new part.
            OperatorError: if a reader can't be built.
        """
        check_not_input(self._program, new)
        raised = raised_epochs(self._program, [self.epochs()], self.parallelism)
        self.take_parts(new, with_new(self._program, self.listed, new, self.parts, self.ended()), raised)

    def ended(self) -> dict[str, set[Any]]:
        """Return the parts of each source that workers of this process have read to their end."""
        ended: dict[str, set[Any]] = {}
        for source in self._sources:
            ended.setdefault(source.context.operator_name, set()).update(source.finished)
        return ended

    def epochs(self) -> dict[str, dict[int, Mapping[Any, Any]]]:
        """Return the states of the epoch (watermark) generators, by name and worker."""
        states: dict[str, dict[int, Mapping[Any, Any]]] = {name: {} for name in self._program.generators}
        for worker in self._workers:
            for name, state in worker.states.live().items():
                if name in states:
                    states[name][worker.worker_id] = state
        return states

    def take_parts(
        self, new: Mapping[str, Sequence[Any]], parts: Parts, raised: Mapping[int, Mapping[str, States]]
    ) -> None:
        """Continue with new parts of sources, some of which other processes may read.

        Args:
            new: the new parts.
            parts: the parts of each source that each worker holds, with the new ones.
            raised: the states of generators with raised epochs, by worker and name: see `raised_epochs`.

        Raises:
            OperatorError: if a reader can't be built.
        """
        self.listed, self.parts = with_listed(self.listed, new), parts
        for name, some in new.items():
            self.discovered.setdefault(name, set()).update(some)
        for worker in self._workers:
            states = raised.get(worker.worker_id, {})
            worker.states.apply({name: Delta(state, whole=True) for name, state in states.items()})
            worker.states.forget(states)
        self._set_parts()
        if self._is_open:
            for worker in self._workers:
                for source in worker.sources:
                    worker.reopen(source)

    def check_gone(self, name: str, gone: Sequence[Any]) -> None:
        """Raise if parts of a source that are no longer listed are unfinished.

        Raises:
            OperatorError: naming the part.
        """
        sources = [source for source in self._sources if source.context.operator_name == name]
        for part in gone:
            if any(part in source.live_parts for source in sources):
                raise gone_error(name, part, self._program.sources[name].source.impl)

    @property
    def running(self) -> Running | None:
        """The operator that is running now on the workers of this process; may be read from any thread."""
        operator = next((it.running for it in self._workers if it.running is not None), None)
        return None if operator is None else Running(operator.context.operator_name, operator.holdup())

    @property
    def stages(self) -> Sequence[Sequence[Worker]]:
        """The workers of each stage."""
        return self._stages

    @property
    def sources(self) -> Sequence[Source]:
        """The operators that host a source, of all workers."""
        return self._sources

    def open(self) -> None:
        """Build the readers of the parts."""
        self._is_open = True
        for worker in self._workers:
            worker.open()

    @property
    def live(self) -> frozenset[Place]:
        """The sources and workers with unfinished parts."""
        return frozenset(_place_of(source) for source in self._sources if not source.is_finished)

    def run(self, tick: Tick, exchange: Exchange | None = None) -> list[Report]:
        """Poll every source once, and pass all records through every stage.

        No delta may be taken after the final tick: snapshots keep the states from before the end.

        Args:
            tick: the tick.
            exchange: completes the output of a stage with that of the workers in other processes; None if there are
                none.
        """
        self.parts = with_given(self.parts, tick.given)
        sent: Sent = {}
        for stage, workers in zip(self._program.stages, self._stages, strict=True):
            outputs = []
            for worker in workers:
                arrived = {
                    channel.number: [by_target[worker.worker_id] for by_target in sent[channel.number]]
                    for channel in stage.inputs
                }
                outputs.append(worker.run(arrived, tick))
            for channel in stage.outputs:
                sent[channel.number] = [output[channel.number] for output in outputs]
            if exchange is not None and stage.outputs:
                exchange(stage, sent)
        for worker, operator in self._flushing:
            worker.flush_operator(operator)
        return [worker.reports.take(tick) for worker in self._workers]

    def deltas(self, whole: bool = False) -> list[StateDelta]:
        """Return the changes of every state since the last call, one entry per worker and changed state.

        Of a state that every worker has, only that of worker 0 is returned.

        States are live: serialise them before the next tick. The first delta of a state is complete.

        Args:
            whole: whether to return the full states, not only the changes.
        """
        found: dict[tuple[int, str], StateDelta] = {}
        for worker in self._workers:
            deltas = worker.states.deltas(whole)
            states = worker.states.live() if deltas else {}
            for name, delta in deltas.items():
                if worker.worker_id and name in self._once:
                    continue
                found[worker.worker_id, name] = StateDelta(worker.worker_id, name, delta, len(states[name]))
        return [*found.values()]

    def explain(self) -> dict[int, dict[int, OperatorTime]]:
        """Return the progress of each operator in event time, by worker and vertex."""
        found: dict[int, dict[int, OperatorTime]] = {}
        for worker in self._workers:
            found.setdefault(worker.worker_id, {}).update(worker.time.explain())
        return found

    def held(self) -> dict[str, Waiting]:
        """Return the open results of operators. The end of the input would emit them."""
        found: dict[str, Waiting] = {}
        for worker in self._workers:
            merge_held(found, worker.held())
        return found

    def stored_states(self) -> dict[tuple[int, str], OperatorState]:
        """Return the live states that `deltas` describe, by worker and name."""
        return {it: state for it, state in self.states().items() if it[0] == 0 or it[1] not in self._once}

    def states(self) -> dict[tuple[int, str], OperatorState]:
        """Return the live states by worker and name, as the last deltas left them."""
        live = ((worker.worker_id, worker.states.live()) for worker in self._workers)
        return {(worker, name): state for worker, states in live for name, state in states.items()}

    def rescale(self, parallelism: int) -> None:
        """Continue with another number of workers; called between ticks. The next deltas are complete.

        Live states move without serialisation. If this fails while parts move, the run can only be closed.

        Raises:
            GraphError: if `parallelism` is not a positive integer.
            SnapshotError: if the program keeps state under ``key_local``; nothing has changed then.
            OperatorError: if user code fails.
        """
        check_whole_number("a run's", "parallelism", parallelism)
        if parallelism == self.parallelism:
            return
        check_placed(self._program)
        states: dict[str, dict[int, Mapping[Any, Any]]] = {}
        for worker in self._workers:
            for name, state in worker.states.live().items():
                states.setdefault(name, {})[worker.worker_id] = state
        redeal = self.redealt(parallelism)
        routed = reroute(self._program, states, self.parallelism, parallelism, redeal=redeal)
        self.parts, self.waiting = redeal.parts, waiting_parts(self.listed, redeal.parts)
        old_stages, self._stages = self._stages, self._make_workers(parallelism)
        self._list_workers(*old_stages)
        self._fill(routed)
        for old_stage, stage in zip(old_stages, self._stages, strict=True):
            for old_worker in old_stage:
                _transfer_parts(old_worker, stage, redeal.after)
        self._list_workers()
        for worker in self._workers:
            worker.states.forget()
        if self._is_open:
            self.open()

    def remake(
        self, worker_id: int, stages: Iterable[int], change: Callable[[Mapping[str, States]], Mapping[str, States]]
    ) -> None:
        """Replace the operators of some stages on a worker by new ones with its states, if this process hosts it.

        Readers and writers stay. The next deltas of states that have changed are complete. `settle_parts` opens the
        operators.

        Args:
            worker_id: the worker.
            stages: the numbers of the stages.
            change: returns the states that change, by name.
        """
        for stage in stages:
            workers = self._stages[stage]
            for at, old in enumerate(workers):
                if old.worker_id != worker_id:
                    continue
                pending = {*old.states.deltas()}
                live = old.states.live()
                changed = change(live)
                new = workers[at] = self._make_worker(stage, worker_id)
                new.states.apply({name: Delta(it, whole=True) for name, it in {**live, **changed}.items()})
                new.states.forget(pending | {*changed})
                self._remade.append(new)
                for operator, remade in zip(old.operators, new.operators, strict=True):
                    operator.transfer_parts(partial(_itself, remade))
                old.close()
                for source, again in zip(old.sources, new.sources, strict=True):
                    again.heard.update(source.heard)
        self._list_workers()

    def settle_parts(self) -> None:
        """Set the parts of all workers, and open the operators that are new."""
        self.waiting = waiting_parts(self.listed, self.parts)
        self._set_parts()
        remade, self._remade = self._remade, []
        for worker in remade if self._is_open else ():
            worker.open()

    def held_parts(self) -> dict[str, dict[Any, int]]:
        """Return the worker of each part, also of parts with a position that are no longer listed."""
        listed = held_parts(self.parts)
        held: dict[str, dict[Any, int]] = {name: {} for name in self._program.sources}
        for source in self._sources:
            held[source.context.operator_name].update(dict.fromkeys(source.state, source.context.worker_id))
        return {name: {**them, **listed.get(name, {})} for name, them in held.items()}

    def redealt(self, parallelism: int) -> Redeal:
        """Return the workers of parts if the run continues with another number of workers."""
        held = self.held_parts()
        return redeal(self._program, self.listed, parallelism, held, ended=self.ended())

    def close(self, error: BaseException | None = None) -> None:
        """Close the operators, sinks before sources; add errors as notes to `error`."""
        release_all((operator.close for operator in reversed(self._operators)), error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self.close(error)

    def _make_workers(self, parallelism: int) -> list[list[Worker]]:
        self.parallelism = parallelism
        workers = range(parallelism) if self._hosted is None else self._hosted
        stages = [
            [self._make_worker(stage, worker) for worker in workers] for stage in range(len(self._program.stages))
        ]
        for worker in chain.from_iterable(stages):
            if self.discovered:
                worker.set_parts(self.parts, self.discovered, self.waiting)
        return stages

    def _make_worker(self, stage: int, worker: int) -> Worker:
        return Worker(
            self._program,
            stage,
            worker,
            parallelism=self.parallelism,
            parts=self.parts,
            waiting=self.waiting,
            tracked=self._tracked,
            debug=self._debug,
            errors=Exception if self._hosted is None else BaseException,
        )

    def _set_parts(self) -> None:
        for worker in self._workers:
            worker.set_parts(self.parts, self.discovered, self.waiting)

    def _list_workers(self, *leaving: Sequence[Worker]) -> None:
        """List the workers and the operators to close, including workers about to be removed."""
        self._workers = [worker for stage in self._stages for worker in stage]
        workers = [*chain.from_iterable(leaving), *self._workers]
        self._sources = [source for worker in workers for source in worker.sources]
        self._operators = _each_once(operator for worker in workers for operator in worker.operators)
        flushing = [(worker, operator) for worker in self._workers for operator in worker.flushing]
        self._flushing = list({id(operator.resource): (worker, operator) for worker, operator in flushing}.values())

    def _fill(self, states: Mapping[str, Sequence[Mapping[Any, Any]]]) -> None:
        for worker in self._workers:
            at = worker.worker_id
            worker.states.apply({name: Delta(by_worker[at], whole=True) for name, by_worker in states.items()})


def raised_epochs(
    program: Program, epochs: Iterable[Mapping[str, Mapping[int, States]]], parallelism: int
) -> dict[int, dict[str, States]]:
    """Raise the epochs on workers that had no part to the least epoch of the others, stream by stream.

    Args:
        program: the program.
        epochs: the states of its generators, from each process: see `Workers.epochs`.
        parallelism: the number of workers.

    Returns:
        The states that change, by worker and name.
    """
    states: dict[str, dict[int, States]] = {name: {} for name in program.generators}
    for found in epochs:
        for name, by_worker in found.items():
            states[name].update(by_worker)
    raised: dict[int, dict[str, States]] = {}
    for name, routed in reroute(program, states, parallelism, parallelism).items():
        for at, state in enumerate(routed):
            if state is not states[name].get(at):
                raised.setdefault(at, {})[name] = state
    return raised


def _place_of(source: Source) -> Place:
    return source.context.operator_name, source.context.worker_id


def _each_once(operators: Iterable[Operator]) -> list[Operator]:
    """Return the operators, only one for each object that they flush and close."""
    return list({id(operator.resource): operator for operator in operators}.values())


def _transfer_parts(old: Worker, stage: Sequence[Worker], places: PartPlaces) -> None:
    """Transfer the parts of a worker to the workers that hold them from now on."""
    for at, operator in enumerate(old.operators):
        select = places.of(operator.context.operator_name) if isinstance(operator, Source) else rendezvous_select
        operator.transfer_parts(partial(_holder, [worker.operators[at] for worker in stage], select))


def _itself(operator: Operator, _part: Any) -> Operator:
    return operator


def _holder(holders: Sequence[Operator], select: Partitioner, part: Any) -> Operator:
    return holders[select(part, range(len(holders)))]

"""The host of a run in worker processes of this machine.

The workers' states are in the processes. This one has them only while a run starts or is rescaled.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from malflow.engine.part_moves import moved_times
from malflow.engine.parts.dealing import with_listed, with_new
from malflow.engine.parts.discovery import Change
from malflow.engine.parts.places import PartMove, Parts, Place, with_given
from malflow.engine.plan import Program, check_not_input
from malflow.engine.reports import Report
from malflow.engine.sinks import RunSinks
from malflow.engine.state_queries import Outcome, Question
from malflow.engine.state_specs import OldStates, States
from malflow.engine.states.loading import load_into
from malflow.engine.workers import Workers, raised_epochs
from malflow.errors import RunFailed, release_all
from malflow.event_time.tick import Tick
from malflow.operators.waiting import OperatorTime, Waiting, merge_held
from malflow.runtime.host import SinkPositions
from malflow.runtime.processes.forwarding import levels_of_loggers, logging_disabled, pickled_filters
from malflow.runtime.processes.messages import (
    CHECK_MOVES,
    GATHER,
    HELD,
    READ,
    STATES,
    TIMES,
    AddParts,
    AskQuestions,
    Begin,
    CheckGone,
    ContinueTicks,
    GiveParts,
    RunTick,
    Settle,
    Setup,
    TakeParts,
)
from malflow.runtime.processes.options import ProcessOptions
from malflow.runtime.processes.pool import Pool
from malflow.runtime.processes.snapshots import ProcessCaptures
from malflow.runtime.transport.error_pickles import loaded_error
from malflow.runtime.transport.pickling import dumps_by_value
from malflow.runtime.transport.program_pickle import check_sources, dumps_program
from malflow.runtime.transport.script_classes import pickled_classes
from malflow.runtime.transport.sink_proxies import check_sinks, deliver, with_sink_proxies
from malflow.runtime.transport.states import PackedQuestion, dumps_state, loaded_state, outcome, packed_or_error
from malflow.runtime.transport.surroundings import Surroundings
from malflow.snapshot.persistence import RestoredState, Session

__all__ = ["ProcessesHost", "pickled_program"]

_PLACE = "in worker processes"


class ProcessesHost:
    """Workers in several processes, each with a block of consecutive ones.

    Args:
        program: the program.
        pickled: the program and the classes of the script, pickled for the processes.
        sinks: the sinks in this process.
        options: the options of the run.

    Attributes:
        parallelism: the number of workers.
        parts: the parts of each source that each worker holds.
        listed: the parts of each source.
    """

    def __init__(
        self,
        program: Program,
        pickled: bytes,
        sinks: RunSinks,
        options: ProcessOptions,
    ) -> None:
        self._program = program
        self._pickled = pickled
        self._sinks = sinks
        self._launch = options.launch
        self._most = options.most
        self._tracked = options.persistence.is_enabled
        self._debug = options.debug
        self._tick = 0
        self._written: Future[int] | None = None
        self._captures = ProcessCaptures(program, sinks, is_in_memory=options.keeps_in_memory)
        self._pool: Pool | None = self._new_pool(min(options.most, options.workers))
        try:
            held = self._made(options.workers, None)
            check_not_input(program, held.listed)  # workers have proxies, which do not tell where sinks write
        except BaseException as error:
            self._close_pool(error)
            raise
        self._held: Workers | None = held
        self._note(held)

    def _made(
        self, parallelism: int, listed: Mapping[str, Sequence[Any]] | None, parts: Parts | None = None
    ) -> Workers:
        """Return workers that only hold states, and never run."""
        return Workers(
            with_sink_proxies(self._program),
            parallelism=parallelism,
            tracked=self._tracked,
            debug=self._debug,
            listed=listed,
            parts=parts,
        )

    def _note(self, workers: Workers) -> None:
        self.parallelism, self.listed = workers.parallelism, workers.listed
        self.parts: Parts = workers.parts
        self._discovered = workers.discovered
        self._live: frozenset[Place] = frozenset()

    # The start

    def load(self, restored: RestoredState) -> OldStates:
        """Load the states of a snapshot into workers that only hold them; return the positions of the sinks."""
        if self._held is None:
            raise RunFailed("the run has begun")
        states, positions = self._sinks.split(restored.states)
        load_into(self._held, self._program, replace(restored, states=states))
        self.parts = self._held.parts
        return positions

    def open(self, tick: int) -> None:
        """Start the processes, and hand the states over to them. These build the readers."""
        self._tick = tick
        if self._held is not None:
            self._hand_over(self._held)
            self._held = None

    def _hand_over(self, workers: Workers) -> None:
        """Continue in the processes with the states of workers that only hold them."""
        self._note(workers)
        states, changed = workers.handover()
        finished = workers.finished_parts()
        pool = self._started(min(self._most, self.parallelism))
        owners = self._owners
        begins = []
        for process in pool.processes:
            mine = [worker for worker, owner in enumerate(owners) if owner == process.number]
            begin = Begin(
                self._tick,
                owners,
                self.listed,
                self.parts,
                self._discovered,
                _only(states, mine),
                _only(changed, mine),
                _only(finished, mine),
            )
            begins.append(begin)
        self._captures.begin(states)
        self._live = frozenset[Place]().union(*pool.ask_each(begins))

    def _started(self, count: int) -> Pool:
        """Return as many processes, new ones if there were more or fewer."""
        if self._pool is not None and len(self._pool.processes) == count:
            return self._pool
        if self._pool is not None:
            pool, self._pool = self._pool, None
            _raise_first(pool.close(None))
        self._pool = pool = self._new_pool(count)
        return pool

    def _new_pool(self, count: int) -> Pool:
        levels, disabled, filters, here = levels_of_loggers(), logging_disabled(), pickled_filters(), Surroundings()
        return Pool(
            count,
            self._launch,
            lambda number: Setup(self._pickled, number, self._tracked, self._debug, levels, disabled, filters, here),
            self._named_workers,
        )

    @property
    def _owners(self) -> list[int]:
        """The process of each worker: consecutive workers share one. Output thus keeps the order of workers."""
        count = min(self._most, self.parallelism)
        return [worker * count // self.parallelism for worker in range(self.parallelism)]

    def _named_workers(self, process: int) -> str:
        mine = [worker for worker, owner in enumerate(self._owners) if owner == process]
        between = "and" if len(mine) == 2 else "to"  # noqa: PLR2004 - two workers have none between them
        numbers = f"worker {mine[0]}" if len(mine) == 1 else f"workers {mine[0]} {between} {mine[-1]}"
        return f"{numbers} of {self.parallelism}"

    @property
    def _running(self) -> Pool:
        if self._pool is None:
            raise RunFailed("the run has not begun, or has ended")
        return self._pool

    # Ticks

    def live(self) -> Collection[Place]:
        """Return the sources and workers with unfinished parts."""
        return self._live

    def pause(self) -> float:
        """Return 0: a tick may follow at once."""
        return 0.0

    def times(self) -> Mapping[int, Mapping[int, OperatorTime]]:
        """Return the progress of operators in event time, by worker and vertex."""
        found: dict[int, Mapping[int, OperatorTime]] = {}
        for by_worker in self._running.ask_all(TIMES):
            found |= by_worker
        return found

    def running(self) -> None:
        """Return None: the workers are in other processes."""

    def held(self) -> Mapping[str, Waiting]:
        """Return the open results of operators."""
        found: dict[str, Waiting] = {}
        for held in self._running.ask_all(HELD):
            merge_held(found, held)
        return found

    def ask(self, questions: Sequence[Question]) -> Sequence[Outcome]:
        """Answer questions with the states in the processes."""
        asked = [packed_or_error(question) for question in questions]
        sent = [it for it in asked if isinstance(it, PackedQuestion)]
        found: list[dict[int, bytes]] = [{} for _ in sent]
        for of_process in self._running.ask_all(AskQuestions(sent)):
            for answers, by_worker in zip(found, of_process, strict=True):
                answers.update(by_worker)
        outcomes = iter([outcome(it, [by[at] for at in sorted(by)]) for it, by in zip(sent, found, strict=True)])
        return [next(outcomes) if isinstance(it, PackedQuestion) else it for it in asked]

    def answers(self) -> Sequence[Outcome]:
        """Return nothing: no question is left to a tick."""
        return ()

    def run(self, tick: Tick) -> list[Report]:
        """Run a tick in all processes, and write its output to the sinks in this process."""
        ticked = self._running.ask_all(RunTick(tick))
        self._tick = tick.number
        self.parts = with_given(self.parts, tick.given)
        self._sinks.note_reader(is_gone=self._running.reader_is_gone)
        sinks = deliver(self._sinks.writers, (chunk for it in ticked for chunk in it.output))
        return [*(report for it in ticked for report in it.reports), sinks]

    # Snapshots

    def capture(
        self, session: Session, tick: int, sinks: SinkPositions, *, full: bool, alone: bool
    ) -> Future[int] | None:
        """Serialise the changes in the processes. The processes write them in the background."""
        del alone
        self._written = self._captures.write(session, self._running, tick, self.parallelism, sinks, full=full)
        return self._written

    def settle(self, tick: int, snapshot: int | None) -> Iterator[tuple[str, Exception]]:
        """Confirm the positions in a snapshot to the readers, unless they were confirmed before."""
        for errors in self._running.ask_all(Settle(tick, snapshot)):
            yield from ((name, loaded_error(data)) for name, data in errors)

    # Changes

    def check_moves(self) -> None:
        """Check that the readers of all sources can move to another process."""
        if self._program.without_positions:
            self._running.ask_all(CHECK_MOVES)

    def rescale(self, parallelism: int) -> None:
        """Gather the states of all workers, and hand them over to another number of workers."""
        if self._written is not None:
            with suppress(CancelledError):
                self._written.exception()  # it is written by the processes that may end now
        workers = self._gathered()
        workers.rescale(parallelism)
        self._hand_over(workers)

    def _gathered(self) -> Workers:
        """Return workers that only hold the states after the last tick; those in the processes are closed."""
        states: dict[int, dict[str, States]] = {}
        finished: dict[int, Mapping[str, Collection[Any]]] = {}
        for it in self._running.ask_all(GATHER):
            finished |= it.finished
            for (worker, name), data in it.states.items():
                states.setdefault(worker, {})[name] = loaded_state(name, data)
        workers = self._made(self.parallelism, self.listed, self.parts)
        workers.begin(self._discovered, states, {}, finished)
        return workers

    def change_parts(self, changes: Mapping[str, Change]) -> None:
        """Build the readers of new parts; raise if an unfinished part no longer exists."""
        pool = self._running
        if gone := {name: change.gone for name, change in changes.items() if change.gone}:
            pool.ask_all(CheckGone(gone))
        new = {name: it.new for name, it in changes.items() if it.new}
        if not new:
            return
        check_not_input(self._program, new)
        read = pool.ask_all(READ)
        raised = raised_epochs(self._program, (it.epochs for it in read), self.parallelism)
        ended: dict[str, set[Any]] = {}
        for it in read:
            for name, some in it.ended.items():
                ended.setdefault(name, set()).update(some)
        self.parts = with_new(self._program, self.listed, new, self.parts, ended)
        self.listed = with_listed(self.listed, new)
        for name, parts in new.items():
            self._discovered.setdefault(name, set()).update(parts)
        self._live = frozenset[Place]().union(*pool.ask_all(AddParts(new, self.parts, raised)))

    @property
    def lanes(self) -> Sequence[int]:
        """The process of each worker."""
        return self._owners

    def move_parts(self, move: PartMove, limit: int) -> int | None:
        """Move parts to another worker: their state through this process, and nothing else."""
        pool = self._running
        told = pool.ask_all(GiveParts(move, limit))
        if too_large := [it.size for it in told if it.size is not None]:
            return too_large[0]
        times: dict[str, dict[int, States]] = {}
        for it in told:
            for name, by_worker in it.times.items():
                times.setdefault(name, {}).update({at: loaded_state(name, data) for at, data in by_worker.items()})
        new = moved_times(self._program, times, self.parts, move, self.listed)
        given = [it for it in told if it.states or it.ended]
        states = {name: data for it in given for name, data in it.states.items()}
        ended = {name: parts for it in given for name, parts in it.ended.items()}
        heard = {name: parts for it in given for name, parts in it.heard.items()}
        packed = {name: dumps_state(name, state) for name, state in new.items()}
        self.parts = move.applied(self.parts, self.listed)
        self._live = frozenset[Place]().union(*pool.ask_all(TakeParts(move, states, ended, heard, packed)))
        return None

    # Tests

    def make_up_ticks(self, finished: frozenset[Place]) -> tuple[frozenset[Place], list[Report]]:
        """Continue as if the workers had made the ticks of an earlier run; return live places and progress; for tests.

        Args:
            finished: the sources and workers that had finished before its last tick.
        """
        live: frozenset[Place] = frozenset()
        reports: list[Report] = []
        for places, progress in self._running.ask_all(ContinueTicks(finished)):
            live |= places
            reports += progress
        return live, reports

    def states(self) -> dict[tuple[int, str], States]:
        """Return copies of all states, by worker and name; for tests."""
        return {place: pickle.loads(data) for it in self._running.ask_all(STATES) for place, data in it.items()}  # noqa: S301 - of this run

    # The end

    def close(self, error: BaseException | None) -> None:
        """End the processes, and close the sinks in this one; add errors as notes to `error`."""
        writers = (writer.close for writer in self._sinks.writers)
        release_all((partial(self._close_pool, error), *writers), error)

    def _close_pool(self, error: BaseException | None) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                release_all((lambda: _raise_first(pool.close(error)),), error)
            finally:
                self._sinks.note_reader(is_gone=pool.reader_is_gone)


def pickled_program(program: Program) -> bytes:
    """Pickle a program and the classes of the script for worker processes.

    Raises:
        GraphError: naming the operator that can't run there, or can't be pickled.
        MissingDependency: if cloudpickle is not installed.
    """
    check_sources(program, _PLACE)
    check_sinks(program)
    pickled = dumps_program(with_sink_proxies(program), _PLACE)
    return dumps_by_value((pickled_classes(), pickled))


def _only(by_worker: Mapping[int, Any], workers: Sequence[int]) -> dict[int, Any]:
    return {worker: it for worker, it in by_worker.items() if worker in workers}


def _raise_first(errors: Iterable[Exception]) -> None:
    """Raise the first of several errors, with the others as notes."""
    release_all(partial(_throw, error) for error in errors)


def _throw(error: Exception) -> None:
    raise error

"""The host of a run in one thread, which calls its workers one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import chain
from typing import Any

from malflow.engine.part_moves import move_parts
from malflow.engine.parts.discovery import Change, Confirmations
from malflow.engine.parts.places import PartMove, Parts, Place
from malflow.engine.plan import Program
from malflow.engine.reports import Report
from malflow.engine.sinks import RunSinks
from malflow.engine.state_queries import Outcome, Question, copies, find
from malflow.engine.state_specs import OldStates, states_of
from malflow.engine.states.loading import load_into
from malflow.engine.taps import Tapping, Taps
from malflow.engine.workers import Workers
from malflow.errors import MalflowError
from malflow.event_time.tick import Tick
from malflow.operators.waiting import OperatorTime, Running, Waiting
from malflow.runtime.host import SinkPositions
from malflow.snapshot.files.sections import Recount
from malflow.snapshot.persistence import RestoredState, Session

__all__ = ["SingleThreadHost"]


class SingleThreadHost:
    """Workers in this process.

    Args:
        program: the program.
        sinks: the sinks; their states in a snapshot are separate from the workers'.
        parallelism: the number of workers of each stage.
        tracked: whether the run takes snapshots.
        debug: whether to make checks that are too expensive for production.
        workers: the workers; None creates them.
        taps: the taps on the run; None if it has no taps.
    """

    def __init__(
        self,
        program: Program,
        sinks: RunSinks,
        *,
        parallelism: int,
        tracked: bool,
        debug: bool = False,
        workers: Workers | None = None,
        taps: Taps | None = None,
    ) -> None:
        if workers is None:
            workers = Workers(program, parallelism=parallelism, tracked=tracked, debug=debug)
        self._program = program
        self._workers = workers
        self._states = states_of(program)
        self._sinks = sinks
        self._recount: Recount | None = None
        self._debug = debug and tracked
        self._confirmations = Confirmations(lambda: workers.sources)
        self._tapping = Tapping(program, Taps() if taps is None else taps)

    @property
    def parallelism(self) -> int:
        """The number of workers of each stage."""
        return self._workers.parallelism

    @property
    def lanes(self) -> Sequence[int]:
        """The same lane for each worker: they take turns."""
        return [0] * self.parallelism

    @property
    def parts(self) -> Parts:
        """The parts of each source that each worker holds."""
        return self._workers.parts

    @property
    def listed(self) -> Mapping[str, Sequence[Any]]:
        """The parts of each source."""
        return self._workers.listed

    def load(self, restored: RestoredState) -> OldStates:
        """Load the states of a snapshot; return the positions of the sinks."""
        if self._debug:
            self._recount = Recount(restored)
        states, positions = self._sinks.split(restored.states)
        load_into(self._workers, self._program, replace(restored, states=states))
        return positions

    def open(self, tick: int) -> None:
        """Build the readers of the parts."""
        if self._debug and self._recount is None:
            self._recount = Recount(None)
        self._workers.open()
        self._confirmations.note(tick)

    def run(self, tick: Tick) -> Sequence[Report]:
        """Run a tick on all workers."""
        if self._tapping.is_changed:
            self._tapping.change(chain.from_iterable(self._workers.stages))
        reports = self._workers.run(tick)
        self._tapping.end_tick(tick.number)
        return reports

    def live(self) -> Collection[Place]:
        """Return the sources and workers with unfinished parts."""
        return self._workers.live

    def pause(self) -> float:
        """Return 0: a tick may follow at once."""
        return 0.0

    def times(self) -> Mapping[int, Mapping[int, OperatorTime]]:
        """Return the progress of operators in event time, by worker and vertex."""
        return self._workers.explain()

    def running(self) -> Running | None:
        """Return the operator that works now."""
        return self._workers.running

    def held(self) -> Mapping[str, Waiting]:
        """Return the open results of operators."""
        return self._workers.held()

    def ask(self, questions: Sequence[Question]) -> Sequence[Outcome]:
        """Answer questions with copies of the states."""
        return [self._outcome(question) for question in questions]

    def answers(self) -> Sequence[Outcome]:
        """Return nothing: no question is left to a tick."""
        return ()

    def _outcome(self, question: Question) -> Outcome:
        try:
            return [
                copies(question.name, find(self._program, worker, question))
                for worker in self._workers.stages[question.stage]
                if question.asks(question.stage, worker.worker_id)
            ]
        except MalflowError as error:
            return error

    def capture(self, session: Session, tick: int, sinks: SinkPositions, *, full: bool, alone: bool) -> Future[int]:
        """Serialise the changes. The session writes them in the background."""
        del alone
        deltas = [*self._workers.deltas(full), *sinks(full)]
        if self._recount is not None:
            self._recount.check(deltas, self._workers.stored_states(), base=full)
        made = session.commit(tick, self.parallelism, self._states, deltas)
        self._confirmations.note(tick)
        return made

    def settle(self, tick: int, snapshot: int | None) -> Iterator[tuple[str, Exception]]:
        """Confirm the positions in a snapshot to the readers, unless they were confirmed before."""
        return self._confirmations.settle(tick, snapshot)

    def check_moves(self) -> None:
        """Do nothing: readers stay in this process."""

    def rescale(self, parallelism: int) -> None:
        """Move the states and readers to another number of workers."""
        self._workers.rescale(parallelism)
        self._tapping.forget()

    def change_parts(self, changes: Mapping[str, Change]) -> None:
        """Build the readers of new parts; raise if an unfinished part no longer exists."""
        for name, change in changes.items():
            self._workers.check_gone(name, change.gone)
        self._workers.add_parts({name: it.new for name, it in changes.items() if it.new})

    def move_parts(self, move: PartMove, limit: int) -> None:
        """Move parts between workers, without serialisation, so there is no limit."""
        del limit
        move_parts(self._workers, self._program, move)
        self._tapping.forget()  # as after a rescale

    def close(self, error: BaseException | None) -> None:
        """Close the operators."""
        self._workers.close(error)

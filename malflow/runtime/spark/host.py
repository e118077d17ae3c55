"""The host of a run on Spark: converts rows to reports and ticks to commands, and maintains the changelog.

The workers' states are in the changelog, and in the processes that last ran them. A generation is a number of workers
with the parts that they read; a rescale or new parts begin another one.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from malflow.engine.part_moves import move_parts, redeal_of
from malflow.engine.parts.discovery import Change, check_finished
from malflow.engine.parts.places import PartMove, Parts, with_given
from malflow.engine.plan import Program
from malflow.engine.reports import Report
from malflow.engine.sinks import RunSinks
from malflow.engine.state_queries import Outcome, Question
from malflow.engine.state_specs import OldStates
from malflow.engine.states.loading import load_into
from malflow.engine.states.rescale import keyed_by_parts
from malflow.engine.workers import Workers
from malflow.errors import RunFailed
from malflow.event_time.tick import Tick
from malflow.events import ConfirmationFailed
from malflow.runtime.host import SinkPositions
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.spark.changelog.changelog import Changelog
from malflow.runtime.spark.changelog.entry import NEVER
from malflow.runtime.spark.changelog_index import ChangelogIndex
from malflow.runtime.spark.pacing import Pace
from malflow.runtime.spark.protocol import (
    RunSpec,
    StageReport,
    TickCommand,
    names_of_counts,
    pack_program,
)
from malflow.runtime.spark.settings import Settings
from malflow.runtime.spark.sinks import SinkPieces
from malflow.runtime.spark.snapshots import ChangelogCapture
from malflow.runtime.spark.state_moves import StateMove, StateMoves
from malflow.runtime.spark.state_tasks import Base, Told
from malflow.runtime.spark.tasks.live_workers import REGISTRY
from malflow.runtime.spark.tasks.polling import LastSnapshot
from malflow.runtime.spark.tasks.records import Row, RowKind, check_counts, sink_chunks
from malflow.runtime.spark.tasks.worker_places import WorkerPlaces
from malflow.runtime.spark.tick_queries import TickQuestions
from malflow.runtime.transport.error_pickles import loaded_error
from malflow.runtime.transport.program_pickle import ON_SPARK, dumps_program
from malflow.runtime.transport.sink_proxies import deliver, with_sink_proxies
from malflow.snapshot.persistence import RestoredState, Session
from malflow.states.keyed import Delta

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["SparkHost"]


class SparkHost:
    """The workers of a run on Spark, as the driver sees them.

    Args:
        program: the program.
        parallelism: the initial number of workers.
        context: runs the Spark jobs that write snapshots.
        settings: the run's settings.
        sinks: the sinks on the driver.
        requests: the requests to the run, and its listeners.
        number: the number of the run.
        pieces: the pieces of distributed sinks; by default their records are delivered to this process.

    Attributes:
        parallelism: the number of workers.
        parts: the parts of each source that each worker holds.
        listed: the parts of each source.
        index: the index of the current generation's changelog.
        processes: the last tick of each process.
        places: where the workers of the current generation run.
    """

    def __init__(
        self,
        program: Program,
        parallelism: int,
        context: SparkContext,
        settings: Settings,
        sinks: RunSinks,
        requests: RunRequests,
        number: int,
        pieces: SinkPieces | None = None,
    ) -> None:
        self._encodes = pieces is not None
        self._sink_pieces = pieces or SinkPieces(program, context, settings.scratch)
        self._program = program
        self._context = context
        self._settings = settings
        self._sinks = sinks
        self._requests = requests
        self._number = number
        self._workers: Workers | None = self._make(parallelism, None)
        self._moves = StateMoves(context, settings, program)
        self._move: StateMove | None = None
        self.parallelism = parallelism
        self.listed = self._workers.listed
        self.parts: Parts = self._workers.parts
        self.index = ChangelogIndex(len(program.stages), parallelism)
        self.processes: dict[str, int] = {}
        self.places = WorkerPlaces()
        self._generation = 0
        self._spec: RunSpec | None = None
        self._changelog = Changelog(settings.scratch, 0)
        self._discovered: Mapping[str, set[Any]] = {}
        self._numbers: Mapping[str, Mapping[Any, int]] = {}
        self._pace = Pace(settings.options.pace, parallelism, program.least_batch)
        self._names, self._gauges = names_of_counts(program), program.gauges
        self._command = TickCommand(0, ())
        self._began = 0.0
        self._is_cut_short = False
        self._pieces: list[str] = []
        self._questions = TickQuestions()
        self._durable = self._kept = self._changed = NEVER
        self._written: tuple[int, Future[int]] | None = None
        self._needs_whole = False

    # What the coordinator asks

    def load(self, restored: RestoredState) -> OldStates:
        """Load the states without keys into workers that only hold them and never run; the others stay where they are.

        Return the positions of the sinks on the driver.
        """
        workers = self._workers
        if workers is None:
            raise RunFailed("the run has begun")
        self._move = move = self._moves.of_snapshot(restored, self.parallelism, self.listed)
        states, positions = self._sinks.split(self._moves.small_states(restored, move.told()))
        load_into(workers, self._program, replace(restored, states=states, stored=None))
        self.parts = workers.parts
        moved = any(worker.states.deltas() for stage in workers.stages for worker in stage)
        self._durable = restored.tick
        self._kept = restored.tick - 1 if moved else restored.tick
        return positions

    def open(self, tick: int) -> None:
        """Write the states of the workers into the changelog, for the processes that run them."""
        if self._workers is not None:
            bases = self._begin_generation(self._workers, self._move, tick)
            self._workers = self._move = None
            if any(base.moved for base in bases):
                self._kept = min(self._kept, tick - 1)

    def live(self) -> None:
        """Return None: the tasks build the readers, so only the first tick reports which are finished."""

    def pause(self) -> float:
        """Return the seconds left of the trigger interval, unless the last tick was cut short by its limit alone."""
        return 0.0 if self._is_cut_short else self._began + self._pace.pause - time.monotonic()

    def times(self) -> None:
        """Return None: only a tick can report the progress of operators."""

    def running(self) -> None:
        """Return None: the workers are in other processes."""

    def held(self) -> None:
        """Return None: only a tick can report open results."""

    def ask(self, questions: Sequence[Question]) -> None:
        """Pass questions on to the next tick."""
        self._questions.ask(questions)

    def answers(self) -> list[Outcome]:
        """Return the outcomes of the questions that the tick was asked."""
        return self._questions.outcomes(self._changelog, self.parallelism)

    def capture(
        self, session: Session, tick: int, sinks: SinkPositions, *, full: bool, alone: bool
    ) -> Future[int] | None:
        """Begin to write the changelog entries since the last snapshot."""
        since = self._since(tick, full=full)
        if since is None:
            self._needs_whole = True
            return None
        self._forget()
        base = self.index.covers(since)
        ours = sinks(base)
        where = self._settings.scratch, self._generation
        capture = ChangelogCapture(self._program, self._context, *where, self.index, self._sinks, self._sink_pieces)
        made = capture.write(session, tick, since, ours, base=base, alone=alone)
        self._written = tick, made
        return made

    def _since(self, tick: int, *, full: bool) -> int | None:
        """Return the tick after which all entries belong to a snapshot; None if they are not sufficient for it."""
        if not full or self.index.covers(self._kept):
            return self._kept
        return tick - 1 if self.index.covers(tick - 1) else None

    def settle(self, tick: int, snapshot: int | None) -> Iterable[tuple[str, Exception]]:
        """Record the end of a snapshot; the tasks of the next tick confirm its positions."""
        if self._written is not None and snapshot is not None:
            self._durable = tick
            self._kept = tick if tick > self._changed else min(tick, self._changed - 1)
            self._sink_pieces.forget(tick)
        self._written = None
        return ()

    def check_moves(self) -> None:
        """Do nothing: tasks have refused readers that can't move when they were built."""

    def rescale(self, parallelism: int) -> None:
        """Begin a generation with another number of workers."""
        move, workers = self._held(parallelism)
        workers.rescale(parallelism)
        self._begin_changed(workers, move)

    def change_parts(self, changes: Mapping[str, Change]) -> None:
        """Begin a generation that reads the current parts."""
        move, workers = self._held(self.parallelism)
        for name, change in changes.items():
            states: dict[int, Mapping[Any, Any]] = {}
            gone = set(change.gone)
            for worker in workers.stages[0]:
                states[worker.worker_id] = worker.states.live().get(name) or {}
                gone.difference_update(worker.states.take_finished(whole=True).get(name, ()))
            check_finished(self._program, name, gone, states)
        workers.add_parts({name: it.new for name, it in changes.items() if it.new})
        self._begin_changed(workers, move)

    @property
    def lanes(self) -> Sequence[int]:
        """A lane for each worker, as each has a task."""
        return range(self.parallelism)

    def move_parts(self, move: PartMove, limit: int) -> int | None:
        """Begin a generation with parts on another worker: all state is written again."""
        if self.index.bytes > limit:
            return self.index.bytes
        states, workers = self._held(self.parallelism, move)
        move_parts(workers, self._program, move)
        self._begin_changed(workers, states)
        return None

    def close(self, error: BaseException | None) -> None:
        """Close the changelog; the attempt releases the processes."""
        del error
        self._changelog.close()
        self._sink_pieces.close()

    # What a query needs

    @property
    def last_snapshot(self) -> LastSnapshot:
        """The newest durable snapshot. The readers confirm its positions on release."""
        return LastSnapshot(self._generation, self._durable, self.index.last[0])

    def spec(self) -> RunSpec:
        """Return the facts about the generation that tasks need.

        Raises:
            RunFailed: before `open`.
        """
        if self._spec is None:
            raise RunFailed("the run has not begun")
        return self._spec

    def command(self, tick: Tick) -> TickCommand:
        """Return the command of a tick; remove entries that only the last tick needed from the changelog."""
        self._forget()
        self._began = time.monotonic()
        self.parts = with_given(self.parts, tick.given)
        self._command = TickCommand.of(
            tick,
            self.index.last,
            given=self._numbered(tick.given),
            whole=self._needs_whole,
            rewrites=() if tick.final else self.index.rewrites,
            merges=() if tick.final else self.index.merges,
            queries=self._questions.packed(self._changelog, tick.number),
            most=self._pace.limit,
            durable=self._durable,
            writing=NEVER if self._written is None else self._written[0],
            live_runs=REGISTRY.live,
            moves=self.places.moves,
        )
        self._needs_whole = False
        return self._command

    def _numbered(self, given: Parts) -> list[tuple[str, int, list[int]]]:
        """Return the parts that a tick hands out as their numbers among those that waited: a command must be short."""
        return [
            (name, worker, [self._numbers[name][part] for part in them])
            for name, by_worker in given.items()
            for worker, them in enumerate(by_worker)
            if them
        ]

    def take(self, rows: list[Row], seconds: float) -> tuple[list[Report], float]:
        """Deliver the output of a tick to the sinks on the driver, and return the workers' reports.

        Args:
            rows: the rows that the tick's tasks returned.
            seconds: the duration of the tasks.

        Returns:
            The reports, and the duration of the tick including the sinks on the driver.

        Raises:
            MalflowError: if a task has failed, the reports don't agree, or a sink fails.
        """
        reports = self._reports(rows)
        began = time.monotonic()
        sinks = deliver(self._sinks.writers, sink_chunks(rows))
        seconds += time.monotonic() - began
        command = self._command
        self.processes.update({it.process: command.tick for it in reports})
        self.places.note(command.tick, reports)
        self._pieces = [name for it in reports for name in it.pieces]
        self._sink_pieces.note(self._generation, reports)
        for name, error in (failed for it in reports for failed in it.unconfirmed_errors()):
            self._requests.listeners.notify(ConfirmationFailed(command.tick, name, error))
        if not command.final:
            self.index.note(reports)
        most, most_bytes = max(it.report.polled for it in reports), max(it.size for it in reports)
        is_longer = command.whole or command.rewrites or command.merges
        whole = time.monotonic() - self._began  # with Spark's planning, during which records wait
        spent = seconds if self._settings.options.latency is None else whole
        self._is_cut_short = not is_longer and self._pace.note(most, spent, most_bytes)
        return [*(it.report for it in reports), sinks], seconds

    def _reports(self, rows: list[Row]) -> list[StageReport]:
        """Return the reports of the tick.

        Raises:
            MalflowError: if a task failed, or the reports don't agree.
        """
        failures = [loaded_error(row.blob) for row in rows if row.kind == RowKind.FAILURE]
        if failures:
            raise failures[0]
        tick, reports = self._command.tick, []
        for row in rows:
            if row.kind == RowKind.REPORT:
                told: StageReport = pickle.loads(row.blob)  # noqa: S301 - of this run
                counts = dict(zip(self._names, row.counts or (), strict=True))
                told.report.gauges = {name: counts.pop(name, 0) for name in self._gauges}
                told.report.counts = counts
                reports.append(told)
        found = sorted((it.stage, it.worker) for it in reports if it.tick == tick)
        if found != [(stage, at) for stage in range(len(self._program.stages)) for at in range(self.parallelism)]:
            raise RunFailed(f"tick {tick} needs one report per stage and worker; got reports of {found}")
        check_counts(reports, self._changelog)
        return reports

    # Generations

    def _make(
        self, parallelism: int, listed: Mapping[str, Sequence[Any]] | None, parts: Parts | None = None
    ) -> Workers:
        debug = self._settings.options.debug
        return Workers(self._program, parallelism=parallelism, tracked=True, debug=debug, listed=listed, parts=parts)

    def _begin_changed(self, workers: Workers, move: StateMove) -> None:
        """Begin a generation with states that differ from the last tick's; the next snapshot is a full one.

        This also holds if a snapshot of that tick is still being written.
        """
        tick = self._command.tick
        self._begin_generation(workers, move, tick)
        self._changed = tick
        self._kept = min(self._kept, tick - 1)

    def _begin_generation(self, workers: Workers, move: StateMove | None, tick: int) -> list[Base]:
        """Write all state as the first changelog entries of a new generation.

        Args:
            workers: the new workers, with the states that have no keys.
            move: the states with keys; None if there are none.
            tick: the last tick.
        """
        settings, options = self._settings, self._settings.options
        self._wait_for_snapshot()
        previous, self._generation = self._generation, self._generation + 1
        self._changelog.close()
        self._changelog = Changelog(settings.scratch, self._generation)
        self.parallelism, self.listed, self.parts = workers.parallelism, workers.listed, workers.parts
        bases = self._moves.write(move, workers, self._generation, tick)
        self.index = ChangelogIndex(len(self._program.stages), self.parallelism)
        for base in bases:
            if base.size is not None:
                self.index.add(base.stage, base.worker, tick, base.size, base.keys, whole=True)
        if previous:
            Changelog(settings.scratch, previous).clear()
        program, place = pack_program(self._payload(workers), settings.scratch, self._changelog)
        self._discovered = workers.discovered
        self._numbers = {name: {part: at for at, part in enumerate(some)} for name, some in workers.waiting.items()}
        self._pace = Pace(options.pace, self.parallelism, self._program.least_batch)
        self.places = WorkerPlaces()
        self._is_cut_short = False
        most = options.max_records_per_tick
        self._spec = RunSpec(
            self._generation,
            self.parallelism,
            program,
            place,
            settings.attempts,
            None if most is None else max(1, most // self.parallelism),
            options.poll_seconds,
            options.debug,
            self._number,
        )
        return bases

    def _payload(self, workers: Workers) -> bytes:
        """Pickle the program with the parts of its sources, also those that have appeared, and those that wait."""
        program = with_sink_proxies(self._program, encodes=self._encodes)
        return dumps_program(program, ON_SPARK, workers.parts, workers.discovered, workers.waiting)

    def _held(self, parallelism: int, parts: PartMove | None = None) -> tuple[StateMove, Workers]:
        """Begin to move the states after the last tick to new workers, or with some parts.

        Return the move, and workers as they are now that hold only the states without keys and never run.
        """
        workers = self._make(self.parallelism, self.listed, self.parts)
        workers.discovered.update(self._discovered)
        redeal = None
        moves = parallelism != self.parallelism or parts is not None
        if moves and keyed_by_parts(self._program, self._moves.stages):
            _apply(workers, self._moves.told_of_sources(self._generation, self.index.last))
            held = workers.held_parts()
            redeal = (
                workers.redealt(parallelism)
                if parts is None
                else redeal_of(self._program, self.parts, held, parts, self.listed)
            )
        move = self._moves.of_changelog(self._generation, self.index.last, parallelism, redeal)
        _apply(workers, move.told())
        return move, workers

    def _wait_for_snapshot(self) -> None:
        """Wait for the snapshot being written: its job reads the entries of the current generation."""
        if self._written is not None:
            self._written[1].exception()

    def _forget(self) -> None:
        """Remove obsolete changelog entries, and the output of the last tick. No task will repeat it."""
        reading = range(0) if self._written is None else range(self._kept + 1, self._written[0] + 1)
        self._changelog.discard(self.index.forget(reading), [*self._pieces, *self._questions.take_stored()])
        self._pieces = []


def _apply(workers: Workers, facts: Iterable[Told]) -> None:
    """Load the facts about old workers into workers that only hold them."""
    for told in facts:
        worker = workers.stages[told.stage][told.worker]
        worker.states.apply({name: Delta(states, whole=True) for name, states in told.states.items()})
        worker.states.finish(told.finished)

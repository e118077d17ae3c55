"""The live workers that a Python process of Spark caches, and how one catches up or is rebuilt."""

from __future__ import annotations

import os
import pickle
import platform
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from malflow.engine.parts.places import Parts
from malflow.engine.plan import Program
from malflow.engine.stage_operators import act_for
from malflow.engine.ticks import PollPacing, first_limit
from malflow.engine.worker import Worker
from malflow.errors import GraphError, MalflowError, release_all
from malflow.operators.contract import Operator
from malflow.runtime.spark.changelog.changelog import Changelog
from malflow.runtime.spark.changelog.entry import NEVER, ChangelogEntry
from malflow.runtime.spark.protocol import RunSpec, TickCommand, unpack_program
from malflow.runtime.spark.session.java import end_quietly
from malflow.runtime.spark.session.unix_sockets import sweep_here
from malflow.runtime.spark.tasks.polling import LastSnapshot, PositionMemory
from malflow.runtime.spark.tasks.records import Row, RowKind
from malflow.runtime.spark.tasks.worker_places import AGE, executor_of
from malflow.runtime.transport.error_pickles import dumps_error
from malflow.runtime.transport.pickling import dumps_by_value, missing_module
from malflow.runtime.transport.script_classes import install_classes
from malflow.snapshot.files.sections import Recount
from malflow.states.keyed import Delta, StateDelta
from malflow.words import error_line

__all__ = [
    "LIVE_WORKERS",
    "REGISTRY",
    "SHARED",
    "UNCONFIRMED",
    "CurrentWorker",
    "LiveRuns",
    "LiveWorker",
    "LoadedProgram",
    "ReleaseTask",
    "RunRegistry",
    "held_of",
    "load",
    "name_of",
    "process_name",
]


class LiveRuns(NamedTuple):
    """The runs that were live at some time. Ended runs stay ended, since a run does not start twice.

    Attributes:
        before: the number of the next run at that time.
        numbers: the numbers of the live runs.
    """

    before: int
    numbers: Collection[int]

    def is_over(self, run: int) -> bool:
        """Whether a run had ended at that time; False for a run that began later."""
        return run < self.before and run not in self.numbers


class RunRegistry:
    """Numbers runs in the order in which they begin, and knows which are live."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 1
        self._live: set[int] = set()

    def begin(self) -> int:
        """Return the number of a new run."""
        with self._lock:
            number = self._next
            self._next += 1
            self._live.add(number)
            return number

    def end(self, number: int) -> None:
        """Record the end of a run."""
        with self._lock, suppress(KeyError):
            self._live.remove(number)

    @property
    def live(self) -> LiveRuns:
        """The runs that are live now."""
        with self._lock:
            return LiveRuns(self._next, sorted(self._live))


REGISTRY: Final = RunRegistry()
"""The runs of this process, which share the processes of one Spark application, even from several sessions."""


@dataclass(slots=True)
class LiveWorker:
    """A cached worker between two ticks.

    Attributes:
        worker: the worker.
        tick: the last tick that it ran.
        last: the tick of the last changelog entry included in its state.
        recount: with `debug`, its state as recounted from the changelog.
        memory: the positions of its sources in the snapshots being written.
        pacing: the number of records that its sources poll at a time.
    """

    worker: Worker
    tick: int
    last: int
    recount: Recount | None = None
    memory: PositionMemory = field(default_factory=PositionMemory)
    pacing: PollPacing = field(default_factory=PollPacing)

    def begin_recount(self) -> None:
        """Recount the state of the worker from now on."""
        self.recount = Recount(None)
        self.check({name: Delta(state, whole=True) for name, state in self.worker.states.live().items()})

    def check(self, deltas: Mapping[str, Delta]) -> None:
        """Check that the changelog adds up to the states, if they are recounted.

        Raises:
            SnapshotError: if it does not.
        """
        if self.recount is not None:
            live, number = self.worker.states.live(), self.worker.worker_id
            changes = [StateDelta(number, name, delta, len(live[name])) for name, delta in deltas.items()]
            self.recount.check(changes, {(number, name): state for name, state in live.items()}, base=False)


class LoadedProgram(NamedTuple):
    """The program of a run in a process.

    Attributes:
        program: the program.
        parts: the parts of each source that each worker holds.
        discovered: the parts of each source that have appeared since the job's first start.
        waiting: the parts that no worker held when the generation began, of sources with parts that are handed out.
        changelog: the changelog of the generation.
    """

    program: Program
    parts: Parts
    discovered: Mapping[str, Collection[Any]]
    waiting: Mapping[str, Sequence[Any]]
    changelog: Changelog


UNCONFIRMED = 1
"""The number of a `ReleaseTask` row that reports a reader which could not confirm a position."""

LIVE_WORKERS: dict[tuple[str, int, int, int], LiveWorker] = {}
"""The cached workers, by run, generation, stage and number."""

SHARED: dict[tuple[str, int], dict[int, Operator]] = {}
"""The operators that close a resource shared by all workers of this process.

By run and generation, and the resource's `id()`: each generation has its own copy of the program.
"""

_UNTOLD: dict[str, list[bytes]] = {}
"""The errors of resources of earlier generations that could not be closed, by run; told when the run is released."""

_LOADED: dict[tuple[str, int], LoadedProgram] = {}

_NUMBERS: dict[str, int] = {}
"""The numbers of the runs with cached data here."""


def name_of(spec: RunSpec, stage: int, worker: int) -> tuple[str, int, int, int]:
    """Return the key of a worker in `LIVE_WORKERS`."""
    return spec.scratch.run, spec.generation, stage, worker


def process_name() -> str:
    """Return a name for this process that is unique in the cluster, and begins with its executor's."""
    return f"{platform.node()}:{os.getppid()}:{os.getpid()}"


def held_of(run: str) -> int:
    """Return the number of workers' stages of a run that this process holds."""
    return sum(name[0] == run for name in LIVE_WORKERS)


class ReleaseTask:
    """Spark task that evicts a run's cached workers and sinks; yields the process's name and one row per error.

    Args:
        run: the id of the run.
        pause: seconds to occupy the process, for other tasks to run in other processes.
        snapshot: the snapshot with positions to confirm first; None without a snapshot, or if the run failed.
    """

    def __init__(self, run: str, pause: float, snapshot: LastSnapshot | None) -> None:
        self._run = run
        self._pause = pause
        self._snapshot = snapshot

    def __call__(self, nothing: Iterator[Any]) -> Iterator[Row]:
        """Close sinks, suspend readers, drop states."""
        end_quietly()
        yield from nothing
        unconfirmed = [] if self._snapshot is None else _confirm(self._run, self._snapshot)
        rows = [Row(0, RowKind.REPORT, UNCONFIRMED, 0, error) for error in unconfirmed]
        rows += [Row(0, RowKind.FAILURE, 0, 0, error) for error in _release(self._run)]
        threading.Event().wait(self._pause)
        yield from (Row(0, RowKind.REPORT, 0, 0, process_name().encode()), *rows)


def _confirm(run: str, snapshot: LastSnapshot) -> list[bytes]:
    """Confirm the positions of the last snapshot for workers in its state; return the errors of readers."""
    errors: list[Exception] = []
    for (of, generation, stage, worker), live in LIVE_WORKERS.items():
        if (of, generation, stage) == (run, snapshot.generation, 0) and live.last == snapshot.last[worker]:
            sources = [source for source in live.worker.sources if source.confirms]
            live.memory.note(sources, live.last, snapshot.tick + 1, (snapshot.tick,))
            errors += live.memory.confirm(sources, snapshot.tick)
    return [dumps_error(error) for error in errors if isinstance(error, MalflowError)]


def _release(run: str) -> list[bytes]:
    workers = [LIVE_WORKERS.pop(name).worker for name in [name for name in LIVE_WORKERS if name[0] == run]]
    for key in [key for key in _LOADED if key[0] == run]:
        del _LOADED[key]
    shared = _taken_shared(run, None)
    _NUMBERS.pop(run, None)
    return [*_UNTOLD.pop(run, ()), *_errors_of((*(worker.close for worker in workers), *shared))]


def _taken_shared(run: str, before: int | None) -> list[Callable[[], object]]:
    """Forget the shared resources of a run, or of its generations before one; return what closes them."""
    taken = [key for key in SHARED if key[0] == run and (before is None or key[1] < before)]
    operators = [operator for key in taken for operator in SHARED.pop(key).values()]
    return [partial(act_for, operator, BaseException, operator.close) for operator in operators]


def _errors_of(releases: Iterable[Callable[[], object]]) -> list[bytes]:
    try:
        release_all(releases)
    except MalflowError as error:
        return [dumps_error(error)]
    return []


def load(spec: RunSpec, command: TickCommand) -> LoadedProgram:
    """Return the program, loaded once per process and generation; evict runs that have ended."""
    live = LiveRuns(*command.live_runs)
    for run in [run for run, number in _NUMBERS.items() if live.is_over(number)]:
        with suppress(Exception):  # the run has ended: there is no one to report it to
            _release(run)
    key = (spec.scratch.run, spec.generation)
    if key not in _LOADED:
        sweep_here()
        _release_before(*key)
        changelog = Changelog(spec.scratch, spec.generation)
        classes, payload = unpack_program(spec, changelog)
        _LOADED[key] = LoadedProgram(*_read(classes, payload), changelog)
        _NUMBERS[spec.scratch.run] = spec.number
    _evict(*key, command)
    return _LOADED[key]


def _evict(run: str, generation: int, command: TickCommand) -> None:
    """Drop the workers that run elsewhere: else each process would come to hold the state of all of them."""
    executor, tick = executor_of(process_name()), command.tick
    gone = {(stage, worker): at for stage, worker, where, at in command.moves if where != executor}
    for name, live in [*LIVE_WORKERS.items()]:
        if name[:2] == (run, generation) and (live.tick < tick - AGE or live.tick < gone.get(name[2:], live.tick)):
            with suppress(Exception):  # its state is the changelog's, and its readers are open elsewhere
                LIVE_WORKERS.pop(name).worker.close()


_Payload: TypeAlias = tuple[Program, Parts, Mapping[str, Collection[Any]], Mapping[str, Sequence[Any]]]


def _read(classes: bytes, payload: bytes) -> _Payload:
    try:
        install_classes(classes)
        read: _Payload = pickle.loads(payload)  # noqa: S301 - the driver wrote it
    except Exception as error:
        raise GraphError(
            f"the dataflow can't be read by the processes of Spark: {error_line(error)}"
            f"{missing_module(error) or '; it is pickled, and everything in it must survive the round trip'}"
        ) from error
    return read


def _release_before(run: str, generation: int) -> None:
    """Release earlier generations of a run, with their sinks: the new one has sinks of its own."""
    for name in [name for name in LIVE_WORKERS if name[0] == run and name[1] < generation]:
        with suppress(Exception):  # an earlier generation: there is no one to report it to
            LIVE_WORKERS.pop(name).worker.close()
    if errors := _errors_of(_taken_shared(run, generation)):
        _UNTOLD.setdefault(run, []).extend(errors)
    for loaded in [it for it in _LOADED if it[0] == run and it[1] < generation]:
        del _LOADED[loaded]


class CurrentWorker:
    """Finds the worker that a tick runs on.

    Args:
        spec: the run.
        loaded: its program, as this process has it.
        stage: the stage of the worker.
        number: the number of the worker.
        command: the tick.
    """

    def __init__(self, spec: RunSpec, loaded: LoadedProgram, stage: int, number: int, command: TickCommand) -> None:
        self._spec = spec
        self._loaded = loaded
        self._stage = stage
        self._number = number
        self._command = command
        self._last = command.last[stage][number]

    def take(self) -> LiveWorker:
        """Take the worker out of the cache, and bring it up to date; make it if need be.

        Raises:
            RunFailed: if entries of the changelog can't be read.
            OperatorError: if user code fails.
        """
        name = name_of(self._spec, self._stage, self._number)
        held = LIVE_WORKERS.pop(name, None)  # so that no later attempt finds it in a partial state
        if held is not None and held.tick < self._command.tick and held.last == self._last:
            return held
        if held is not None and (missed := self._missed_entries(held)):
            self._catch_up(held, missed)
        else:
            pacing = PollPacing(first_limit(debug=self._spec.debug), self._loaded.program.least_batch)
            held = LiveWorker(self._made(), NEVER, NEVER, pacing=pacing)
            self._catch_up(held, self._loaded.changelog.since(self._stage, self._number, self._last, NEVER))
        if self._spec.debug:
            held.begin_recount()
        return held

    def _missed_entries(self, held: LiveWorker) -> Sequence[ChangelogEntry]:
        """Return the entries that a cached worker has missed; if it can't catch up, close it and return no entries."""
        try:
            if held.tick < self._command.tick and held.last < self._last:
                held.worker.park()
                changes = self._loaded.changelog.since(self._stage, self._number, self._last, held.last)
                if changes[0].follows(held.last):  # otherwise its state was discarded
                    return changes
        except BaseException as error:
            release_all((held.worker.close,), error)
            raise
        held.worker.close()
        return ()

    def _made(self) -> Worker:
        program, parts, discovered, waiting, _ = self._loaded
        worker = Worker(
            program,
            self._stage,
            self._number,
            parallelism=self._spec.parallelism,
            parts=parts,
            waiting=waiting,
            tracked=True,
            debug=self._spec.debug,
            errors=BaseException,
            pickle_reader=dumps_by_value,
        )
        if discovered:
            worker.set_parts(parts, discovered, waiting)
        key = self._spec.scratch.run, self._spec.generation
        SHARED.setdefault(key, {}).update((id(it.resource), it) for it in worker.shared)
        return worker

    def _catch_up(self, live: LiveWorker, changes: Iterable[ChangelogEntry]) -> None:
        """Apply the entries that a worker has missed, and open its readers at the positions in them."""
        worker = live.worker
        try:
            for change in changes:
                if worker.sources and change.before == live.last > NEVER:
                    live.memory.note(worker.sources, live.last, change.tick, self._command.snapshots)
                worker.states.apply(change.deltas)
                worker.states.finish(change.finished)
                live.last = change.tick
            worker.open()
        except BaseException as error:
            release_all((worker.close,), error)
            raise

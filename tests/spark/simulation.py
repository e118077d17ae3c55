"""A simulated Spark in this process: a test scripts which process runs which task, and which faults occur.

All of the runtime is real, from the driver to the files; only what moves rows and starts tasks is not Spark's.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import chain, pairwise
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from malflow.engine.plan import Program
from malflow.errors import OperatorError, RunFailed, StoreError
from malflow.runtime.attempts import Restarts
from malflow.runtime.requests import pauses
from malflow.runtime.requests.answers import RescaleRequest, SnapshotRequest
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.restarts import RestartPolicy
from malflow.runtime.spark import changelog_index, settings
from malflow.runtime.spark import handle as run_attempt
from malflow.runtime.spark.changelog.changelog import ScratchFolder
from malflow.runtime.spark.handle import RunAttempt
from malflow.runtime.spark.protocol import RunSpec, TickCommand
from malflow.runtime.spark.settings import Settings, SparkOptions
from malflow.runtime.spark.tasks import live_workers as worker_cache
from malflow.runtime.spark.tasks.records import Row, RowKind
from malflow.runtime.spark.tasks.stage import StageAttempt
from malflow.runtime.transport.error_pickles import dumps_error
from malflow.snapshot.persistence import Persistence
from malflow.states import keyed as state
from malflow.testing.faults import Crash

__all__ = ["Cluster", "Later", "Plan", "settings_at", "simulated"]

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """The events of one tick.

    Attributes:
        places: the process of each task, in their order; the last ones again and again.
        again: the tasks that are done twice, the first time in the next process; both must send the same.
        killed: the process that is killed before the tick.
        asks: whether somebody asks for a snapshot.
        writes: whether snapshots that are under way get done.
        down: whether the tasks that write snapshots fail.
        doubled: whether the tasks that write snapshots are done twice; the second answer counts.
        rescale: the number of workers somebody asks for.
        crash: whether the driver dies after the tick.
    """

    places: tuple[int, ...] = (0,)
    again: frozenset[int] = frozenset()
    killed: int | None = None
    asks: bool = False
    writes: bool = True
    down: bool = False
    doubled: bool = False
    rescale: int | None = None
    crash: bool = False


class Cluster:
    """Runs programs tick by tick as the plans say; then without faults until they end.

    Args:
        plans: what happens in each tick.
        after_tick: is called after each tick, with the spec, and the number of the tick and the index of the changelog.
        later: does the work of the background, where the persistence has it.
        tries: how often a task is tried that fails, each time in the next process.

    Attributes:
        takeovers: how often a task was done by another process than before.
        slices: how many tasks each snapshot had.
    """

    def __init__(
        self,
        plans: Iterable[Plan],
        after_tick: Callable[[RunSpec, Any], object] = lambda *_: None,
        later: Later | None = None,
        tries: int = 1,
    ) -> None:
        self.plans = deque(plans)
        self.after_tick = after_tick
        self.later = Later() if later is None else later
        self.tries = tries
        self.plan = Plan()
        self.attempt: RunAttempt | None = None
        self.requests = RunRequests()
        self.takeovers = 0
        self.slices: list[int] = []
        self._processes: dict[int, tuple[dict[Any, Any], ...]] = {}
        self._last_place: dict[Any, int] = {}

    def run(self, program: Program, started: Settings, parallelism: int) -> None:
        """Run a program to its end, and start it again where a plan lets the driver die."""
        while True:
            self.requests = self.new_requests(program)
            restarts = Restarts(program, None, self.requests, keeps=False)
            self.attempt = RunAttempt(self, program, parallelism, started, self.requests, restarts)  # type: ignore[arg-type] # stands for a session
            try:
                self.attempt.run()
            except Crash:
                pass
            except (RunFailed, StoreError) as error:
                if "the driver died" not in str(error) and not self.plan.down:
                    raise
            else:
                return
            finally:
                self.later.drop()
            self.plan = Plan()
            started = _restarted(started)

    def new_requests(self, _program: Program) -> RunRequests:
        """Return the requests of an attempt; those of the one before are lost with its driver."""
        return RunRequests()

    @property
    def sparkContext(self) -> Cluster:  # noqa: N802 - as Spark names it
        """Stand for Spark's context."""
        return self

    _jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))

    defaultParallelism = 4  # noqa: N815 - as Spark names it

    def parallelize(self, items: Iterable[Any], slices: int) -> _Tasks:
        """Return a job of tasks."""
        self.slices.append(slices)
        them = list(items)
        cuts = [len(them) * at // slices for at in range(slices + 1)]
        parts = [them[start:stop] for start, stop in pairwise(cuts)]
        return _Tasks(parts, down=self.plan.down, doubled=self.plan.doubled)

    def runJob(self, tasks: _Tasks, work: Callable[[Any], Any], partitions: list[int]) -> list[Any]:  # noqa: N802
        """Compute some partitions."""
        found: list[Any] = []
        for at in partitions:
            items = tasks.partitions[at]
            later = [made for item in items if callable(item) for made in item()]
            found += work(later or iter(items))
        return found

    def getLocalProperty(self, _: str) -> None:  # noqa: N802 - as Spark names it
        """Return None."""

    def setLocalProperty(self, _name: str, _value: str | None) -> None:  # noqa: N802 - as Spark names it
        """Do nothing."""

    def broadcast(self, value: Any) -> SimpleNamespace:
        """Return the value."""
        return SimpleNamespace(value=value, destroy=bool)

    def ticks(self, spec: RunSpec, program: Program, command: TickCommand | None, on_tick: Any) -> None:
        """Take ticks until there is no next one."""
        while command is not None:
            self.plan = self.plans.popleft() if self.plans else Plan()
            self._ask()
            rows = self._tick(spec, program, TickCommand.loads(command.dumps()))
            if self.plan.crash and not command.final:
                raise RunFailed("the driver died")
            command = on_tick(rows)
            if self.plan.writes:
                self.later.catch_up()
            self.after_tick(spec, self._seen())

    def _seen(self) -> SimpleNamespace:
        assert self.attempt is not None
        host, coordinator = self.attempt._host, self.attempt._coordinator
        assert host is not None
        assert coordinator is not None
        return SimpleNamespace(tick=coordinator.ticks.number, index=host.index)

    def _ask(self) -> None:
        assert self.attempt is not None
        if self.plan.asks and self.attempt.has_begun:
            self.requests.mailbox.post(SnapshotRequest())
        if self.plan.rescale is not None:
            self.requests.mailbox.post(RescaleRequest(self.plan.rescale))
        if self.plan.killed is not None:
            self._processes.pop(self.plan.killed, None)

    def _tick(self, spec: RunSpec, program: Program, command: TickCommand) -> list[Row]:
        rows: list[list[Row]] = [[] for _ in range(spec.parallelism)]
        task = 0
        for stage in range(len(program.stages)):
            given: list[list[Row]] = [[] for _ in range(spec.parallelism)]
            for worker in range(spec.parallelism):
                place = self.plan.places[min(task, len(self.plan.places) - 1)]
                what = spec, stage, worker, command, rows[worker]
                first = self._tried(place + 1, *what) if task in self.plan.again else None
                sent = self._tried(place, *what)
                assert first is None or _told(first) == _told(sent), (
                    f"stage {stage} of worker {worker} has sent something else again"
                )
                for row in sent:
                    given[row.worker].append(row)
                task += 1
            rows = given
        return [row for some in rows for row in some]

    def _tried(self, place: int, *task: Any) -> list[Row]:
        for number in range(self.tries - 1):
            try:
                return self._attempt(place + number, *task)
            except OperatorError:
                pass
        return self._attempt(place + self.tries - 1, *task)

    def _attempt(
        self, place: int, spec: RunSpec, stage: int, worker: int, command: TickCommand, rows: list[Row]
    ) -> list[Row]:
        name = spec.scratch.run, spec.generation, stage, worker
        self.takeovers += self._last_place.get(name, place) != place
        self._last_place[name] = place
        kept = (
            worker_cache.LIVE_WORKERS,
            worker_cache.SHARED,
            worker_cache._LOADED,
            worker_cache._NUMBERS,
            worker_cache._UNTOLD,
        )
        for mine, theirs in zip(kept, self._processes.get(place, ({},) * len(kept)), strict=True):
            mine.update(theirs)  # type: ignore[attr-defined] # dicts, all of them
        try:
            return list(StageAttempt(spec, stage, worker, command).take(list(rows)))
        finally:
            self._processes[place] = tuple(dict(mine) for mine in kept)  # type: ignore[call-overload] # as above
            for mine in kept:
                mine.clear()  # type: ignore[attr-defined] # as above


def _told(rows: list[Row]) -> list[Any]:
    """Return rows with their reports, but not where they come from."""
    told: list[Any] = []
    for row in rows:
        if row.kind == RowKind.REPORT:
            told.append((row._replace(blob=b""), replace(pickle.loads(row.blob), process="", copies=0, read=0)))
        else:
            told.append(row)
    return told


@dataclass
class _Tasks:
    """Stands for an RDD: its partitions are computed when it is made."""

    partitions: list[list[Any]]
    down: bool = False
    doubled: bool = False

    def map(self, work: Callable[[Any], Any]) -> _Tasks:
        for item in chain.from_iterable(self.partitions) if self.doubled else ():
            work(item)
        return _Tasks([[work(item) for item in items] for items in self.partitions], self.down)

    def mapPartitions(self, work: Callable[[Any], Any]) -> _Tasks:  # noqa: N802 - as Spark names it
        return _Tasks([[*work(iter(items))] for items in self.partitions])

    def mapPartitionsWithIndex(self, work: Callable[[int, Any], Any]) -> _Tasks:  # noqa: N802 - as Spark names it
        return _Tasks([[partial(work, at, iter(items))] for at, items in enumerate(self.partitions)])

    def partitionBy(self, number: int, of: Callable[[Any], int]) -> _Tasks:  # noqa: N802 - as Spark names it
        """Shuffle pairs; those from later partitions arrive first."""
        partitions: list[list[Any]] = [[] for _ in range(number)]
        for items in reversed(self.partitions):
            for item in items:
                partitions[of(item[0])].append(item)
        return _Tasks(partitions)

    def collect(self) -> list[Any]:
        answers = [item for items in self.partitions for item in items]
        if self.down and answers:
            answers[-1] = (answers[-1][0], dumps_error(StoreError("the store is down")))
        return answers


class Later:
    """Does what it was given when it is told to, or when somebody waits for it."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Callable[[], Any], _Awaited[Any]]] = deque()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Note some work."""
        future: _Awaited[T] = _Awaited(self)
        self._queue.append((work, future))
        return future

    def catch_up(self) -> None:
        """Do all of it."""
        while self._queue:
            work, future = self._queue.popleft()
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - the future tells it
                future.set_exception(error)

    def drop(self) -> None:
        """Drop all queued work, like a process that dies."""
        self._queue.clear()

    def close(self, *, wait: bool) -> None:
        """Stop accepting work."""
        if wait:
            self.catch_up()


class _Awaited(Future[T]):
    def __init__(self, later: Later) -> None:
        super().__init__()
        self._later = later

    def result(self, timeout: float | None = None) -> T:
        self._catch_up()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._catch_up()
        return super().exception(timeout)

    def _catch_up(self) -> None:
        if not self.done():
            self._later.catch_up()


class _Query:
    """Stands for a query of Spark; its session is a cluster."""

    query = None

    def __init__(self, session: Cluster, _name: str, spec: RunSpec, program: Program, *how: Any) -> None:
        self._cluster = session
        self._what = spec, program
        (self._on_tick,) = how
        self._first: TickCommand | None = None

    def start(self, first: TickCommand) -> None:
        self._first = first

    def wait(self) -> None:
        self._cluster.ticks(*self._what, self._first, self._on_tick)

    def leave(self) -> None:
        pass


def settings_at(url: str, persistence: Persistence) -> Settings:
    """Return the settings of a run with a given scratch place."""
    options = SparkOptions(
        persistence=persistence, scratch=url, restart=RestartPolicy(0, timedelta(0)), name="simulated"
    )
    return Settings(options, 1, ScratchFolder(url, {}, "run-0", b"k" * 32, pickle.dumps({})))


def _restarted(ended: Settings) -> Settings:
    number = int(ended.scratch.run.removeprefix("run-")) + 1
    return replace(ended, scratch=replace(ended.scratch, run=f"run-{number}"))


@contextmanager
def simulated(*, slack: int = 2, longest: int = 6, merges: bool = False) -> Iterator[None]:
    """Make drivers run on simulated clusters, without pauses.

    Args:
        slack: how many keys may change beside three quarters of them, before a whole delta is the cheaper one.
        longest: how many changes a process may have to read.
        merges: whether changes are merged where otherwise all state would be written again.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_attempt, "Query", _Query)
        patched.setattr(settings, "_POLL_SECONDS", 0.0)
        patched.setattr(pauses, "_SHORTEST", 0.0)
        patched.setattr(pauses, "_LONGEST", 0.0)
        patched.setattr(changelog_index, "_LONGEST", longest)
        if merges:
            patched.setattr(changelog_index, "_REWRITTEN", 0.0)
            patched.setattr(changelog_index, "_SMALL", -1)
        patched.setattr(state, "SLACK", slack)
        yield

"""The tasks of the Spark job that moves states to the workers of a new generation.

A first kind of task reads the states of old workers, from the changelog or from a snapshot, and sends the states of
keys to their new workers, in pieces. A second kind takes the pieces for a new worker, and writes its first changelog
entries. The states without keys are small: the driver takes them, and decides where they go.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from malflow.engine.state_specs import States
from malflow.engine.states.migration import Migrations, migrated
from malflow.engine.states.rescale import KeyRoute, united
from malflow.errors import MalflowError, RunFailed
from malflow.runtime.process_state import rarer_collections
from malflow.runtime.spark.changelog.changelog import Changelog, ScratchFolder
from malflow.runtime.spark.changelog.entry import NEVER, ChangelogEntry
from malflow.runtime.spark.session.java import end_quietly, spark_message
from malflow.runtime.spark.tasks.stage_output import merged, packed
from malflow.runtime.transport.error_pickles import dumps_error, loaded_error
from malflow.runtime.transport.script_classes import install_classes
from malflow.runtime.transport.states import dumps_state, loaded_state
from malflow.snapshot.files.stored_states import FoundSection, StoredStates
from malflow.states.keyed import Delta

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = [
    "Base",
    "Piece",
    "ReadChangelog",
    "ReadFiles",
    "RouteSections",
    "Routing",
    "Told",
    "WriteBases",
    "results",
    "routed",
    "task_count",
]

_KEYS = 4096
"""Keys of a state in a piece."""

Piece: TypeAlias = tuple[int, bytes]
"""The number of a new worker, or the number of all of them for the driver, and the content, pickled."""

_Task: TypeAlias = Callable[[], Iterator[Piece]]

Others: TypeAlias = Sequence[tuple[Mapping[str, Delta], Mapping[str, Collection[Any]]]]
"""For each stage of a worker, the states without keys, and the finished parts of its sources."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The way of states to new workers.

    Attributes:
        workers: the number of new workers.
        routes: the route of each state with keys; None where every key stays with its worker.
        migrations: the operators with migrated states, and the version or layout of the states.
    """

    workers: int
    routes: Mapping[str, KeyRoute | None]
    migrations: Migrations = field(default_factory=dict)


class Told(NamedTuple):
    """The facts about an old worker for the driver.

    Attributes:
        worker: the worker.
        stage: the stage; `NEVER` for all of them.
        counts: the number of keys of each state, before any migration.
        states: the states without keys.
        finished: the finished parts of sources.
    """

    worker: int
    stage: int
    counts: Mapping[str, int]
    states: Mapping[str, States]
    finished: Mapping[str, Collection[Any]]


class Base(NamedTuple):
    """The first changelog entry of a stage of a new worker.

    Attributes:
        stage, worker: the stage and the worker.
        size: the bytes of the entry; None if there are no states, and so no entry.
        keys: the number of keys of each state.
        moved: whether a key has come from another worker.
    """

    stage: int
    worker: int
    size: int | None
    keys: Mapping[str, int]
    moved: bool


def routed(
    routing: Routing,
    worker: int,
    states: Mapping[str, States],
    *,
    stage: int = NEVER,
    finished: Mapping[str, Collection[Any]] | None = None,
) -> Iterator[Piece]:
    """Yield the states of an old worker in pieces.

    Raises:
        SnapshotError: if an operator has no migration.
        OperatorError: if user code fails, or a state can't be pickled.
    """
    counts = {name: len(held) for name, held in states.items()}
    small = {name: held for name, held in states.items() if name not in routing.routes}
    for name, route in routing.routes.items():
        if (held := states.get(name)) is None:
            continue
        if name in routing.migrations:
            held = migrated(*routing.migrations[name], held)
        if route is None:
            yield from _pieces(worker, name, worker, held)
            continue
        new: list[dict[Any, Any]] = [{} for _ in range(routing.workers)]
        route.deal(held, new)
        for target, part in enumerate(new):
            yield from _pieces(target, name, worker, part)
    yield routing.workers, pickle.dumps(Told(worker, stage, counts, small, finished or {}), 5)


def _pieces(target: int, name: str, worker: int, states: States) -> Iterator[Piece]:
    items = iter(states.items())
    number = 0
    while some := dict(islice(items, _KEYS)):
        yield target, pickle.dumps((name, worker, number, dumps_state(name, some)), 5)
        number += 1


@dataclass(frozen=True, slots=True)
class ReadChangelog:
    """Spark task that reads the states of old workers from the changelog.

    Attributes:
        place: the scratch folder.
        generation: the generation of the old workers.
        routing: the `Routing`, pickled.
        target: the number of new workers.
        only: the names of the states to read; None for all.
    """

    place: ScratchFolder
    generation: int
    routing: bytes
    target: int
    only: frozenset[str] | None = None

    def __call__(self, items: Iterable[tuple[int, int, int]]) -> Iterator[Piece]:
        """Read the states of some workers, each given by its stage, its number and the tick of its last entry."""
        return _reported(self.target, lambda: self._read(items))

    def _read(self, items: Iterable[tuple[int, int, int]]) -> Iterator[Piece]:
        routing = _loaded(self.place, self.routing)
        changelog = Changelog(self.place, self.generation)
        for stage, worker, last in items:
            entry = merged(changelog.since(stage, worker, last, NEVER))
            states = {
                name: delta.changed for name, delta in entry.deltas.items() if self.only is None or name in self.only
            }
            yield from routed(routing, worker, states, stage=stage, finished=entry.finished)


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Spark task that reads data files of a snapshot, and sends each section to the task of its worker.

    Attributes:
        place: the scratch folder, with the classes of the script.
        stored: the states in the store.
        workers: the number of old workers; a task of this number takes the errors.
    """

    place: ScratchFolder
    stored: StoredStates
    workers: int

    def __call__(self, files: Iterable[int]) -> Iterator[Piece]:
        """Read some of the files, given by their indices."""
        return _reported(self.workers, lambda: self._read(files))

    def _read(self, files: Iterable[int]) -> Iterator[Piece]:
        for at in files:
            for number, found in enumerate(self.stored.read(at)):
                yield min(found.section.worker, self.workers), pickle.dumps(((at, number), found), 5)


@dataclass(frozen=True, slots=True)
class RouteSections:
    """Spark task that decodes the states of an old worker from its sections in a snapshot.

    Attributes:
        place, stored: as in `ReadFiles`.
        routing: the `Routing`, pickled.
        target: the number of new workers.
    """

    place: ScratchFolder
    stored: StoredStates
    routing: bytes
    target: int

    def __call__(self, sent: Iterable[Piece]) -> Iterator[Piece]:
        """Decode the states in sections that `ReadFiles` sent."""
        return _reported(self.target, lambda: self._route(sent))

    def _route(self, sent: Iterable[Piece]) -> Iterator[Piece]:
        by_worker: defaultdict[int, list[tuple[Any, FoundSection]]] = defaultdict(list)
        for _, piece in sent:
            content = pickle.loads(piece)  # noqa: S301 - of this run
            if isinstance(content, bytes):  # an error
                yield self.target, piece
                continue
            by_worker[content[1].section.worker].append(content)
        routing = _loaded(self.place, self.routing)
        for worker in sorted(by_worker):
            found = sorted(by_worker.pop(worker), key=lambda it: it[0])
            states = self.stored.states(section for _, section in found)
            del found
            yield from routed(routing, worker, states)


@dataclass(frozen=True, slots=True)
class WriteBases:
    """Spark task that writes the first changelog entries of a new worker.

    Attributes:
        place, generation: the changelog.
        tick: the tick of the entries.
        stages: the stage of each state with keys.
    """

    place: ScratchFolder
    generation: int
    tick: int
    stages: Mapping[str, int]

    def __call__(self, worker: int, sent: Iterable[Piece], others: bytes) -> list[Base]:
        """Write the entries of a worker.

        Args:
            worker: the worker.
            sent: the pieces that were sent to it.
            others: its `Others`, pickled.

        Raises:
            SnapshotError: if a key has come from two workers.
            OperatorError: if a state can't be pickled or unpickled.
            StoreError: if an entry can't be written.
        """
        install_classes(self.place.classes)
        arrived: defaultdict[str, list[tuple[int, int, bytes]]] = defaultdict(list)
        for _, piece in sent:
            name, *part = pickle.loads(piece)  # noqa: S301 - of this run
            arrived[name].append(tuple(part))
        changelog = Changelog(self.place, self.generation)
        of_stages: Others = pickle.loads(others)  # noqa: S301 - of this run
        return [self._write(changelog, stage, worker, arrived, *it) for stage, it in enumerate(of_stages)]

    def _write(
        self,
        changelog: Changelog,
        stage: int,
        worker: int,
        arrived: Mapping[str, list[tuple[int, int, bytes]]],
        others: Mapping[str, Delta],
        finished: Mapping[str, Collection[Any]],
    ) -> Base:
        deltas = dict(others)
        moved = False
        for name in [name for name, of in self.stages.items() if of == stage]:
            parts = sorted(arrived.get(name, ()), key=lambda part: part[:2])
            moved = moved or any(old != worker for old, _, _ in parts)
            deltas[name] = Delta(united(name, (loaded_state(name, data) for _, _, data in parts)), whole=True)
        keys = {name: len(delta.changed) for name, delta in deltas.items()}
        if not finished and not any(keys.values()):
            return Base(stage, worker, None, {}, moved=False)
        written = packed(ChangelogEntry(self.tick, NEVER, deltas, whole=True, finished=finished))
        changelog.write(stage, worker, written)
        return Base(stage, worker, written.size, keys, moved)


def _loaded(place: ScratchFolder, routing: bytes) -> Routing:
    install_classes(place.classes)
    loaded: Routing = pickle.loads(routing)  # noqa: S301 - of this run
    return loaded


def _reported(target: int, task: _Task) -> Iterator[Piece]:
    """Yield the pieces of a task; an error becomes a piece for `target`, to keep its type."""
    end_quietly()
    try:
        with rarer_collections():
            yield from task()
    except MalflowError as error:
        yield target, pickle.dumps(dumps_error(error), 5)


S = TypeVar("S")
T = TypeVar("T")


def task_count(context: SparkContext, items: int, *, alone: bool) -> int:
    """Return the number of tasks for some items: `alone`, the job may use all slots; otherwise half are for ticks."""
    return items if alone else min(items, max(1, context.defaultParallelism // 2))


def results(context: SparkContext, task: Callable[[S], T], items: Sequence[S], tasks: int) -> list[T]:
    """Call a task for each item in a Spark job, and return the results in the order of the items.

    Items that follow each other are in different tasks, if possible.

    Raises:
        MalflowError: the first error that a task raised.
        RunFailed: if the job failed.
    """
    order = [at for first in range(tasks) for at in range(first, len(items), tasks)]
    try:
        done = context.parallelize([items[at] for at in order], tasks).map(_with_error(task)).collect()
    except Exception as error:
        raise RunFailed(f"Spark could not write a snapshot: {spark_message(error)}") from error
    failure = next((failure for _, failure in done if failure is not None), None)
    if failure is not None:
        raise loaded_error(failure)
    by_item = dict(zip(order, (result for result, _ in done), strict=True))
    return [by_item[at] for at in range(len(items))]


def _with_error(task: Callable[[S], T]) -> Callable[[S], tuple[Any, bytes | None]]:
    def write(item: S) -> tuple[Any, bytes | None]:
        end_quietly()
        try:
            with rarer_collections():
                return task(item), None
        except MalflowError as error:
            return None, dumps_error(error)

    return write

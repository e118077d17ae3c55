"""The driver's side of moving states to a new generation of workers: by Spark jobs, so that it never holds them.

The states of keys are shuffled by new worker. A first job fetches only the driver's part; a second one writes the
new workers' first changelog entries. Spark keeps the shuffled pieces in between, so each state is read once.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from malflow.engine.parts.places import Redeal
from malflow.engine.plan import Program
from malflow.engine.state_specs import OldStates, States, stages_of_keys
from malflow.engine.states.loading import check_manifest_facts, redealt, with_present_names
from malflow.engine.states.migration import migrations
from malflow.engine.states.rescale import KeyRoute, key_routes, keyed_by_parts
from malflow.engine.worker import Worker
from malflow.engine.workers import Workers
from malflow.errors import MalflowError, RunFailed, SnapshotCorrupt
from malflow.runtime.process_state import rarer_collections
from malflow.runtime.spark.changelog.entry import NEVER
from malflow.runtime.spark.changelog.leftovers import remove_shuffles, shuffle_of
from malflow.runtime.spark.session.java import spark_message
from malflow.runtime.spark.settings import Settings
from malflow.runtime.spark.state_tasks import (
    Base,
    ReadChangelog,
    ReadFiles,
    RouteSections,
    Routing,
    Told,
    WriteBases,
    routed,
)
from malflow.runtime.transport.error_pickles import dumps_error, loaded_error
from malflow.runtime.transport.pickling import dumps_by_value
from malflow.runtime.transport.program_pickle import ON_SPARK, dumps_program
from malflow.runtime.transport.sink_proxies import with_sink_proxies
from malflow.snapshot.files.stored_states import FoundSection, with_hint
from malflow.snapshot.persistence import RestoredState

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["StateMove", "StateMoves"]

T = TypeVar("T")

_DESCRIPTION = "spark.job.description"

_READERS = 4
"""Tasks that read states, at most, for each slot of the cluster."""


class StateMoves:
    """Moves the states of a run to generations of its workers.

    Args:
        context: runs the jobs.
        settings: the settings of the run.
        program: the program.

    Attributes:
        stages: the stage of each state with keys; the driver never holds these states.
    """

    def __init__(self, context: SparkContext, settings: Settings, program: Program) -> None:
        self.stages = stages_of_keys(program)
        self._context: Any = context
        self._settings = settings
        self._program = program

    def of_snapshot(self, restored: RestoredState, parallelism: int, listed: Mapping[str, Sequence[Any]]) -> StateMove:
        """Return the move of the states of a snapshot to a number of workers.

        Args:
            restored: the snapshot.
            parallelism: the number of workers.
            listed: the parts of each source.

        Raises:
            SnapshotError: if the program can't continue from them.
            OperatorError: if user code fails; only if the states are in this process already.
        """
        before, stored = restored.parallelism, restored.stored
        check_manifest_facts(self._program, restored, parallelism)
        held = self.stages.keys() & restored.keys
        redeal = None
        if keyed_by_parts(self._program, held):
            positions = with_present_names(self._program, listed, self._positions(restored))
            redeal = redealt(self._program, listed, positions, restored.placements, before, parallelism)
        routes = key_routes(self._program, held, before, parallelism, restored.placements, redeal)
        routing = Routing(parallelism, routes, migrations(self._program, restored.versions, restored.definitions))
        if stored is None:
            pieces = [piece for worker in range(before) for piece in routed(routing, worker, _of(restored, worker))]
            return self._move(parallelism, self._spread(pieces))
        place, sent = self._settings.scratch, self._pickled(routing)
        sections = self._spread(range(stored.files)).mapPartitions(ReadFiles(place, stored, before))
        by_old = sections.partitionBy(before + 1, _same)
        move = self._move(parallelism, by_old.mapPartitions(RouteSections(place, stored, sent, parallelism)), by_old)
        move.check = stored.check
        return move

    def _positions(self, restored: RestoredState) -> OldStates:
        """Return the positions in a snapshot, by source and worker: they tell where the parts are."""
        stored, names = restored.stored, self._program.sources
        if stored is None:
            return {name: states for name, states in restored.states.items() if name in names}
        stored = replace(stored, names={old: name for old, name in stored.names.items() if name in names})
        read = self._spread(range(stored.files)).mapPartitions(
            ReadFiles(self._settings.scratch, stored, restored.parallelism)
        )
        by_worker: dict[int, list[tuple[Any, FoundSection]]] = {}
        for content in self._fetched(read, "reading positions"):
            by_worker.setdefault(content[1].section.worker, []).append(content)
        found: dict[str, dict[int, States]] = {}
        for worker, sections in sorted(by_worker.items()):
            in_order = [section for _, section in sorted(sections, key=itemgetter(0))]
            for name, state in stored.states(in_order).items():
                found.setdefault(name, {})[worker] = state
        return found

    def told_of_sources(self, generation: int, last: Sequence[Sequence[int]]) -> list[Told]:
        """Return the positions and finished parts of the workers of a generation.

        Args:
            generation: the number of the generation.
            last: the tick of the last changelog entry of each stage and worker.
        """
        only, routing = frozenset(self._program.sources), self._pickled(Routing(0, {}))
        task = ReadChangelog(self._settings.scratch, generation, routing, 0, only)
        return self._fetched(self._spread(_entries(last)).mapPartitions(task), "reading positions")

    def _fetched(self, pieces: Any, deed: str) -> list[Any]:
        """Return the content of all pieces, on the driver."""
        with _described(self._context, self._settings.options.query_name, deed):
            found = [pickle.loads(piece) for _, piece in pieces.collect()]  # noqa: S301 - of this run
        for content in found:
            if isinstance(content, bytes):
                error = loaded_error(content)
                raise with_hint(error) if isinstance(error, SnapshotCorrupt) else error
        return found

    def small_states(self, restored: RestoredState, told: Iterable[Told]) -> dict[str, dict[int, States]]:
        """Return the states of a snapshot by name and worker, with no keys of those that have keys.

        Args:
            restored: the snapshot.
            told: the reports of the tasks that read it.
        """
        states: dict[str, dict[int, States]] = {
            name: {0: {}} if count and name in self.stages else {} for name, count in restored.keys.items()
        }
        for it in told:
            for name, held in it.states.items():
                states[name][it.worker] = held
        return states

    def of_changelog(
        self, generation: int, last: Sequence[Sequence[int]], parallelism: int, redeal: Redeal | None = None
    ) -> StateMove:
        """Return the move of the states of a generation to a number of workers.

        Args:
            generation: the number of the generation.
            last: the tick of the last changelog entry of each stage and worker.
            parallelism: the number of workers; all keys stay if it is unchanged, and no part moves.
            redeal: the workers of parts, if any move and any states are keyed by them.

        Raises:
            SnapshotError: naming an operator with keys that have no owner.
        """
        before = len(last[0])
        if before == parallelism and redeal is None:
            routes: Mapping[str, KeyRoute | None] = dict.fromkeys(self.stages)
        else:
            routes = key_routes(self._program, self.stages, before, parallelism, redeal=redeal)
        routing = self._pickled(Routing(parallelism, routes))
        task = ReadChangelog(self._settings.scratch, generation, routing, parallelism)
        return self._move(parallelism, self._spread(_entries(last)).mapPartitions(task))

    def write(self, move: StateMove | None, workers: Workers, generation: int, tick: int) -> list[Base]:
        """Write the first changelog entries of a generation.

        Args:
            move: the states with keys; None if there are none.
            workers: hold all other states.
            generation: the generation.
            tick: the tick of the entries.

        Raises:
            MalflowError: if that fails.
        """
        others = [self._others(it) for it in zip(*workers.stages, strict=True)]
        task = WriteBases(self._settings.scratch, generation, tick, self.stages)
        if move is None:
            return [base for worker, it in enumerate(others) for base in task(worker, (), it)]
        return move.write(task, others)

    def _others(self, stages: Iterable[Worker]) -> bytes:
        """Pickle the states of a worker that have no keys, and the finished parts of its sources, by stage."""
        others = []
        for worker in stages:
            deltas = {name: it for name, it in worker.states.deltas(whole=True).items() if name not in self.stages}
            others.append((deltas, worker.states.take_finished(whole=True)))
        return pickle.dumps(others, 5)

    def _move(self, parallelism: int, pieces: Any, *shuffled: Any) -> StateMove:
        return StateMove(self._context, self._settings.options.query_name, parallelism, pieces, shuffled)

    def _spread(self, items: Sequence[T]) -> Any:
        most = _READERS * self._context.defaultParallelism
        return self._context.parallelize(items, max(1, min(len(items), most)))

    def _pickled(self, routing: Routing) -> bytes:
        try:
            return dumps_by_value(routing)
        except Exception:
            dumps_program(with_sink_proxies(self._program), ON_SPARK)  # raises an error that names the operator
            raise


class StateMove:
    """The move of states to one generation of workers; `told` comes first, then `write`.

    Args:
        context: runs the jobs.
        name: the name of the run, for Spark's pages.
        parallelism: the number of new workers.
        pieces: Spark's RDD of pieces by new worker.
        shuffled: the RDDs before it that were shuffled.

    Attributes:
        check: checks the number of keys of each state and worker.
    """

    def __init__(self, context: Any, name: str, parallelism: int, pieces: Any, shuffled: Sequence[Any]) -> None:
        self.check: Callable[[dict[str, dict[int, int]]], object] = bool
        self._context = context
        self._name = name
        self._parallelism = parallelism
        self._pieces = pieces.partitionBy(parallelism + 1, _same)
        self._shuffled = [*shuffled, self._pieces]

    def told(self) -> list[Told]:
        """Read all states, and return the driver's part.

        Raises:
            MalflowError: if that fails.
        """
        try:
            return self._told()
        except SnapshotCorrupt as error:
            raise with_hint(error) from error

    def _told(self) -> list[Told]:
        with _described(self._context, self._name, "reading states"):
            found = self._context.runJob(self._pieces, _contents, [self._parallelism])
        told: list[Told] = []
        for piece in found:
            content = pickle.loads(piece)  # noqa: S301 - of this run
            if isinstance(content, bytes):
                raise loaded_error(content)
            told.append(content)
        counts: dict[str, dict[int, int]] = {}
        for it in told:
            for name, count in it.counts.items():
                counts.setdefault(name, {})[it.worker] = count
        self.check(counts)
        return told

    def write(self, task: WriteBases, others: Sequence[bytes]) -> list[Base]:
        """Write the first changelog entries of the new workers.

        Args:
            task: writes the states of a worker.
            others: the states without keys, for each worker.

        Raises:
            MalflowError: if that fails.
        """
        sent = self._context.broadcast(others)
        try:
            with _described(self._context, self._name, "moving states"):
                written = self._pieces.mapPartitionsWithIndex(_Written(task, sent))
                done = self._context.runJob(written, list, [*range(self._parallelism)])
        finally:
            with suppress(Exception):  # Java may be gone
                sent.destroy()
            self._remove()
        bases: list[Base] = []
        for content in done:
            if isinstance(content, bytes):
                raise loaded_error(content)
            bases.append(Base(*content))
        return bases

    def _remove(self) -> None:
        with suppress(Exception):  # then Spark does so later
            parents = [it._jrdd.rdd().dependencies().head().rdd().toJavaRDD() for it in self._shuffled]  # noqa: SLF001
            remove_shuffles(self._context, [shuffle_of(parent) for parent in parents])


@contextmanager
def _described(context: Any, name: str, deed: str) -> Iterator[None]:
    """Describe the jobs of a run on Spark's pages, and convert their errors.

    Args:
        context: runs the jobs.
        name: the name of the run.
        deed: what the jobs do.

    Raises:
        RunFailed: if a job fails.
    """
    before = context.getLocalProperty(_DESCRIPTION)  # of the user's thread, which may start the run
    context.setLocalProperty(_DESCRIPTION, f"malflow {name}, {deed}")
    try:
        yield
    except Exception as error:
        raise RunFailed(f"Spark could not move the states: {spark_message(error)}") from error
    finally:
        with suppress(Exception):  # Java may be gone
            context.setLocalProperty(_DESCRIPTION, before)


class _Written:
    """Writes the entries of a partition's worker; yields them, or the error as bytes."""

    def __init__(self, task: WriteBases, others: Any) -> None:
        self._task = task
        self._others = others

    def __call__(self, worker: int, sent: Iterable[tuple[int, bytes]]) -> Iterator[Any]:
        try:
            with rarer_collections():
                bases = self._task(worker, sent, self._others.value[worker])
        except MalflowError as error:
            yield dumps_error(error)
            return
        yield from map(tuple, bases)


def _entries(last: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """Return the stage, the worker and the tick of each changelog entry."""
    ticks = [(stage, worker, tick) for stage, them in enumerate(last) for worker, tick in enumerate(them)]
    return [it for it in ticks if it[2] != NEVER]


def _of(restored: RestoredState, worker: int) -> dict[str, Any]:
    return {name: them[worker] for name, them in restored.states.items() if worker in them}


def _contents(pieces: Iterable[tuple[int, bytes]]) -> list[bytes]:
    return [content for _, content in pieces]


def _same(target: int) -> int:
    return target

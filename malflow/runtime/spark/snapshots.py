"""Snapshots of a run on Spark from its changelog, written by Spark jobs or passed through the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.engine.state_specs import kept_versions, states_of
from malflow.errors import MalflowError, RunFailed
from malflow.runtime.spark.changelog import Changelog, ScratchFolder
from malflow.runtime.spark.changelog_index import ChangelogIndex
from malflow.runtime.spark.quiet_process import end_quietly
from malflow.runtime.spark.snapshot_task import MergeTask, SnapshotTask, summed
from malflow.runtime.spark.spark_errors import spark_message
from malflow.runtime.transport.error_pickles import dumps_error, loaded_error
from malflow.snapshot.codecs.shapes import Finding
from malflow.snapshot.commit import DataWriter
from malflow.snapshot.data_file import pack
from malflow.snapshot.manifest import FileEntry
from malflow.snapshot.persistence import Session
from malflow.snapshot.sections import Written, encoded, write_file
from malflow.snapshot.writer import SnapshotSession
from malflow.states.keyed import StateDelta

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["ChangelogCapture"]

T = TypeVar("T")


class ChangelogCapture:
    """Writes snapshots of the changelog of one generation of workers.

    Args:
        program: the program.
        context: runs the Spark jobs.
        place: the place of the changelog.
        generation: the generation of the entries.
        index: the index of the changelog.
        sinks: the driver's sinks.
    """

    def __init__(
        self,
        program: Program,
        context: SparkContext,
        place: ScratchFolder,
        generation: int,
        index: ChangelogIndex,
        sinks: RunSinks,
    ) -> None:
        self._specs = states_of(program)
        self._versions = kept_versions(program)
        self._context = context
        self._place = place
        self._generation = generation
        self._index = index
        self._sinks = sinks

    def write(
        self, session: Session, tick: int, since: int, ours: Sequence[StateDelta], *, base: bool, alone: bool
    ) -> Future[int]:
        """Begin to write the changes after a tick.

        Args:
            session: the session to commit them with.
            tick: the number of the last tick.
            since: the tick of the last snapshot.
            ours: the positions of the driver's sinks.
            base: whether the changes include all state.
            alone: whether the job may use all slots, since no tick runs at the same time.

        Raises:
            StateNotSerializable: if a position can't be encoded.
        """
        if not isinstance(session, SnapshotSession):
            return self._pass_on(session, tick, since, ours)
        spans, versions, place = self._index.since(since), self._versions, self._place
        sections, findings = encoded(session.codec, session.compression, versions, ours)
        generation, context = self._generation, self._context

        def write(writer: DataWriter) -> Written:
            task = SnapshotTask(place, generation, spans, versions, writer, session.codec, session.compression, base)
            entries, found = _written(context, task, sorted(spans), alone=alone)
            files = (write_file(writer, it, session.codec, session.compression, base=base) for it in pack(sections))
            return [*entries, *files], [*found, *findings]

        def merge(writer: DataWriter, files: Sequence[FileEntry]) -> list[FileEntry] | None:
            task = MergeTask(writer, files, session.codec, session.compression)
            merged: list[list[FileEntry] | None] = _results(context, task, [0], 1)
            return merged[0]

        keys = {name: count for name, count in self._index.total_keys.items() if name in versions}
        keys.update(dict.fromkeys(self._sinks.captured, 1))
        return session.commit_written(tick, self._index.workers, self._specs, keys, write, merge, base=base)

    def _pass_on(self, session: Session, tick: int, since: int, ours: Sequence[StateDelta]) -> Future[int]:
        """Pass the changes through the driver, to a session that does not support tasks."""
        changelog = Changelog(self._place, self._generation)
        deltas = [
            StateDelta(worker, name, total.delta(), self._index.keys[worker, name])
            for worker, stages in self._index.since(since).items()
            for stage, ticks in stages.items()
            for name, total in summed(changelog, stage, worker, ticks, self._versions).items()
        ]
        return session.commit(tick, self._index.workers, self._specs, [*deltas, *ours])


def _written(context: SparkContext, task: SnapshotTask, workers: Sequence[int], *, alone: bool) -> Written:
    """Write the data files of workers in a Spark job.

    Args:
        context: runs the job.
        task: the task to run for each worker.
        workers: the workers.
        alone: whether the job may use all slots; otherwise half of them are reserved for ticks.
    """
    if not workers:
        return [], []
    tasks = len(workers) if alone else min(len(workers), max(1, context.defaultParallelism // 2))
    entries: list[FileEntry] = []
    findings: list[Finding] = []
    for files, found in _results(context, task, workers, tasks):
        entries += files
        findings += found
    return entries, findings


def _results(context: SparkContext, task: Callable[[int], T], items: Sequence[int], tasks: int) -> list[T]:
    """Call a task for each item in a Spark job, and return the results.

    Raises:
        MalflowError: the first error that a task raised.
        RunFailed: if the job failed.
    """
    try:
        done = context.parallelize(items, tasks).map(_reported(task)).collect()
    except Exception as error:
        raise RunFailed(f"Spark could not write a snapshot: {spark_message(error)}") from error
    failure = next((failure for _, failure in done if failure is not None), None)
    if failure is not None:
        raise loaded_error(failure)
    return [result for result, _ in done]


def _reported(task: Callable[[int], T]) -> Callable[[int], tuple[Any, bytes | None]]:
    def write(item: int) -> tuple[Any, bytes | None]:
        end_quietly()
        try:
            return task(item), None
        except MalflowError as error:
            return None, dumps_error(error)

    return write

"""Snapshots of a run on Spark: when they are due, and the jobs that write them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from malflow.engine.execution import POSITION
from malflow.engine.plan import Program
from malflow.engine.states import states_of
from malflow.errors import MalflowError, OperatorError, RunFailed
from malflow.runtime.control import Request, fail, follow
from malflow.runtime.spark.changelog import NEVER, ScratchPlace
from malflow.runtime.spark.changelog_index import ChangelogIndex
from malflow.runtime.spark.error_transport import dumps_error, loaded_error, said
from malflow.runtime.spark.leftovers import Claimed
from malflow.runtime.spark.snapshot_task import SnapshotTask, refused
from malflow.snapshot.codecs.shapes import Finding
from malflow.snapshot.commit import DataWriter
from malflow.snapshot.data_file import Section, pack
from malflow.snapshot.manifest import FileEntry
from malflow.snapshot.persistence import UnwritableState
from malflow.snapshot.snapshot_writer import Written, bare_sections, finding, with_frame, write_file
from malflow.sources.contract import StatefulSource
from malflow.state import Delta

if TYPE_CHECKING:
    from pyspark import SparkContext

    from malflow.snapshot.snapshot_writer import SnapshotSession

__all__ = ["SparkRunSnapshots"]


class SparkRunSnapshots:
    """A run's snapshots. A snapshot holds what changed since the one before, as the scratch folder has it.

    Args:
        session: the run's hold on its job.
        program: the program.
        context: runs the jobs.
        place: where changes lie.
        interval: the seconds between snapshots, None for none.
        positions: tells where the sinks on the driver stand, by operator.

    Attributes:
        kept_at: the tick of the last snapshot.
        snapshot: its id.
        began_with: the id of the one that the run began with, from before its first record.
    """

    def __init__(
        self,
        session: SnapshotSession,
        program: Program,
        context: SparkContext,
        place: ScratchPlace,
        interval: float | None,
        positions: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.kept_at = NEVER
        self.snapshot: int | None = None
        self.began_with: int | None = None
        self._session = session
        self._specs = states_of(program)
        self._versions = _kept_versions(program)
        self._context = context
        self._place = place
        self._interval = interval
        self._due = time.monotonic() + (interval or 0.0)
        self._asked: list[Request] = []
        self._positions = positions
        self._kept_positions: Mapping[str, Any] = {}
        self._making: tuple[int, Mapping[str, Any], Future[int]] | None = None

    def begin(self, parallelism: int, stages: int) -> None:
        """Take a snapshot of where the sinks stand before the first record, so that they can go back there.

        Raises:
            SnapshotError: if it can't be written.
        """
        if not self._found_positions():
            return
        base = self._session.wants_base(parallelism)
        self._commit(0, parallelism, 0, ChangelogIndex(stages, parallelism), base=base).result()
        self.check()
        self.began_with = self.snapshot
        self.kept_at = NEVER  # what the workers begin with is not in it

    def resume(self, snapshot: int, positions: Mapping[str, Any]) -> None:
        """Go on from a snapshot, which says where the sinks stood."""
        self.snapshot = self.began_with = snapshot
        self._kept_positions = positions

    def keep_sinks(self, tick: int, parallelism: int, generation: int, index: ChangelogIndex) -> None:
        """Take a snapshot before the first record where a sink stands elsewhere than the last one says.

        Args:
            tick: that of the states that the run begins with.
            parallelism: how many workers there are.
            generation: whose changes `index` knows.
            index: the states, written whole.

        Raises:
            SnapshotError: if it can't be written.
        """
        if self._found_positions() == self._kept_positions:
            return
        if not self.keep(tick, parallelism, generation, index, ending=True):
            self.kept_at = tick - 1  # all is written again
            self.keep(tick, parallelism, generation, index, ending=True)
        self.began_with = self.snapshot

    def ask(self, request: Request) -> None:
        """Take a snapshot as soon as it can be."""
        self._asked.append(request)

    def check(self) -> None:
        """Note a snapshot that was committed, and raise what went wrong with one.

        Raises:
            SnapshotError: if the run can't go on.
        """
        if self._making is not None and self._making[2].done():
            tick, positions, made = self._making
            self._making = None
            if made.exception() is None:
                self.kept_at, self.snapshot, self._kept_positions = tick, made.result(), positions
        self._session.check()

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is being written."""
        return self._session.is_busy

    @property
    def claimed(self) -> Claimed:
        """What the run holds."""
        return Claimed(*self._session.claimed)

    def confirm(self) -> None:
        """Look whether the job is still this run's.

        Raises:
            SnapshotError: such as a `FencedError`.
        """
        self._session.confirm()

    @property
    def reading(self) -> range:
        """The ticks whose changes the snapshot in the making is read from; none where there is none."""
        return range(0) if self._making is None else range(self.kept_at + 1, self._making[0] + 1)

    def keep(self, tick: int, parallelism: int, generation: int, index: ChangelogIndex, *, ending: bool) -> bool:
        """Take a snapshot, if it is time for one; wait for it at the end.

        Returns:
            Whether that is done: False if all state is to be written down first, by a tick of its own.

        Raises:
            SnapshotError: if one can't be written, and the run can't go on.
        """
        due = self._session.wants_retry or (self._interval is not None and time.monotonic() >= self._due)
        if not (due or ending or self._asked):
            return True
        if self._session.is_busy and not ending:
            return True
        self.settle()
        base = index.covers(self.kept_at)
        if self._session.wants_base(parallelism) and not base:
            return False
        asked, self._asked = self._asked, []
        try:
            made = self._commit(tick, parallelism, generation, index, base=base, ending=ending)
        except BaseException as error:
            fail(asked, error)
            raise
        follow(asked, made)
        if self._interval is not None:
            self._due = time.monotonic() + self._interval
        if ending:
            made.result()
            self.check()
        return True

    def settle(self) -> None:
        """Wait for a snapshot that is being written."""
        if self._making is not None:
            self._making[2].exception()
            self.check()

    def take_asked(self) -> list[Request]:
        """Return, and forget, who waits for a snapshot that is not begun."""
        asked, self._asked = self._asked, []
        return asked

    def close(self, *, wait: bool) -> None:
        """Let go of the job."""
        self._session.close(wait=wait)

    def _commit(
        self, tick: int, parallelism: int, generation: int, index: ChangelogIndex, *, base: bool, ending: bool = False
    ) -> Future[int]:
        spans, versions, place, session = index.since(self.kept_at), self._versions, self._place, self._session
        positions = self._found_positions()
        sections, findings = self._sections(positions if base or positions != self._kept_positions else {})

        def write(writer: DataWriter) -> Written:
            task = SnapshotTask(place, generation, spans, versions, writer, session.codec, session.compression, base)
            entries, found = _written(self._context, task, sorted(spans), alone=ending)
            ours = (write_file(writer, it, session.codec, session.compression, base=base) for it in pack(sections))
            return [*entries, *ours], [*found, *findings]

        keys = {name: count for name, count in index.total_keys.items() if name in versions}
        keys.update(dict.fromkeys(positions, 1))
        made = session.commit_written(tick, parallelism, self._specs, keys, write, base=base)
        self._making = (tick, positions, made)
        return made

    def _found_positions(self) -> Mapping[str, Any]:
        try:
            return self._positions()
        except OperatorError:
            self._session.confirm()  # a run that has taken over has the sinks, too
            raise

    def _sections(self, positions: Mapping[str, Any]) -> tuple[list[Section], list[Finding]]:
        """Write down where the sinks stand.

        Raises:
            OperatorError: if a position can't be written.
        """
        session = self._session
        sections: list[Section] = []
        findings: list[Finding] = []
        for name, position in positions.items():
            delta = Delta({POSITION: position}, whole=True)
            kinds: set[type] = set()
            try:
                for bare, raw in bare_sections(session.codec, 0, name, self._versions[name], delta, kinds):
                    sections.append(with_frame(bare, raw, session.compression))
            except UnwritableState as error:
                raise refused(error) from error.__cause__
            findings.append(finding(session.codec, 0, name, delta, kinds))
        return sections, findings


def _written(context: SparkContext, task: SnapshotTask, workers: Sequence[int], *, alone: bool) -> Written:
    """Write the increments of workers by tasks.

    Args:
        context: runs the tasks.
        task: what is done for each worker.
        workers: the workers.
        alone: whether nothing else is to be done meanwhile; otherwise half of the slots are left to the ticks.
    """
    if not workers:
        return [], []
    tasks = len(workers) if alone else min(len(workers), max(1, context.defaultParallelism // 2))
    entries: list[FileEntry] = []
    findings: list[Finding] = []
    try:
        written = context.parallelize(workers, tasks).map(_reported(task)).collect()
    except Exception as error:
        raise RunFailed(f"Spark could not write a snapshot: {said(error)}") from error
    for (files, found), failure in written:
        if failure is not None:
            raise loaded_error(failure)
        entries += files
        findings += found
    return entries, findings


def _reported(task: SnapshotTask) -> Callable[[int], tuple[Written, bytes | None]]:
    def write(worker: int) -> tuple[Written, bytes | None]:
        try:
            return task(worker), None
        except MalflowError as error:
            return ([], []), dumps_error(error)

    return write


def _kept_versions(program: Program) -> dict[str, int]:
    """Tell what snapshots hold: all but the places of readers that begin again when a run does."""
    sources = program.sources
    return {
        spec.name: spec.version
        for spec in states_of(program)
        if spec.name not in sources or isinstance(sources[spec.name].source, StatefulSource)
    }

"""Snapshots of a run on Spark from its changelog, written by Spark jobs or passed through the driver."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from malflow.engine.plan import Program
from malflow.engine.sink_transactions import Cut
from malflow.engine.sinks import RunSinks, delta_of
from malflow.engine.state_specs import kept_versions, states_of, stored_once
from malflow.runtime.spark.changelog.changelog import Changelog, ScratchFolder
from malflow.runtime.spark.changelog_index import ChangelogIndex
from malflow.runtime.spark.sinks import SealTask, SinkPieces, StoredShare, by_sink
from malflow.runtime.spark.state_tasks import results, task_count
from malflow.runtime.spark.tasks.stage_output import added_up
from malflow.runtime.transport.script_classes import install_classes
from malflow.snapshot.codecs.contract import Codec
from malflow.snapshot.codecs.shapes import Finding
from malflow.snapshot.compression import Compression
from malflow.snapshot.files.data_file import Section, pack
from malflow.snapshot.files.sections import (
    Found,
    Written,
    bare_sections,
    encoded,
    finding,
    merge_files,
    with_frame,
    write_file,
)
from malflow.snapshot.persistence import Session, StateNotSerializable
from malflow.snapshot.protocol.commit import DataWriter
from malflow.snapshot.protocol.manifest import FileEntry
from malflow.snapshot.writer import SnapshotSession
from malflow.states.keyed import Delta, StateDelta
from malflow.store.failpoint import failpoint

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = [
    "ChangelogCapture",
    "MergeTask",
    "SnapshotTask",
    "stored_names",
    "summed",
]


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """Spark task that writes the data files of a worker.

    Attributes:
        place, generation: the changelog to read.
        spans: the ticks of the entries to read, by worker and stage.
        versions: the version of each state that is saved.
        once: the states that every worker has; the one of worker 0 is saved.
        writer: writes the files.
        codec, compression: the encoding of the files.
        base: whether the snapshot is a full one.
    """

    place: ScratchFolder
    generation: int
    spans: Mapping[int, Mapping[int, Sequence[int]]]
    versions: Mapping[str, int]
    once: Collection[str]
    writer: DataWriter
    codec: Codec
    compression: Compression
    base: bool

    def __call__(self, worker: int) -> Written:
        """Write the data files of one worker.

        Raises:
            OperatorError: if a state can't be encoded.
            StoreError: if a file can't be written.
        """
        install_classes(self.place.classes)
        sections, findings = self._sections(worker)
        files = pack(sections, self.writer.file_limit)
        return [
            write_file(self.writer, group, self.codec, self.compression, base=self.base) for group in files
        ], findings

    def _sections(self, worker: int) -> tuple[list[Section], list[Finding]]:
        changelog = Changelog(self.place, self.generation)
        sections = []
        findings = []
        names = stored_names(self.versions, self.once, worker)
        for stage, ticks in self.spans.get(worker, {}).items():
            for name, delta in summed(changelog, stage, worker, ticks, names).items():
                found = Found()
                try:
                    sections += [
                        with_frame(bare, raw, self.compression)
                        for bare, raw in bare_sections(
                            self.codec, worker, name, self.versions[name], delta, found, BaseException
                        )
                    ]
                except StateNotSerializable as error:
                    raise error.as_operator_error() from error.__cause__
                findings.append(finding(self.codec, worker, name, delta, found))
        return sections, findings


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Spark task that merges small increments of earlier snapshots.

    Attributes:
        writer: reads and writes the files.
        files: the files.
        codec, compression: the encoding of the files.
    """

    writer: DataWriter
    files: Sequence[FileEntry]
    codec: Codec
    compression: Compression

    def __call__(self, _: int) -> list[FileEntry] | None:
        """Merge the files; return None if their encodings differ.

        Raises:
            SnapshotCorrupt: if one is damaged.
            StoreError: if the merged ones can't be written.
        """
        return merge_files(self.writer, self.files, self.codec, self.compression)


def stored_names(versions: Mapping[str, int], once: Collection[str], worker: int) -> Collection[str]:
    """Return the states of a worker that snapshots have."""
    return versions if worker == 0 or not once else versions.keys() - set(once)


def summed(
    changelog: Changelog, stage: int, worker: int, ticks: Sequence[int], names: Collection[str]
) -> dict[str, Delta]:
    """Return the combined changes of a worker in some ticks, for each of the named states."""
    changes = (changelog.read(stage, worker, tick).deltas for tick in ticks)
    return added_up({name: delta for name, delta in deltas.items() if name in names} for deltas in changes)


class ChangelogCapture:
    """Writes snapshots of the changelog of one generation of workers.

    Args:
        program: the program.
        context: runs the Spark jobs.
        place: the place of the changelog.
        generation: the generation of the entries.
        index: the index of the changelog.
        sinks: the driver's sinks.
        pieces: the pieces of distributed sinks.
    """

    def __init__(
        self,
        program: Program,
        context: SparkContext,
        place: ScratchFolder,
        generation: int,
        index: ChangelogIndex,
        sinks: RunSinks,
        pieces: SinkPieces,
    ) -> None:
        self._specs = states_of(program)
        self._versions = kept_versions(program)
        self._once = stored_once(program)
        self._context = context
        self._place = place
        self._generation = generation
        self._index = index
        self._sinks = sinks
        self._pieces = pieces

    def write(
        self, session: Session, tick: int, since: int, ours: Sequence[StateDelta], *, base: bool, alone: bool
    ) -> Future[int]:
        """Begin to write the changes after a tick.

        Args:
            session: the session to commit them with.
            tick: the number of the last tick.
            since: the tick of the last snapshot.
            ours: the positions of the driver's sinks, without distributed ones that the job writes.
            base: whether the changes include all state.
            alone: whether the job may use all slots, since no tick runs at the same time.

        Raises:
            StateNotSerializable: if a position can't be encoded.
        """
        cuts = self._sinks.cuts
        if not isinstance(session, SnapshotSession):
            return self._pass_on(session, tick, since, [*ours, *self._sealed_here(cuts)])
        spans, versions, once, place = self._index.since(since), self._versions, self._once, self._place
        codec, compression = session.codec, session.compression
        sections, findings = encoded(codec, compression, versions, ours)
        generation, context = self._generation, self._context
        shares = self._pieces.shares({cut.sink: cut.transaction for cut in cuts})
        seal = self._pieces.task if shares else None

        def write(writer: DataWriter) -> Written:
            task = SnapshotTask(place, generation, spans, versions, once, writer, codec, compression, base)
            entries, found, sealed = _written(context, _Work(task, seal), sorted(spans), shares, alone=alone)
            failpoint("sealed")
            by_name = by_sink(shares, sealed)
            for cut in cuts:
                cut.sealed = by_name[cut.sink]
            self._sinks.check(cuts)
            positions, more = _positions(codec, compression, versions, cuts)
            files = [
                write_file(writer, it, codec, compression, base=base)
                for it in pack([*sections, *positions], writer.file_limit)
            ]
            return [*entries, *files], [*found, *findings, *more]

        def merge(writer: DataWriter, files: Sequence[FileEntry]) -> list[FileEntry] | None:
            task = MergeTask(writer, files, codec, compression)
            merged: list[list[FileEntry] | None] = results(context, task, [0], 1)
            return merged[0]

        keys = {name: count for name, count in self._index.total_keys.items() if name in versions}
        keys.update({name: self._index.keys.get((0, name), 0) for name in once if name in keys})
        keys.update(self._sinks.sizes)
        return session.commit_written(tick, self._index.workers, self._specs, keys, write, merge, base=base)

    def _pass_on(self, session: Session, tick: int, since: int, ours: Sequence[StateDelta]) -> Future[int]:
        """Pass the changes through the driver, to a session that does not support tasks."""
        changelog = Changelog(self._place, self._generation)
        deltas = [
            StateDelta(worker, name, delta, self._index.keys[worker, name])
            for worker, stages in self._index.since(since).items()
            for stage, ticks in stages.items()
            for name, delta in summed(
                changelog, stage, worker, ticks, stored_names(self._versions, self._once, worker)
            ).items()
        ]
        return session.commit(tick, self._index.workers, self._specs, [*deltas, *ours])

    def _sealed_here(self, cuts: Iterable[Cut]) -> list[StateDelta]:
        """Seal transactions in a job of their own, and return the positions with them."""
        sealed = self._pieces.seal({cut.sink: cut.transaction for cut in cuts})
        for cut in cuts:
            cut.sealed = sealed[cut.sink]
        self._sinks.check(cuts)
        return [delta_of(cut.sink, cut.position) for cut in cuts]


@dataclass(frozen=True, slots=True)
class _Work:
    """Spark task of a snapshot's job: writes the data files of a worker, or a share of a sink's transaction."""

    snapshot: SnapshotTask
    seal: SealTask | None

    def __call__(self, item: int | StoredShare) -> Any:
        if isinstance(item, StoredShare):
            return None if self.seal is None else self.seal(item)
        return self.snapshot(item)


def _written(
    context: SparkContext, task: _Work, workers: Sequence[int], shares: Sequence[StoredShare], *, alone: bool
) -> tuple[list[FileEntry], list[Finding], Sequence[Any]]:
    """Write the data files of workers, and shares of transactions, in a Spark job.

    Args:
        context: runs the job.
        task: the task to run for each worker, and each share.
        workers: the workers.
        shares: the shares.
        alone: whether the job may use all slots; otherwise half of them are reserved for ticks.

    Returns:
        The files, the classes in them, and the result of `seal` for each share.
    """
    items: list[int | StoredShare] = [*workers, *shares]
    if not items:
        return [], [], ()
    done = results(context, task, items, task_count(context, len(items), alone=alone))
    entries: list[FileEntry] = []
    findings: list[Finding] = []
    for files, found in done[: len(workers)]:
        entries += files
        findings += found
    return entries, findings, done[len(workers) :]


def _positions(
    codec: Codec,
    compression: Compression,
    versions: Mapping[str, int],
    cuts: Iterable[Cut],
) -> tuple[list[Section], list[Finding]]:
    """Serialise the positions of distributed sinks, with the transactions that the job has sealed.

    Raises:
        OperatorError: if a result of `seal` can't be serialised.
    """
    try:
        return encoded(codec, compression, versions, [delta_of(cut.sink, cut.position) for cut in cuts])
    except StateNotSerializable as error:
        raise error.as_operator_error() from error.__cause__

"""A snapshot as a Spark job: each task writes the changes of one worker since the previous snapshot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from malflow.runtime.spark.changelog import Changelog, ScratchFolder
from malflow.runtime.spark.stage_changes import added_up
from malflow.runtime.transport.script_classes import install_classes
from malflow.snapshot.codecs.contract import Codec
from malflow.snapshot.codecs.shapes import Finding
from malflow.snapshot.files.data_file import Section, pack
from malflow.snapshot.files.sections import Found, Written, bare_sections, finding, merge_files, with_frame, write_file
from malflow.snapshot.persistence import StateNotSerializable
from malflow.snapshot.protocol.commit import DataWriter
from malflow.snapshot.protocol.manifest import FileEntry
from malflow.states.keyed import Delta

__all__ = ["MergeTask", "SnapshotTask", "stored_names", "summed"]


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
    compression: str
    base: bool

    def __call__(self, worker: int) -> Written:
        """Write the data files of one worker.

        Raises:
            OperatorError: if a state can't be encoded.
            StoreError: if a file can't be written.
        """
        install_classes(self.place.classes)
        sections, findings = self._sections(worker)
        files = pack(sections)
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
    compression: str

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

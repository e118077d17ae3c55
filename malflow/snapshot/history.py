"""Listing and checking the snapshots of a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from malflow.errors import SnapshotError, StoreError
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.codecs.contract import Codec
from malflow.snapshot.data_file import DataFile, decode_file, joined, raw_of
from malflow.snapshot.evolution import may_be_lost
from malflow.snapshot.layout import BOUNDARIES, DATA, MANIFESTS, highest, sequence_of_target
from malflow.snapshot.manifest import FileEntry, Manifest
from malflow.snapshot.manifest_log import ManifestLog
from malflow.snapshot.restore import replay
from malflow.snapshot.stored_states import StoredStates

__all__ = ["FsckReport", "Snapshot", "fsck", "snapshot_of", "snapshots"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that can be restored.

    Attributes:
        id: its id, for ``restore=``.
        tick: the number of ticks completed.
        time: when it was written, by the writer's clock.
        parallelism: the number of workers.
        operators: the number of keys of each operator.
        kind: ``"base"``, or ``"increment"`` if it builds on earlier files.
        bytes: the stored size, including the base and all increments that it needs.
        files: the number of those files.
    """

    id: int
    tick: int
    time: datetime
    parallelism: int
    operators: Mapping[str, int]
    kind: Literal["base", "increment"]
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class FsckReport:
    """The result of `fsck`.

    Attributes:
        snapshots: the number of snapshots.
        problems: descriptions of damage; empty if every snapshot can be restored.
        unused: files that no retained snapshot refers to: being written, left by a crash, or foreign.
        notes: findings that may be harmless: data files of a snapshot without a manifest.
    """

    snapshots: int
    problems: tuple[str, ...]
    unused: tuple[str, ...]
    notes: tuple[str, ...] = ()


def snapshots(backend: FsspecBackend) -> Iterator[Snapshot]:
    """Yield the snapshots of a job that can be restored, oldest first.

    Raises:
        SnapshotError: if the snapshots can't be listed, or a manifest is damaged.
    """
    manifest_log = backend.manifest_log()
    if manifest_log.find() is None:
        return
    seen = set()
    for manifest in manifest_log.manifests():
        if manifest.snapshot and manifest.snapshot not in seen:
            seen.add(manifest.snapshot)
            yield snapshot_of(manifest)


def fsck(backend: FsspecBackend, *, states: bool = True) -> FsckReport:
    """Check every retained snapshot by reading it as a restore would.

    Args:
        backend: the backend, configured as for a run.
        states: whether to deserialise the states too. Their classes must be importable, and loading pickles can
            execute code. Otherwise only the files are checked.

    Raises:
        StoreError: if the store can't be read.
    """
    codec = backend.codec if states else None
    manifest_log = backend.manifest_log()
    try:
        if manifest_log.find() is None:
            return FsckReport(0, (), ())
    except StoreError:
        raise
    except SnapshotError as error:
        return FsckReport(0, (str(error),), ())
    problems: dict[str, None] = {}
    named: set[str] = set()
    contents: set[int] = set()
    before: tuple[int, str | None] | None = None
    for seq in manifest_log.sequences(manifest_log.boundary()):
        manifest = None
        try:
            manifest = manifest_log.manifest(seq)
            found = list(_problems(manifest_log, manifest, before, codec))
        except StoreError:
            raise
        except SnapshotError as error:
            found = [str(error)]
        if found and manifest_log.boundary() > seq:
            before = None  # deleted meanwhile
            continue
        if manifest is not None:
            named.update(entry.name for entry in manifest.files)
            contents.add(manifest.snapshot)
        problems.update(dict.fromkeys(found))
        before = (seq, manifest_log.digest(seq))
    present = [key for folder in (DATA, MANIFESTS, BOUNDARIES) for key in manifest_log.list(folder)]
    unused = [key for key in present if key not in named and (key.startswith(DATA) or sequence_of_target(key) is None)]
    newest, above = _above(present)  # data was listed first, so a concurrent commit is not reported
    notes = tuple(
        f"snapshot {seq} has data but no manifest, and the newest manifest is {newest}: a run is writing it, was "
        f"killed while writing it, or manifest {seq} was deleted; a start resumes from {newest}"
        for seq in above
    )
    return FsckReport(len(contents - {0}), tuple(problems), tuple(unused), notes)


def _above(present: Sequence[str]) -> tuple[int, list[int]]:
    """Return the newest manifest's number, and the higher numbers for which there is data."""
    newest = highest(key for key in present if key.startswith(MANIFESTS))
    numbers = {sequence_of_target(key) or 0 for key in present if key.startswith(DATA)}
    return newest, sorted(number for number in numbers if number > newest)


def _problems(
    manifest_log: ManifestLog, manifest: Manifest, before: tuple[int, str | None] | None, codec: Codec | None
) -> Iterator[str]:
    if before is not None and before[0] + 1 != manifest.seq:
        yield f"manifests {before[0] + 1} to {manifest.seq - 1} are missing"
    elif before is not None and None not in (before[1], manifest.parent) and before[1] != manifest.parent:
        yield f"manifest {manifest.seq} does not follow the present manifest {before[0]}"
    files = []
    for entry in manifest.files:
        try:
            files.append(_checked_file(manifest_log, entry))
        except StoreError:
            raise
        except SnapshotError as error:
            yield str(error)
    if codec is None or len(files) < len(manifest.files):
        return
    try:
        names = {entry.name: entry.name for entry in manifest.operators}
        replay(StoredStates(manifest_log.store, manifest_log.retry, manifest, codec, names, None), files)
    except SnapshotError as error:
        yield str(error)


def _checked_file(manifest_log: ManifestLog, entry: FileEntry) -> tuple[str, DataFile]:
    """Read and decompress a file completely, including sections that later files replace."""
    name, file = entry.name, decode_file(entry.name, manifest_log.read(entry))
    for section in joined(section for section in file.sections if section.pieces == 1):
        raw_of(name, section, file.compression)
    return name, file


def snapshot_of(manifest: Manifest) -> Snapshot:
    """Return the facts of a manifest's snapshot."""
    return Snapshot(
        id=manifest.snapshot,
        tick=manifest.tick,
        time=datetime.fromisoformat(manifest.time),
        parallelism=manifest.parallelism,
        operators={entry.name: entry.keys for entry in manifest.operators if not may_be_lost(entry)},
        kind="base" if all(entry.base for entry in manifest.files) else "increment",
        bytes=sum(entry.bytes for entry in manifest.files),
        files=len(manifest.files),
    )

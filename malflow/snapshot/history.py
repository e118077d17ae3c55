"""List, check and compare the snapshots of a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from malflow.errors import SnapshotError, StoreError
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.codecs.contract import Codec
from malflow.snapshot.compression import known_as
from malflow.snapshot.evolution import may_be_lost
from malflow.snapshot.files.data_file import DataFile, decode_file, joined, raw_of
from malflow.snapshot.files.stored_states import StoredStates
from malflow.snapshot.placed_states import WorkerStates
from malflow.snapshot.protocol.manifest import (
    BOUNDARIES,
    DATA,
    MANIFESTS,
    FileEntry,
    Manifest,
    highest,
    sequence_of_target,
)
from malflow.snapshot.protocol.manifest_log import ManifestLog
from malflow.snapshot.reading import opened
from malflow.snapshot.restore import replay
from malflow.words import plural

__all__ = [
    "ABSENT",
    "FsckReport",
    "Snapshot",
    "StateChange",
    "diff_state",
    "fsck",
    "snapshot_of",
    "snapshots",
]


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
        replay(StoredStates.of(manifest_log, manifest, codec, names, None), files)
    except SnapshotError as error:
        yield str(error)


def _checked_file(manifest_log: ManifestLog, entry: FileEntry) -> tuple[str, DataFile]:
    """Read and decompress a file completely, including sections that later files replace."""
    name, file = entry.name, decode_file(entry.name, manifest_log.read(entry))
    compression = known_as(name, file.compression, manifest_log.compression)
    for section in joined(section for section in file.sections if section.pieces == 1):
        raw_of(name, section, compression)
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


class _Absent:
    """The type of `ABSENT`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        """Pickle by name. Each process thus has one `ABSENT`."""
        return "ABSENT"


ABSENT: Final = _Absent()
"""In a `StateChange`: the key has no state. It is false, as None is, which may be a state."""


class StateChange(NamedTuple):
    """The state of a key in two snapshots. The two states differ.

    Attributes:
        key: the key.
        before: its state in the first; `ABSENT` if it had none.
        after: its state in the second; `ABSENT` if it had none.
    """

    key: Any
    before: Any
    after: Any


def diff_state(
    backend: FsspecBackend,
    operator: str,
    before: Literal["latest"] | int | datetime,
    after: Literal["latest"] | int | datetime = "latest",
) -> Iterator[StateChange]:
    """Yield the keys of an operator with states that differ between two snapshots, with both states.

    States are equal if ``==`` says so, or if they are serialised to the same bytes. For each worker, keys of the second
    snapshot come first, in its order, and then those that it lacks. In memory are the states of one worker of each
    snapshot; but if the number of workers or the partitioner differs, all workers of one snapshot are read again for
    each worker of the other.

    Args:
        backend: the backend, configured as for a run.
        operator: the name of the operator, or of a hidden state.
        before: the first snapshot: ``"latest"``, an id, or a datetime with a time zone.
        after: the second one.

    Raises:
        GraphError: if an argument is not valid.
        SnapshotError: if a snapshot or the operator does not exist or can't be read, or the states can't be compared.
    """
    old, new = opened(backend, operator, before), opened(backend, operator, after)
    _check(old, new)
    is_aligned = old.is_by_worker or (_placement(old) == _placement(new))
    return _aligned(old, new, backend.codec) if is_aligned else _crossed(old, new, backend.codec)


def _aligned(old: WorkerStates, new: WorkerStates, codec: Codec) -> Iterator[StateChange]:
    """Compare worker by worker, as each has the same keys in both snapshots."""
    for worker in sorted({*old.workers, *new.workers}):
        before = old.states(worker)
        yield from _changed(before, new.states(worker), codec)
        yield from _gone(before)


def _crossed(old: WorkerStates, new: WorkerStates, codec: Codec) -> Iterator[StateChange]:
    """Compare each worker with all workers of the other snapshot."""
    for worker in new.workers:
        after, before = new.states(worker), {}
        for other in old.workers:
            before.update(_common(old.states(other), after))
        yield from _changed(before, after, codec)
    for other in old.workers:
        before = old.states(other)
        for worker in new.workers:
            for key in _common(before, new.states(worker)):
                del before[key]
        yield from _gone(before)


def _changed(before: dict[Any, Any], after: dict[Any, Any], codec: Codec) -> Iterator[StateChange]:
    """Yield new and changed keys; remove from `before` the keys that are in both."""
    for key, state in after.items():
        was = before.pop(key, ABSENT)
        if was is ABSENT or not _is_same(was, state, codec):
            yield StateChange(key, was, state)


def _gone(before: dict[Any, Any]) -> Iterator[StateChange]:
    return (StateChange(key, state, ABSENT) for key, state in before.items())


def _common(states: dict[Any, Any], others: dict[Any, Any]) -> dict[Any, Any]:
    return {key: state for key, state in states.items() if key in others}


def _is_same(was: Any, state: Any, codec: Codec) -> bool:
    try:
        if was == state:
            return True
    except Exception:  # noqa: BLE001, S110 - an __eq__ of the user's, or one without a truth value, such as numpy's
        pass
    return codec.dumps(was) == codec.dumps(state)


def _placement(kept: WorkerStates) -> tuple[int, str | None]:
    return kept.manifest.parallelism, kept.entry.placement


def _check(old: WorkerStates, new: WorkerStates) -> None:
    """Check that two states have keys of the same form.

    Raises:
        SnapshotError: if they have not, or keys of ``key_local`` have moved.
    """
    one, two = old.entry, new.entry
    at = [f"snapshot {it.manifest.snapshot}" for it in (old, new)]
    if (one.kind, one.panes) != (two.kind, two.panes):
        facts = [f"a {it.kind}" + (f" of {it.definition}" if it.definition else "") for it in (one, two)]
        raise SnapshotError(
            f"operator '{two.name}' is {facts[0]} in {at[0]} and {facts[1]} in {at[1]}, whose states can't be compared"
        )
    is_by_key = old.kind is not None and old.kind.is_by_key
    if one.placement is None and is_by_key and old.manifest.parallelism != new.manifest.parallelism:
        raise SnapshotError(
            f"operator '{two.name}' was kept under key_local() by {plural(old.manifest.parallelism, 'worker')} in "
            f"{at[0]} and by {new.manifest.parallelism} in {at[1]}, whose states can't be compared"
        )

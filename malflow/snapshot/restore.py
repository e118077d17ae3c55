"""Choosing the snapshot to restore, and reading its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from malflow.errors import SnapshotCorrupt, SnapshotError
from malflow.snapshot.codecs.contract import Codec, ShapedCodec
from malflow.snapshot.codecs.old_records import old_kind
from malflow.snapshot.data_file import DataFile, Section, apply_chunk, decode_file, joined, raw_of
from malflow.snapshot.layout import manifest_key
from malflow.snapshot.manifest import FileEntry, Manifest
from malflow.snapshot.manifest_log import ManifestLog
from malflow.snapshot.persistence import RestoredState, RestoreOptions

__all__ = ["load", "manifest_choice", "read_file", "replay"]

Names = Mapping[str, str]
"""The states of a snapshot to read, mapped to their names in the program."""

States = dict[str, dict[int, dict[Any, Any]]]
"""The state of each key, by name of the state and worker."""

Versions = Mapping[str, int]
"""The schema version of each state in the program. If the snapshot has another version, records whose class has changed
or is missing are read as their fields; without a program, this applies to all states."""

Loads = Callable[[bytes], Any]
"""Deserialises states."""


def manifest_choice(
    manifest_log: ManifestLog,
    start: RestoreOptions,
    codec: Codec,
    accept: Callable[[Manifest], Names],
    versions: Versions | None = None,
) -> Callable[[list[int]], Any]:
    """Return a function that picks the manifest to restore from the numbers of those retained.

    Args:
        manifest_log: the manifests and data files of the job.
        start: the user's options.
        codec: the codec of the states.
        accept: returns the states to read; raises if the program can't resume from a manifest.
        versions: the state versions of the program.
    """

    def choose(numbers: list[int]) -> Manifest | None:
        if start.restore is None or not numbers:
            if isinstance(start.restore, int):
                raise SnapshotError(f"job '{manifest_log.name}' has no snapshots; got restore={start.restore}")
            return None
        candidates = _candidates(manifest_log, start.restore, numbers)
        if start.recovery == "previous":
            return _first_readable(manifest_log, candidates, codec, accept, versions)
        try:
            chosen = manifest_log.manifest(candidates[0])
        except SnapshotCorrupt as error:
            raise _with_hint(error) from error
        accept(chosen)
        return chosen

    return choose


def _candidates(manifest_log: ManifestLog, restore: int | str, numbers: list[int]) -> list[int]:
    """Return the candidate manifests: first the wanted one, then earlier ones, newest first."""
    if not isinstance(restore, int):
        return numbers[::-1]
    contents = {seq: manifest_log.manifest(seq).snapshot if manifest_log.digest(seq) else seq for seq in numbers}
    if not restore or restore not in contents.values():
        known = sorted(set(contents.values()) - {0})
        raise SnapshotError(f"job '{manifest_log.name}' has no snapshot with the id {restore}; it has {known}")
    before = [seq for seq in numbers if contents[seq] <= restore]
    return sorted(before, key=lambda seq: (contents[seq], manifest_log.digest(seq) is not None, seq), reverse=True)


def _first_readable(
    manifest_log: ManifestLog,
    numbers: list[int],
    codec: Codec,
    accept: Callable[[Manifest], Names],
    versions: Versions | None,
) -> Manifest | None:
    """Return the newest manifest whose snapshot is readable."""
    first: SnapshotCorrupt | None = None
    for seq in numbers:
        try:
            manifest = manifest_log.manifest(seq)
            files = [read_file(manifest_log, entry) for entry in manifest.files]
            if manifest.snapshot == 0 and first is not None:
                break
            replay(manifest, files, codec, accept(manifest), versions)
        except SnapshotCorrupt as error:
            first = first or error
            continue
        return manifest
    raise SnapshotError(f"no snapshot of job '{manifest_log.name}' can be read; the newest one: {first}") from first


def _with_hint(error: SnapshotCorrupt) -> SnapshotCorrupt:
    hint = "recovery='previous' falls back to the newest readable snapshot and processes later input again"
    return type(error)(f"{error}; {hint}", name=error.name)


def load(
    manifest_log: ManifestLog, manifest: Manifest, codec: Codec, names: Names, versions: Versions | None = None
) -> RestoredState:
    """Read the state of a snapshot.

    Args:
        manifest_log: the manifests and data files of the job.
        manifest: the snapshot.
        codec: the codec of the states.
        names: the states to read, mapped to their names in the program.
        versions: the state versions of the program.

    Raises:
        SnapshotCorrupt: if a file is damaged or missing.
        SnapshotError: if a state can't be read.
    """
    try:
        states = replay(manifest, [read_file(manifest_log, entry) for entry in manifest.files], codec, names, versions)
    except SnapshotCorrupt as error:
        raise _with_hint(error) from error
    return RestoredState(
        snapshot=manifest.snapshot,
        tick=manifest.tick,
        parallelism=manifest.parallelism,
        states=states,
        versions={names[entry.name]: entry.version for entry in manifest.operators if entry.name in names},
        placements={names[entry.name]: entry.placement for entry in manifest.operators if entry.name in names},
        time=datetime.fromisoformat(manifest.time).astimezone(UTC),
    )


def read_file(manifest_log: ManifestLog, entry: FileEntry) -> tuple[str, DataFile]:
    """Read a data file; return it with its name.

    Raises:
        SnapshotCorrupt: if it is damaged or missing.
    """
    return entry.name, decode_file(entry.name, manifest_log.read(entry))


def replay(
    manifest: Manifest,
    files: Sequence[tuple[str, DataFile]],
    codec: Codec,
    names: Names,
    versions: Versions | None = None,
) -> States:
    """Return the states of a snapshot, replayed from its files and checked against its manifest.

    Args:
        manifest: the snapshot.
        files: its files with their names, in order.
        codec: the codec of the states.
        names: the states to read, mapped to their names in the program.
        versions: the state versions of the program.

    Raises:
        SnapshotCorrupt: if the files don't match the manifest.
        SnapshotError: if a state can't be read, or was written with another codec.
    """
    for name, file in files:
        if file.codec != codec.name:
            raise SnapshotError(
                f"'{name}' was written with codec '{file.codec}', but the program uses codec '{codec.name}'; pass "
                f"codec='{file.codec}', or restore=None to start from empty state"
            )
    there = {entry.name: entry for entry in manifest.operators if entry.name in names}
    migrating = {
        name for name, entry in there.items() if versions is None or versions.get(names[name]) != entry.version
    }
    loads: dict[str, Loads] = {
        name: codec.reader(entry.shapes, migrating=name in migrating) if isinstance(codec, ShapedCodec) else codec.loads
        for name, entry in there.items()
    }
    states = _states(files, loads, names)
    for name in migrating if versions is not None else ():
        _check_keys(names[name], states[names[name]])
    _check_counts(manifest, states, names)
    return states


def _check_keys(name: str, states: Mapping[int, Mapping[Any, Any]]) -> None:
    """Check that no key contains a class that has changed: migrations convert states, not keys.

    Raises:
        SnapshotError: if one does.
    """
    for by_key in states.values():
        kind = old_kind(by_key)
        if kind is not None:
            raise SnapshotError(
                f"operator '{name}': the class {kind} is used in keys, and its fields have changed; migrations "
                "convert states, not keys: leave the class as it was and use another one for the new keys, or pass "
                f"allow_dropped_state=['{name}'] and rename the operator"
            )


def _states(files: Sequence[tuple[str, DataFile]], loads: Mapping[str, Loads], names: Names) -> States:
    """Apply the sections in order; sections replaced by a later whole state are not even decoded."""
    everything = [(name, file, section) for name, file in files for section in file.sections]
    begins = {
        (section.state, section.worker): at for at, (_, _, section) in enumerate(everything) if _is_whole(section)
    }
    states: States = {name: {} for name in names.values()}
    at: tuple[str, DataFile] = ("", files[0][1]) if files else ("", DataFile("", "", ()))

    def wanted() -> Iterator[Section]:
        nonlocal at
        for index, (name, file, section) in enumerate(everything):
            at = (name, file)
            if section.state in names and index > begins.get((section.state, section.worker), -1):
                yield section

    for section in joined(wanted()):
        name, file = at
        value = _value(name, section, raw_of(name, section, file.compression), loads[section.state])
        state = states[names[section.state]].setdefault(section.worker, {})
        apply_chunk(state, section.what, value)
    return states


def _is_whole(section: Section) -> bool:
    return section.what == "whole"


def _value(name: str, section: Section, raw: bytes, loads: Loads) -> Any:
    try:
        value = loads(raw)
        count = len(value)
    except SnapshotError:
        raise
    except Exception as error:
        raise SnapshotError(
            f"the state of operator '{section.state}' in '{name}' can't be read: {type(error).__name__}: {error}; the "
            "classes in its state must be importable from the same modules, with the same names and fields; "
            "otherwise increase version= and pass migrate=(old, version) -> state"
        ) from error
    if count != section.keys:
        reason = f"'{name}': a section of operator '{section.state}' has {count} keys of {section.keys}"
        raise SnapshotCorrupt(reason, name=name)
    return value


def _check_counts(manifest: Manifest, states: States, names: Names) -> None:
    for entry in manifest.operators:
        by_worker = states[names[entry.name]] if entry.name in names else {}
        found = sum(map(len, by_worker.values()))
        reason = f"snapshot {manifest.snapshot}: operator '{entry.name}' has"
        if entry.name in names and found != entry.keys:
            raise SnapshotCorrupt(f"{reason} {found} keys of {entry.keys}", name=manifest_key(manifest.seq))
        beyond = [worker for worker, held in by_worker.items() if held and worker >= manifest.parallelism]
        if beyond:
            of = f"{manifest.parallelism} workers"
            raise SnapshotCorrupt(f"{reason} keys on worker {beyond[0]} of {of}", name=manifest_key(manifest.seq))

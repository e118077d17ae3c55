"""Choosing the snapshot to restore, and reading its state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import chain, starmap
from typing import Any

from malflow.errors import SnapshotCorrupt, SnapshotError
from malflow.snapshot.candidates import candidates, time_of, with_time_taken
from malflow.snapshot.codecs.contract import Codec
from malflow.snapshot.data_file import DataFile, decode_file
from malflow.snapshot.manifest import Manifest
from malflow.snapshot.manifest_log import ManifestLog
from malflow.snapshot.persistence import RestoredState, RestoreOptions
from malflow.snapshot.stored_states import FoundSection, Names, StoredStates, Versions, with_hint

__all__ = ["load", "manifest_choice", "replay"]

States = dict[str, dict[int, dict[Any, Any]]]
"""The state of each key, by name of the state and worker."""


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
            if isinstance(start.restore, int | datetime):
                raise SnapshotError(f"job '{manifest_log.name}' has no snapshots; got restore={start.restore}")
            return None
        wanted = candidates(manifest_log, start.restore, numbers)
        if start.recovery == "previous":
            return _first_readable(manifest_log, wanted, codec, accept, versions)
        try:
            chosen = manifest_log.manifest(wanted[0])
        except SnapshotCorrupt as error:
            raise with_hint(error) from error
        accept(chosen)
        return chosen

    return choose


def _first_readable(
    manifest_log: ManifestLog,
    numbers: list[int],
    codec: Codec,
    accept: Callable[[Manifest], Names],
    versions: Versions | None,
) -> Manifest | None:
    """Return the newest manifest with a readable snapshot."""
    first: SnapshotCorrupt | None = None
    for seq in numbers:
        try:
            manifest = manifest_log.manifest(seq)
            files = [(entry.name, decode_file(entry.name, manifest_log.read(entry))) for entry in manifest.files]
            if manifest.snapshot == 0 and first is not None:
                break
            stored = StoredStates(manifest_log.store, manifest_log.retry, manifest, codec, accept(manifest), versions)
            replay(stored, files)
        except SnapshotCorrupt as error:
            first = first or error
            continue
        return manifest
    raise SnapshotError(f"no snapshot of job '{manifest_log.name}' can be read; the newest one: {first}") from first


def load(
    manifest_log: ManifestLog,
    manifest: Manifest,
    codec: Codec,
    names: Names,
    versions: Versions | None = None,
    *,
    in_store: bool = False,
) -> RestoredState:
    """Read the state of a snapshot.

    Args:
        manifest_log: the manifests and data files of the job.
        manifest: the snapshot.
        codec: the codec of the states.
        names: the states to read, mapped to their names in the program.
        versions: the state versions of the program.
        in_store: whether to leave the states in the store.

    Raises:
        SnapshotCorrupt: if a file is damaged or missing.
        SnapshotError: if a state can't be read.
    """
    stored = StoredStates(manifest_log.store, manifest_log.retry, manifest, codec, names, versions)
    try:
        states = {} if in_store else replay(stored)
    except SnapshotCorrupt as error:
        raise with_hint(error) from error
    return RestoredState(
        snapshot=manifest.snapshot,
        tick=manifest.tick,
        parallelism=manifest.parallelism,
        states=states,
        versions={names[entry.name]: entry.version for entry in manifest.operators if entry.name in names},
        placements={names[entry.name]: entry.placement for entry in manifest.operators if entry.name in names},
        time=time_of(with_time_taken(manifest_log, manifest)),
        stored=stored if in_store else None,
    )


def replay(stored: StoredStates, files: Iterable[tuple[str, DataFile]] | None = None) -> States:
    """Return the states of a snapshot, replayed from its files and checked against its manifest.

    Args:
        stored: the states in the store.
        files: its files with their names, in order, if they have been read; None to read them.

    Raises:
        SnapshotCorrupt: if a file is damaged or missing, or the files don't match the manifest.
        SnapshotError: if a state can't be read, or was written with another codec.
    """
    by_worker: dict[int, list[FoundSection]] = {}
    read = map(stored.read, range(stored.files)) if files is None else starmap(stored.sections, files)
    for found in chain.from_iterable(read):
        by_worker.setdefault(found.section.worker, []).append(found)
    states: States = {name: {} for name in stored.names.values()}
    for worker, sections in by_worker.items():
        for name, held in stored.states(sections).items():
            states[name][worker] = held
    stored.check({name: {worker: len(held) for worker, held in them.items()} for name, them in states.items()})
    return states

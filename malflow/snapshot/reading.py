"""Read the states and dead letters of a snapshot without its program; nothing is claimed or written."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any, Literal, overload

from malflow.errors import GraphError, SnapshotError
from malflow.failures import DeadLetter
from malflow.operators.failures.dead_letters import LETTERS, age_of, letter_of
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.evolution import present_name
from malflow.snapshot.persistence import Wish, check_wish
from malflow.snapshot.placed_states import WorkerStates
from malflow.snapshot.protocol.manifest import Manifest, StateEntry
from malflow.snapshot.protocol.manifest_log import ManifestLog, candidates, with_time_taken
from malflow.states.entry_keys import check_entry_key
from malflow.states.kinds import StateKind
from malflow.words import did_you_mean, listed, short_repr

__all__ = [
    "dead_letters",
    "opened",
    "read_state",
    "wanted_manifest",
]

_ATTEMPTS = 10
"""Tries while a run deletes manifests. Fewer: more failures; more: a hopeless search takes longer."""


@overload
def read_state(
    backend: FsspecBackend, operator: str, *, at: Literal["latest"] | int | datetime = "latest"
) -> Iterator[tuple[Any, Any]]: ...


@overload
def read_state(
    backend: FsspecBackend,
    operator: str,
    *,
    key: Any,
    at: Literal["latest"] | int | datetime = "latest",
    default: Any = ...,
) -> Any: ...


def read_state(
    backend: FsspecBackend,
    operator: str,
    *,
    key: Any = ...,
    at: Literal["latest"] | int | datetime = "latest",
    default: Any = ...,
) -> Any:
    """Read the states that an operator had in a snapshot, or that of one key.

    Without a key, yield each key with its state: worker by worker, one at a time in memory, and in the order that they
    had there. The keys of windows, rollups, joins and the like are slots, such as ``(pane, key)``, and hidden states
    have names such as ``"stays/epoch"``: the page on the format of snapshots lists both. Epochs are kept by worker, so
    their keys are ``(worker, name)``. Under ``key_local`` a key is yielded for each worker that has it.

    The classes in states must be importable, as for a restore; a record of a class that is gone or has other fields is
    read as a mapping of its former fields.

    Args:
        backend: the backend, configured as for a run.
        operator: the name of the operator or of a hidden state.
        key: return the state of this key; by default all are yielded.
        at: the snapshot: ``"latest"``, an id, or a datetime with a time zone for the latest one at that time.
        default: what to return for a key without a state, rather than to raise.

    Raises:
        GraphError: if an argument is not valid, or a key has no stable hash.
        SnapshotError: if there is no such snapshot, operator or key, or the snapshot can't be read.
    """
    kept = opened(backend, operator, at)
    return _every(kept) if key is ... else _one(kept, key, default)


def opened(backend: FsspecBackend, operator: str, at: Wish, hidden: Collection[str] = ()) -> WorkerStates:
    """Find a state in a snapshot.

    Args:
        backend: the backend.
        operator: the name of the state.
        at: the snapshot.
        hidden: the names of other states to be read with it, if they are there.

    Raises:
        GraphError: if an argument is not valid.
        SnapshotError: if there is no such snapshot or operator, or the snapshot's manifest can't be read.
    """
    manifest_log, manifest = wanted_manifest(backend, at)
    entry = _entry(manifest, operator)
    if manifest.codec != backend.codec.name:
        raise SnapshotError(
            f"snapshot {manifest.snapshot} was written with codec '{manifest.codec}', but the backend has codec "
            f"'{backend.codec.name}'; pass codec='{manifest.codec}'"
        )
    others = [it for it in manifest.operators if it.name in hidden]
    return WorkerStates(manifest_log, manifest, entry, backend.codec, others)


def wanted_manifest(backend: FsspecBackend, at: Wish) -> tuple[ManifestLog, Manifest]:
    """Find a snapshot; return the job's files and the snapshot's newest manifest.

    Raises:
        GraphError: if an argument is not valid.
        SnapshotError: if there is no such snapshot, or its manifest can't be read.
    """
    if not isinstance(backend, FsspecBackend):
        raise GraphError(f"a snapshot is read from an FsspecBackend; got {short_repr(backend)}")
    check_wish("at", at)
    manifest_log = backend.manifest_log()
    if manifest_log.find() is None:
        raise SnapshotError(f"{backend!r} has no snapshots: no run has begun there; check the URL and job=")
    manifest = _newest(manifest_log, at)
    if not manifest.snapshot:
        raise SnapshotError(
            f"job '{manifest_log.name}' has no snapshot since a run began with empty state at {manifest.time}; "
            "pass the id of an earlier one as at=, if snapshots() lists any"
        )
    return manifest_log, with_time_taken(manifest_log, manifest)


def _newest(manifest_log: ManifestLog, at: Wish) -> Manifest:
    """Return the manifest; look again if a run has deleted it since it was listed."""
    for attempt in range(_ATTEMPTS):
        boundary = manifest_log.boundary()
        numbers = manifest_log.sequences(boundary)
        if not numbers:
            break
        try:
            return manifest_log.manifest(candidates(manifest_log, at, numbers)[0])
        except SnapshotError:
            if manifest_log.boundary() == boundary or attempt == _ATTEMPTS - 1:
                raise
    raise SnapshotError(f"job '{manifest_log.name}' has no snapshots; its folder has no manifest")


def _entry(manifest: Manifest, operator: str) -> StateEntry:
    """Return the entry of a state, by its name or, if an older version wrote it, its present one."""
    entries = {present_name(entry): entry for entry in manifest.operators}
    entries |= {entry.name: entry for entry in manifest.operators}
    if operator in entries:
        return entries[operator]
    hint = did_you_mean(operator, entries, else_=f"it has states of {listed(entries)}")
    raise SnapshotError(
        f"snapshot {manifest.snapshot} of job '{manifest.name}' has no state of an operator {operator!r}{hint}; "
        "operators that keep nothing, such as map and filter, are in no snapshot"
    )


def _every(kept: WorkerStates) -> Iterator[tuple[Any, Any]]:
    for worker in kept.workers:
        yield from kept.states(worker).items()


def _one(kept: WorkerStates, key: Any, default: Any) -> Any:
    name = f"operator '{kept.entry.name}'"
    check_entry_key(kept.entry.name, kept.kind, key, "malflow.reading.read_windows()")
    found = kept.find(key[1], key[0]) if kept.is_by_worker else kept.find(key)
    if len(found) > 1:
        raise SnapshotError(
            f"{name} has states for key {short_repr(key)} on workers {', '.join(map(str, sorted(found)))}, as it was "
            "kept under key_local(); read all keys instead"
        )
    if not found and default is ...:
        raise SnapshotError(
            f"{name} has no state for key {short_repr(key)} in snapshot {kept.manifest.snapshot}; pass default= if "
            "that may be"
        )
    return next(iter(found.values()), default)


def dead_letters(
    backend: FsspecBackend, operator: str | None = None, *, at: Literal["latest"] | int | datetime = "latest"
) -> Iterator[DeadLetter]:
    """Read the dead letters in a snapshot; nothing is claimed, locked or written.

    Args:
        backend: the backend, configured as for a run.
        operator: the name of an operator; None for all operators.
        at: the snapshot: ``"latest"``, an id, or a datetime with a time zone for the latest one at that time.

    Yields:
        The letters, operator by operator, oldest first. The classes of their records must be
        importable.

    Raises:
        GraphError: if an argument is not valid.
        SnapshotError: if there is no such snapshot, or it can't be read.
    """
    _, manifest = wanted_manifest(backend, at)
    for entry in manifest.operators:
        name, _, role = entry.name.partition("/")
        if role.endswith(LETTERS) and entry.kind == StateKind.LETTERS.word and operator in (None, name):
            letters = [letter_of(name, *it) for it in read_state(backend, entry.name, at=manifest.snapshot)]
            yield from sorted(letters, key=lambda it: age_of(it.id))

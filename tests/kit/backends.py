"""Backends for the state of jobs, and the content of a job's snapshots."""

from __future__ import annotations

from typing import Any

from fsspec.implementations.memory import MemoryFileSystem

from malflow.errors import SnapshotIncomplete
from malflow.snapshot import FsspecBackend
from malflow.snapshot.executors import InlineExecutor
from malflow.snapshot.persistence import RestoredState
from malflow.snapshot.restore import load

__all__ = ["at_once", "in_memory", "kept", "kept_states", "memory_filesystem"]


def at_once(url: object, **options: Any) -> FsspecBackend:
    """Make a backend that writes each snapshot before the run continues."""
    backend = FsspecBackend(str(url), **options)
    backend._executor = InlineExecutor
    return backend


def memory_filesystem() -> MemoryFileSystem:
    """Make a file system in a memory of its own."""
    filesystem = MemoryFileSystem(skip_instance_cache=True)
    filesystem.store, filesystem.pseudo_dirs = {}, [""]
    return filesystem


def in_memory(**options: Any) -> FsspecBackend:
    """Make a backend in a memory of its own, which writes each snapshot at once."""
    return at_once("memory://kept", filesystem=memory_filesystem(), **options)


def kept(backend: FsspecBackend, snapshot: int | None = None) -> RestoredState:
    """Read a snapshot, by default the newest, without claiming the job; again if a run has deleted it meanwhile."""
    manifest_log = backend.manifest_log()
    assert manifest_log.find() is not None
    while True:
        chosen = [it for it in manifest_log.manifests() if it.snapshot and snapshot in (None, it.snapshot)][-1]
        names = {entry.name: entry.name for entry in chosen.operators}
        try:
            return load(manifest_log, chosen, backend._codec, names)
        except SnapshotIncomplete:
            if snapshot is not None or manifest_log.boundary() <= chosen.seq:
                raise


def kept_states(backend: FsspecBackend, operator: str, snapshot: int | None = None) -> dict[Any, Any]:
    """Read the states of one operator by key, over all workers, of which each key has one."""
    merged: dict[Any, Any] = {}
    for states in kept(backend, snapshot).states.get(operator, {}).values():
        assert merged.keys().isdisjoint(states)
        merged.update(states)
    return merged

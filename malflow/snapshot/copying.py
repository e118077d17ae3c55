"""Copying a snapshot to another job, where it is retained however many newer ones the first job takes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Literal

from malflow.errors import GraphError, SnapshotError
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.commit import Content
from malflow.snapshot.reading import wanted_manifest
from malflow.snapshot.worker_states import deletion_explained
from malflow.words import short_repr

__all__ = ["copy_snapshot"]


def copy_snapshot(
    backend: FsspecBackend, at: Literal["latest"] | int | datetime = "latest", *, to: FsspecBackend
) -> int:
    """Copy a snapshot to another place or job without snapshots; return its id there.

    The files are copied as they are, each verified, without loading their states. The copy is signed with the other
    backend's key. A copy that was interrupted can be repeated; until it is complete, the other job has no snapshot.

    A run of the other job starts from the copy. It is another job, so its exactly-once sinks need outputs and names of
    their own; ``allow_dropped_state`` with the former names drops the states of the first job's sinks.

    Args:
        backend: the backend, configured as for a run. Nothing is claimed or written there.
        at: the snapshot: ``"latest"``, an id, or a datetime with a time zone for the latest one at that time.
        to: the backend of the other job, with the same codec.

    Raises:
        GraphError: if an argument is not valid.
        SnapshotError: if there is no such snapshot, it can't be read, the other job has one, or it can't be written.
    """
    if not isinstance(to, FsspecBackend):
        raise GraphError(f"copy_snapshot needs an FsspecBackend as to=; got {short_repr(to)}")
    manifest_log, manifest = wanted_manifest(backend, at)
    if manifest.codec != to.codec.name:
        raise SnapshotError(
            f"snapshot {manifest.snapshot} was written with codec '{manifest.codec}', but {to!r} has codec "
            f"'{to.codec.name}'; pass codec='{manifest.codec}'"
        )
    claim = to.claim_empty()
    writer = claim.writer()
    files = []
    with deletion_explained(manifest_log, manifest):
        for entry in manifest.files:
            data = manifest_log.read(entry)
            files.append(replace(entry, name=writer.write(data)))
    content = Content(manifest.tick, manifest.parallelism, manifest.codec, manifest.operators, tuple(files))
    return claim.commit(content).snapshot

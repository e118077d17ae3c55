"""Make an earlier snapshot the latest, delete old ones, or copy one to another job."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Literal

from malflow.errors import GraphError, SnapshotError
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.compression import known_as
from malflow.snapshot.files.data_file import decode_file
from malflow.snapshot.persistence import Wish
from malflow.snapshot.placed_states import deletion_explained
from malflow.snapshot.protocol.commit import Content
from malflow.snapshot.protocol.manifest_log import ManifestLog
from malflow.snapshot.protocol.retention import FEWEST_MANIFESTS, delete_below
from malflow.snapshot.reading import wanted_manifest
from malflow.words import short_repr

__all__ = [
    "copy_snapshot",
    "delete_snapshots",
    "deleted_with",
    "rewind",
]


def rewind(backend: FsspecBackend, at: Wish) -> int:
    """Make a snapshot the latest one of its job, by a claim that has its content; return its id.

    The next run resumes from it. A run that is still alive is fenced: it stops, and loses its work since its last
    snapshot. Newer snapshots remain until later ones displace them.

    Args:
        backend: the backend, configured as for a run.
        at: the snapshot: ``"latest"``, an id, or a datetime with a time zone.

    Raises:
        GraphError: if an argument is not valid.
        SnapshotError: if there is no such snapshot, it can't be read, or the job can't be claimed.
    """
    wanted_manifest(backend, at)
    return backend.claim_at(at).head.snapshot


def deleted_with(backend: FsspecBackend, snapshot: int) -> list[int]:
    """Return the ids of the snapshots that are deleted with one: those up to it.

    Args:
        backend: the backend.
        snapshot: the id of a snapshot.

    Raises:
        SnapshotError: if there is no such snapshot, or it is one of the newest (needed).
    """
    return _deletion(backend, snapshot)[1]


def delete_snapshots(backend: FsspecBackend, snapshot: int) -> list[int]:
    """Delete a snapshot and all that are older; return their ids.

    Data files that later snapshots need remain. A run of the job is not disturbed.

    Args:
        backend: the backend.
        snapshot: the id of the newest snapshot to be deleted.

    Raises:
        SnapshotError: if there is no such snapshot, or it is one of the newest (needed).
        StoreError: if something could not be deleted; another call continues.
    """
    manifest_log, ids, boundary = _deletion(backend, snapshot)
    delete_below(manifest_log, boundary, manifest_log.boundary())
    return ids


def _deletion(backend: FsspecBackend, snapshot: int) -> tuple[ManifestLog, list[int], int]:
    """Return the job's files, the ids of the snapshots up to one, and the number of the first manifest after them."""
    manifest_log, wanted = wanted_manifest(backend, snapshot)
    manifests = list(manifest_log.manifests())
    following = [it.seq for it in manifests if it.seq > wanted.seq]
    kept = [it.snapshot for it in manifests if it.seq > wanted.seq]
    newest = manifests[-1].seq
    if not following or following[0] > newest + 1 - FEWEST_MANIFESTS:
        raise SnapshotError(
            f"snapshot {snapshot} of job '{manifest_log.name}' can't be deleted: it is one of the newest, from which "
            "a run may be starting"
        )
    ids = {it.snapshot for it in manifests if it.seq <= wanted.seq} - {0, *kept}
    return manifest_log, sorted(ids), following[0]


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
        to: the backend of the other job, with the same codec, and with the compression of the files if it is your own.

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
    ours = to.manifest_log().compression
    claim = to.claim_empty()
    writer = claim.writer()
    files = []
    with deletion_explained(manifest_log, manifest):
        for entry in manifest.files:
            data = manifest_log.read(entry)
            known_as(entry.name, decode_file(entry.name, data).compression, ours)
            files.append(replace(entry, name=writer.write(data)))
    content = Content(manifest.tick, manifest.parallelism, manifest.codec, manifest.operators, tuple(files))
    return claim.commit(content).snapshot

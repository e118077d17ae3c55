"""Making an earlier snapshot the latest, and deleting old ones, without the program."""

from __future__ import annotations

from malflow.errors import SnapshotError
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.manifest_log import ManifestLog
from malflow.snapshot.persistence import Wish
from malflow.snapshot.reading import wanted_manifest
from malflow.snapshot.retention import FEWEST_MANIFESTS, delete_below

__all__ = ["delete_snapshots", "deleted_with", "rewind"]


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

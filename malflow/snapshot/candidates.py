"""The manifests that may be read for a wish: the latest, an id, or a point in time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from malflow.errors import SnapshotError
from malflow.snapshot.manifest import Manifest
from malflow.snapshot.manifest_log import ManifestLog
from malflow.snapshot.persistence import Wish

__all__ = ["candidates", "time_of", "with_time_taken"]


def time_of(manifest: Manifest) -> datetime:
    """Return when a manifest was written, in UTC."""
    return datetime.fromisoformat(manifest.time).astimezone(UTC)


def with_time_taken(manifest_log: ManifestLog, manifest: Manifest) -> Manifest:
    """Return a manifest with the time at which its snapshot was taken; a claim repeats a snapshot at a later time.

    If the manifest of the snapshot itself has been deleted, the time stays that of the claim.
    """
    if manifest.snapshot in (0, manifest.seq) or manifest_log.digest(manifest.snapshot) is None:
        return manifest
    return replace(manifest, time=manifest_log.manifest(manifest.snapshot).time)


def candidates(manifest_log: ManifestLog, wish: Wish, numbers: list[int]) -> list[int]:
    """Return the candidate manifests: first the wanted one, then earlier ones, newest first.

    Args:
        manifest_log: the manifests of the job.
        wish: the snapshot wanted.
        numbers: the numbers of those retained, in order; at least one.

    Raises:
        SnapshotError: if there is no such snapshot.
    """
    if isinstance(wish, datetime):
        return _at(manifest_log, wish, numbers)
    if not isinstance(wish, int):
        return numbers[::-1]
    contents = {seq: manifest_log.manifest(seq).snapshot if manifest_log.digest(seq) else seq for seq in numbers}
    if not wish or wish not in contents.values():
        known = sorted(set(contents.values()) - {0})
        raise SnapshotError(f"job '{manifest_log.name}' has no snapshot with the id {wish}; it has {known}")
    before = [seq for seq in numbers if contents[seq] <= wish]
    return sorted(before, key=lambda seq: (contents[seq], manifest_log.digest(seq) is not None, seq), reverse=True)


def _at(manifest_log: ManifestLog, at: datetime, numbers: list[int]) -> list[int]:
    """Return the manifests from the one that was the newest at a point in time.

    A damaged one directly after that may have been it, so it comes first: a strict reader then raises.
    """
    first = len(numbers)
    time = None
    for index in range(len(numbers) - 1, -1, -1):
        if manifest_log.digest(numbers[index]) is None:
            continue
        manifest = manifest_log.manifest(numbers[index])
        time = time_of(manifest)
        if time <= at and not manifest.snapshot:
            break
        if time <= at:
            return numbers[:first][::-1]
        first = index
    known = "an unknown time" if time is None else time.isoformat()
    raise SnapshotError(
        f"job '{manifest_log.name}' has no snapshot at or before {at.isoformat()}; "
        + (f"it began with empty state at {known}" if time and time <= at else f"the oldest one retained is of {known}")
    )

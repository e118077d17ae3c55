"""The manifests that may be read for a wish: the latest, an id, or a point in time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from malflow.errors import GraphError, SnapshotError, short_repr
from malflow.snapshot.manifest import Manifest
from malflow.snapshot.manifest_log import ManifestLog

__all__ = ["Wish", "candidates", "check_wish", "time_of"]

Wish = Literal["latest"] | int | datetime
"""The snapshot wanted: the latest one, that with an id, or the latest one at a point in time."""


def check_wish(name: str, wish: object) -> None:
    """Check a wish.

    Args:
        name: the name of the argument, for the error.
        wish: the wish.

    Raises:
        GraphError: if it is neither ``"latest"`` nor an id nor a datetime with a time zone.
    """
    if wish == "latest" or (isinstance(wish, int) and not isinstance(wish, bool)):
        return
    if not isinstance(wish, datetime):
        raise GraphError(f"{name} needs 'latest', the id of a snapshot, or a datetime; got {short_repr(wish)}")
    if wish.utcoffset() is None:
        raise GraphError(f"{name} needs a datetime with a time zone; got {wish!r}; add tzinfo=UTC, or .astimezone()")


def time_of(manifest: Manifest) -> datetime:
    """Return when a manifest was written, in UTC."""
    return datetime.fromisoformat(manifest.time).astimezone(UTC)


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

"""Deleting the snapshots that are not retained, while other runs may start or still be deleting."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from malflow.errors import SnapshotError, StoreError
from malflow.snapshot.protocol.manifest import (
    BOUNDARIES,
    DATA,
    MANIFESTS,
    boundary_key,
    highest,
    number_of,
    sequence_of_target,
)
from malflow.snapshot.protocol.manifest_log import ManifestLog, time_of
from malflow.store.contract import KeyExists
from malflow.store.failpoint import failpoint

__all__ = ["FEWEST_MANIFESTS", "delete_below", "delete_unreferenced"]

FEWEST_MANIFESTS = 3
"""The number of manifests that are always retained."""

_MOST_CLAIMS = 64
"""The number of claims without a snapshot (a crash loop) after which old snapshots are deleted."""

_NOTHING = 0
"""The number before the first manifest, and of a manifest without a snapshot."""


def delete_unreferenced(manifest_log: ManifestLog, newest: int, retain: int | timedelta) -> None:
    """Raise the boundary, then delete the manifests below it and the data files that no manifest refers to.

    Args:
        manifest_log: the manifests and data files of the job.
        newest: the number of the latest manifest.
        retain: the number of snapshots to retain, or for how long.

    Raises:
        StoreError: if something could not be deleted; the next call retries it.
    """
    before = manifest_log.boundary()
    boundary = _new_boundary(manifest_log, newest, retain, manifest_log.sequences(before))
    delete_below(manifest_log, boundary, before)


# Idea: first make old numbers invalid, then delete. A run that still works below the boundary notices it before its
# commit counts, so it can't refer to files that are being deleted.
#
# Invariant: a file is deleted only if its number is below the boundary and no retained manifest refers to it. If a
# retained manifest can't be read, no data file is deleted. An interrupted deletion is completed by the next call.
#
# Example: the manifests 1 to 9, with five snapshots to retain.
#   boundary     5 is created
#   manifests    1 to 4 are deleted
#   data         files of the numbers below 5 are deleted, except for those that 5 to 9 refer to
def delete_below(manifest_log: ManifestLog, boundary: int, before: int) -> None:
    """Raise the boundary to a number, then delete the manifests below it and the data files that none refers to.

    Args:
        manifest_log: the manifests and data files of the job.
        boundary: the number of the oldest manifest to be retained; one of the newest `FEWEST_MANIFESTS` at most.
        before: the present boundary.

    Raises:
        StoreError: if something could not be deleted; the next call retries it.
    """
    if boundary > before:
        with suppress(KeyExists):
            manifest_log.retry.of(lambda: manifest_log.store.put_new(boundary_key(boundary), b"boundary"))
        failpoint("boundary-raised")
    marks, manifests = manifest_log.list(BOUNDARIES), manifest_log.list(MANIFESTS)
    boundary = highest(marks)
    retained = [seq for key in manifests if (seq := number_of(key)) is not None and seq >= boundary]
    needed = _needed(manifest_log, retained)
    dead = [key for key in [*manifests, *marks] if _is_below(key, boundary)]
    if needed is not None:
        dead += [key for key in manifest_log.list(DATA) if _is_below(key, boundary) and key not in needed]
        for folder in (MANIFESTS, DATA, BOUNDARIES):
            manifest_log.store.sweep(folder, lambda key: _is_below(key, boundary))
    for key in dead:
        manifest_log.retry.of(lambda key=key: manifest_log.store.delete(key))  # type: ignore[misc] # mypy does not infer defaults
        failpoint("collected")
    manifest_log.forget(boundary)


def _new_boundary(manifest_log: ManifestLog, newest: int, retain: int | timedelta, numbers: list[int]) -> int:
    """Return the number of the oldest snapshot to be retained."""
    if isinstance(retain, timedelta):
        return max(_NOTHING, min(_newest_before(manifest_log, newest, retain, numbers), newest + 1 - FEWEST_MANIFESTS))
    contents: set[int] = set()
    oldest = newest
    for seq in reversed(numbers):
        if newest - seq >= retain + _MOST_CLAIMS:
            break
        try:
            contents.add(manifest_log.manifest(seq).snapshot)
        except StoreError:
            raise
        except SnapshotError:
            contents.add(seq)  # unreadable: counted as a snapshot of its own
        if len(contents - {_NOTHING}) > retain:
            break
        oldest = seq
    return max(_NOTHING, min(oldest, newest + 1 - FEWEST_MANIFESTS))


def _newest_before(manifest_log: ManifestLog, newest: int, span: timedelta, numbers: list[int]) -> int:
    """Return the number of the manifest that was the newest a span of time before the newest one was written."""
    try:
        since = time_of(manifest_log.manifest(newest)) - span
    except OverflowError:  # before the first year
        return numbers[0]
    for seq in reversed(numbers):
        try:
            if time_of(manifest_log.manifest(seq)) <= since:
                return seq
        except StoreError:
            raise
        except SnapshotError:
            continue  # its time is unknown: an older one decides
    return numbers[0]


def _needed(manifest_log: ManifestLog, numbers: list[int]) -> set[str] | None:
    """Return the data files of these manifests; None (unknown) if one can't be read."""
    try:
        manifests = [manifest_log.manifest(seq) for seq in numbers]
    except StoreError:
        raise
    except SnapshotError:
        return None
    return {entry.name for manifest in manifests for entry in manifest.files}


def _is_below(key: str, boundary: int) -> bool:
    seq = sequence_of_target(key)
    return seq is not None and seq < boundary

"""The snapshot from which a start would resume, and whether it could, found without claiming or writing anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from malflow.errors import SnapshotError, StoreError
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.codecs.contract import Codec
from malflow.snapshot.files.stored_states import Versions
from malflow.snapshot.persistence import RestoredState, RestoreOptions
from malflow.snapshot.protocol.commit import retained_numbers
from malflow.snapshot.protocol.manifest import Manifest
from malflow.snapshot.protocol.manifest_log import ManifestLog, with_time_taken
from malflow.snapshot.restore import Review, load, manifest_choice, review
from malflow.states.kinds import StateSpec

__all__ = ["Preview", "SnapshotIsGone", "preview"]

_ATTEMPTS = 10
"""Tries while a run deletes manifests. Fewer: more failures; more: a hopeless search takes longer."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The findings of a start.

    Attributes:
        manifest: the snapshot from which it would resume; None if it would start from empty state, or find none.
        review: whether the program could continue from it; None without a snapshot.
        error: the error that it would raise for another reason than a refusal of the review; None without one.
        latest: the id of the latest snapshot; None without one, or if it can't be read.
        load: reads the states without a refusal; raises the errors of a start, or `SnapshotIsGone`. None if no state
            can be read.
    """

    manifest: Manifest | None = None
    review: Review | None = None
    error: SnapshotError | None = None
    latest: int | None = None
    load: Callable[[], RestoredState] | None = None


class SnapshotIsGone(Exception):
    """A run has deleted the snapshot since it was found; there is a newer one."""


class _Refused(Exception):
    """Ends the choice of a manifest, as the error of a start would."""


def preview(backend: FsspecBackend, states: Sequence[StateSpec], start: RestoreOptions) -> Preview:
    """Find the snapshot from which a start would resume, and review it; nothing is claimed, created or written.

    Manifests are read, and data files only if ``recovery`` is ``"previous"``: that looks for a readable snapshot.

    Args:
        backend: the backend, configured as for a run.
        states: the states of the program.
        start: the options for restoring state.

    Raises:
        StoreError: if the store can't be read.
    """
    manifest_log = backend.manifest_log()
    reviews: dict[int, Review] = {}
    chosen: list[Manifest] = []
    versions = {spec.name: spec.version for spec in states}

    def accept(manifest: Manifest) -> dict[str, str]:
        found = reviews[manifest.seq] = review(manifest, states, start, backend.codec)
        chosen[:] = [manifest]
        if found.refusals:
            raise _Refused
        return dict(found.names)

    error: SnapshotError | None = None
    try:
        if manifest_log.find() is None:
            backend._check_not_nested()  # noqa: SLF001 - the check of a start
        _settled(manifest_log, manifest_choice(manifest_log, start, backend.codec, accept, versions))
    except _Refused:
        pass
    except StoreError:
        raise
    except SnapshotError as failed:
        chosen, error = [], failed
    latest = _latest(manifest_log)
    if not chosen:
        return Preview(error=error, latest=latest)
    (manifest,) = chosen
    found = reviews[manifest.seq]

    is_readable = all(it.states for it in found.refusals)  # no refusal concerns all of them
    loading = partial(_loaded, manifest_log, manifest, backend.codec, found, versions) if is_readable else None
    shown = with_time_taken(manifest_log, manifest) if manifest.snapshot else None
    return Preview(shown, found, None, latest, loading)


def _loaded(
    manifest_log: ManifestLog, manifest: Manifest, codec: Codec, found: Review, versions: Versions
) -> RestoredState:
    """Read the states without a refusal."""
    refused = {name for it in found.refusals for name in it.states}
    names = {old: new for old, new in found.names.items() if old not in refused}
    try:
        return load(manifest_log, manifest, codec, names, versions)
    except SnapshotError as error:
        if manifest_log.boundary() > manifest.seq:
            raise SnapshotIsGone from error
        raise


def _settled(manifest_log: ManifestLog, choose: Callable[[list[int]], Manifest | None]) -> Manifest | None:
    """Choose a manifest; try again if a run deletes files meanwhile."""
    for attempt in range(_ATTEMPTS):
        boundary = manifest_log.boundary()
        try:
            numbers = retained_numbers(manifest_log, boundary)
            if numbers is not None:
                return choose(numbers)
        except SnapshotError:
            if manifest_log.boundary() == boundary or attempt == _ATTEMPTS - 1:
                raise
    raise SnapshotError(f"job '{manifest_log.name}' is being created by another run; try again")


def _latest(manifest_log: ManifestLog) -> int | None:
    numbers = manifest_log.sequences(manifest_log.boundary())
    try:
        return manifest_log.manifest(numbers[-1]).snapshot or None if numbers else None
    except SnapshotError:
        return None

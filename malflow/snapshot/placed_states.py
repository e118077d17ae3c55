"""One state of a snapshot, read worker by worker or by key, in the memory of one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from typing import Any

from malflow.errors import SnapshotIncomplete
from malflow.partitioners import PLACEMENT, index_select, rendezvous_select
from malflow.snapshot.codecs.contract import Codec
from malflow.snapshot.files.data_file import Section
from malflow.snapshot.files.stored_states import FoundSection, StoredStates
from malflow.snapshot.protocol.manifest import Manifest, StateEntry
from malflow.snapshot.protocol.manifest_log import ManifestLog
from malflow.states.entry_keys import RECORD_KEYS
from malflow.states.kinds import Movement, StateKind

__all__ = ["WorkerStates", "deletion_explained"]

_MOST_HELD = 32 << 20
"""The size of the files that are held in memory, rather than read again for each worker."""

_OWNERS: dict[str | None, Callable[[Any, range], int]] = {
    PLACEMENT: rendezvous_select,
    f"{index_select.__module__}.{index_select.__qualname__}": index_select,
}
"""The partitioners that are known by their names; any other may have placed a key on any worker."""


class WorkerStates:
    """One state in a snapshot; each file is verified before anything in it is loaded.

    Args:
        manifest_log: the manifests and data files of the job.
        manifest: the snapshot.
        entry: the state.
        codec: the codec of the states.
        hidden: other states of the same operator.

    Attributes:
        manifest: the snapshot.
        entry: the state.
    """

    def __init__(
        self,
        manifest_log: ManifestLog,
        manifest: Manifest,
        entry: StateEntry,
        codec: Codec,
        hidden: Iterable[StateEntry] = (),
    ) -> None:
        self.manifest = manifest
        self.entry = entry
        self._manifest_log = manifest_log
        names = {it.name: it.name for it in (entry, *hidden)}
        self._stored = StoredStates.of(manifest_log, manifest, codec, names, None)
        self._small = _small(manifest)
        self._held: dict[int, list[FoundSection]] = {}
        self._counts: dict[str, dict[int, int]] = {name: {} for name in names}

    @property
    def kind(self) -> StateKind | None:
        """The kind of the state; None if a newer version wrote it."""
        return StateKind.of(self.entry.kind)

    @property
    def is_by_worker(self) -> bool:
        """Whether each worker has states of its own, under the same names."""
        return self.kind is not None and self.kind.movement in (Movement.EPOCHS, Movement.FRONTIER)

    @property
    def key_of(self) -> Callable[[Any], Any] | None:
        """Returns the key of a record from that of an entry of the state; None if records have no part in it."""
        return None if self.kind is None else RECORD_KEYS.get(self.kind.movement)

    def owners(self, key: Any) -> set[int]:
        """Return the workers to which records with a key may have gone: all, if the partitioner is not known."""
        select, workers = _OWNERS.get(self.entry.placement), range(self.manifest.parallelism)
        return set(workers) if select is None else {select(key, workers)}

    @cached_property
    def workers(self) -> list[int]:
        """The workers that have the state, in order."""
        return sorted({worker for workers in self._workers_of_files for worker in workers})

    def states(self, worker: int) -> dict[Any, Any]:
        """Read the states of one worker, in their order. After the sections of all workers, check their number.

        Where each worker has states under the same names, these are preceded by the worker's number.

        Raises:
            SnapshotCorrupt: if a file is damaged or missing, or the states don't add up.
            SnapshotError: if a state can't be read.
        """
        states = self.states_by_name(worker)[self.entry.name]
        return {(worker, name): state for name, state in states.items()} if self.is_by_worker else states

    def states_by_name(self, worker: int) -> dict[str, dict[Any, Any]]:
        """Read all states of one worker, with the hidden ones, as `states` does."""
        found: dict[str, dict[Any, Any]] = {name: {} for name in self._counts}
        if worker not in self.workers:
            return found
        with deletion_explained(self._manifest_log, self.manifest):
            files = [at for at, workers in enumerate(self._workers_of_files) if worker in workers]
            sections = (found for at in files for found in self._sections(at) if found.section.worker == worker)
            found.update(self._stored.states(sections))
            for name, counts in self._counts.items():
                counts[worker] = len(found[name])
            if len(self._counts[self.entry.name]) == len(self.workers):
                self._stored.check(self._counts)
        return found

    def find(self, key: Any, worker: int | None = None) -> dict[int, Any]:
        """Return the state of a key, by worker; only under ``key_local`` may several workers have one.

        Files are read from the newest to the first that knows the key.

        Args:
            key: the key.
            worker: the only worker to look at; by default all that may have it.

        Raises:
            SnapshotCorrupt: if a file is damaged or missing.
            SnapshotError: if a state can't be read.
        """
        undecided = self._owners(key) if worker is None else {worker}
        found: dict[int, Any] = {}
        with deletion_explained(self._manifest_log, self.manifest):
            for section, states in self._newest_first(undecided):
                if section.what == "whole":
                    undecided.discard(section.worker)
                elif key in states:
                    undecided.discard(section.worker)
                    if section.what != "deleted":
                        found[section.worker] = states[key]
                    if found and self.entry.placement is not None:
                        break
        return found

    def _owners(self, key: Any) -> set[int]:
        """Return the workers that may have an entry of the state."""
        return set(range(self.manifest.parallelism)) if self.key_of is None else self.owners(self.key_of(key))

    def _newest_first(self, workers: set[int]) -> Iterator[tuple[Section, Any]]:
        """Yield the sections of workers with their content, newest first, until no worker is left."""
        pieces: list[FoundSection] = []
        for file in reversed(range(self._stored.files)):
            for found in reversed(self._sections(file)):
                if not workers:
                    return
                if found.section.worker in workers and found.section.state == self.entry.name:
                    pieces.insert(0, found)
                    if not found.section.piece:
                        yield from self._stored.chunks(pieces)
                        pieces.clear()

    @cached_property
    def _workers_of_files(self) -> list[set[int]]:
        """The workers that have a section in each file, all of which are read for it."""
        with deletion_explained(self._manifest_log, self.manifest):
            return [{found.section.worker for found in self._sections(file)} for file in range(self._stored.files)]

    def _sections(self, file: int) -> list[FoundSection]:
        if file in self._held:
            return self._held[file]
        sections = list(self._stored.read(file))
        if file in self._small:
            self._held[file] = sections
        return sections


@contextmanager
def deletion_explained(manifest_log: ManifestLog, manifest: Manifest) -> Iterator[None]:
    """Explain a file that is missing in the block because a run has deleted the snapshot meanwhile.

    Raises:
        SnapshotIncomplete: naming the snapshot and a remedy.
    """
    try:
        yield
    except SnapshotIncomplete as error:
        if manifest_log.boundary() <= manifest.seq:
            raise
        raise SnapshotIncomplete(
            f"snapshot {manifest.snapshot} of job '{manifest.name}' was deleted while it was read, since newer ones "
            "exist; read a newer one, let the job retain more by retain=, or copy a snapshot by copy_snapshot() and "
            "read the copy",
            name=error.name,
        ) from error


def _small(manifest: Manifest) -> set[int]:
    """Return the smallest files. They are held in memory together: increments have sections of all workers."""
    by_size = sorted(range(len(manifest.files)), key=lambda at: manifest.files[at].bytes)
    sums = accumulate(manifest.files[at].bytes for at in by_size)
    return {at for at, total in zip(by_size, sums, strict=True) if total <= _MOST_HELD}

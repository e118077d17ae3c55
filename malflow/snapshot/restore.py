"""Choose the snapshot to restore, and decide whether a program can continue from it.

It depends on the manifest alone: no state is read. A start raises the first refusal; ``malflow plan`` shows all of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, starmap
from typing import Any, Literal

from malflow.errors import SnapshotCorrupt, SnapshotError
from malflow.snapshot.codecs.contract import Codec
from malflow.snapshot.evolution import Refusal, changed_definitions, changed_shapes, match_states
from malflow.snapshot.files.data_file import DataFile, decode_file
from malflow.snapshot.files.stored_states import FoundSection, Names, StoredStates, Versions, refused_codec, with_hint
from malflow.snapshot.persistence import RestoredState, RestoreOptions
from malflow.snapshot.protocol.manifest import Manifest, StateEntry
from malflow.snapshot.protocol.manifest_log import ManifestLog, candidates, time_of, with_time_taken
from malflow.states.kinds import StateSpec

__all__ = [
    "Fate",
    "Review",
    "ReviewedState",
    "load",
    "manifest_choice",
    "replay",
    "review",
]

States = dict[str, dict[int, dict[Any, Any]]]
"""The state of each key, by name of the state and worker."""


def manifest_choice(
    manifest_log: ManifestLog,
    start: RestoreOptions,
    codec: Codec,
    accept: Callable[[Manifest], Names],
    versions: Versions | None = None,
) -> Callable[[list[int]], Any]:
    """Return a function that picks the manifest to restore from the numbers of those retained.

    Args:
        manifest_log: the manifests and data files of the job.
        start: the user's options.
        codec: the codec of the states.
        accept: returns the states to read; raises if the program can't resume from a manifest.
        versions: the state versions of the program.
    """

    def choose(numbers: list[int]) -> Manifest | None:
        if start.restore is None or not numbers:
            if isinstance(start.restore, int | datetime):
                raise SnapshotError(f"job '{manifest_log.name}' has no snapshots; got restore={start.restore}")
            return None
        wanted = candidates(manifest_log, start.restore, numbers)
        if start.recovery == "previous":
            return _first_readable(manifest_log, wanted, codec, accept, versions)
        try:
            chosen = manifest_log.manifest(wanted[0])
        except SnapshotCorrupt as error:
            raise with_hint(error) from error
        accept(chosen)
        return chosen

    return choose


def _first_readable(
    manifest_log: ManifestLog,
    numbers: list[int],
    codec: Codec,
    accept: Callable[[Manifest], Names],
    versions: Versions | None,
) -> Manifest | None:
    """Return the newest manifest with a readable snapshot."""
    first: SnapshotCorrupt | None = None
    for seq in numbers:
        try:
            manifest = manifest_log.manifest(seq)
            files = [(entry.name, decode_file(entry.name, manifest_log.read(entry))) for entry in manifest.files]
            if manifest.snapshot == 0 and first is not None:
                break
            stored = StoredStates.of(manifest_log, manifest, codec, accept(manifest), versions)
            replay(stored, files)
        except SnapshotCorrupt as error:
            first = first or error
            continue
        return manifest
    raise SnapshotError(f"no snapshot of job '{manifest_log.name}' can be read; the newest one: {first}") from first


def load(
    manifest_log: ManifestLog,
    manifest: Manifest,
    codec: Codec,
    names: Names,
    versions: Versions | None = None,
    *,
    in_store: bool = False,
) -> RestoredState:
    """Read the state of a snapshot.

    Args:
        manifest_log: the manifests and data files of the job.
        manifest: the snapshot.
        codec: the codec of the states.
        names: the states to read, mapped to their names in the program.
        versions: the state versions of the program.
        in_store: whether to leave the states in the store.

    Raises:
        SnapshotCorrupt: if a file is damaged or missing.
        SnapshotError: if a state can't be read.
    """
    stored = StoredStates.of(manifest_log, manifest, codec, names, versions)
    try:
        states = {} if in_store else replay(stored)
    except SnapshotCorrupt as error:
        raise with_hint(error) from error
    return RestoredState(
        snapshot=manifest.snapshot,
        tick=manifest.tick,
        parallelism=manifest.parallelism,
        states=states,
        versions={names[entry.name]: entry.version for entry in manifest.operators if entry.name in names},
        placements={names[entry.name]: entry.placement for entry in manifest.operators if entry.name in names},
        time=time_of(with_time_taken(manifest_log, manifest)),
        stored=stored if in_store else None,
        definitions={names[entry.name]: entry.definition for entry in manifest.operators if entry.name in names},
    )


def replay(stored: StoredStates, files: Iterable[tuple[str, DataFile]] | None = None) -> States:
    """Return the states of a snapshot, replayed from its files and checked against its manifest.

    Args:
        stored: the states in the store.
        files: its files with their names, in order, if they have been read; None to read them.

    Raises:
        SnapshotCorrupt: if a file is damaged or missing, or the files don't match the manifest.
        SnapshotError: if a state can't be read, or was written with another codec.
    """
    by_worker: dict[int, list[FoundSection]] = {}
    read = map(stored.read, range(stored.files)) if files is None else starmap(stored.sections, files)
    for found in chain.from_iterable(read):
        by_worker.setdefault(found.section.worker, []).append(found)
    states: States = {name: {} for name in stored.names.values()}
    for worker, sections in by_worker.items():
        for name, held in stored.states(sections).items():
            states[name][worker] = held
    stored.check({name: {worker: len(held) for worker, held in them.items()} for name, them in states.items()})
    return states


Fate = Literal["kept", "new", "dropped", "lost"]
"""The future of a state: it is loaded, begins empty, has no place in the program, or begins empty because its
windows have changed."""


@dataclass(frozen=True, slots=True)
class ReviewedState:
    """A state of a snapshot, of a program, or of both.

    Attributes:
        entry: the state in the snapshot; None if it is new.
        spec: the state in the program; None if it has no place there.
        fate: its future, if nothing is refused.
        refusals: the refusals that concern it.
        loss: why it is lost, as a sentence; None if it is not lost.
    """

    entry: StateEntry | None
    spec: StateSpec | None
    fate: Fate
    refusals: tuple[Refusal, ...] = ()
    loss: str | None = None

    @property
    def name(self) -> str:
        """The name of the state in the program, or else in the snapshot."""
        return self.spec.name if self.spec is not None else self.entry.name if self.entry is not None else ""


@dataclass(frozen=True, slots=True)
class Review:
    """The outcome of a review.

    Attributes:
        names: the states to be loaded, mapped to their names in the program.
        states: every state of the program, in its order, and then the states of the snapshot without a place in it.
        refusals: the reasons why the program can't continue, in the order in which a start would raise them.
    """

    names: Mapping[str, str]
    states: tuple[ReviewedState, ...]
    refusals: tuple[Refusal, ...]

    @property
    def losses(self) -> list[str]:
        """The sentences about states that are lost because their windows have changed."""
        return [it.loss for it in self.states if it.loss is not None]

    def check(self) -> None:
        """Raise the first refusal.

        Raises:
            SnapshotError: if the program can't continue.
        """
        if self.refusals:
            raise self.refusals[0].error


def review(manifest: Manifest, specs: Sequence[StateSpec], start: RestoreOptions, codec: Codec) -> Review:
    """Decide whether a program can continue from a snapshot.

    Args:
        manifest: the snapshot.
        specs: the states of the program.
        start: the options for restoring state.
        codec: the codec of the states.
    """
    matched = match_states(manifest, specs, start)
    refusals = [*matched.refusals]
    changed, losses = changed_definitions(manifest, specs, matched.names, start.allow_dropped_state)
    names = {old: new for old, new in matched.names.items() if old not in losses}
    refusals += changed
    refusals += changed_shapes(manifest, specs, names, codec)
    if manifest.files and manifest.codec != codec.name:
        error = SnapshotError(refused_codec(manifest.files[0].name, manifest.codec, codec.name))
        refusals.append(Refusal("codec", (), error))
    return Review(names, (*_states(manifest, specs, matched.names, losses, refusals),), tuple(refusals))


def _states(
    manifest: Manifest,
    specs: Sequence[StateSpec],
    names: Mapping[str, str],
    losses: Mapping[str, str],
    refusals: Sequence[Refusal],
) -> list[ReviewedState]:
    found = {new: old for old, new in names.items()}
    entries = {entry.name: entry for entry in manifest.operators}
    about: dict[str, list[Refusal]] = {}
    for it in refusals:
        for name in it.states:
            about.setdefault(name, []).append(it)
    states = []
    for spec in specs:
        old = found.get(spec.name)
        if old is None:
            states.append(ReviewedState(None, spec, "new"))
            continue
        fate: Fate = "lost" if old in losses else "kept"
        states.append(ReviewedState(entries[old], spec, fate, tuple(about.get(old, ())), losses.get(old)))
    gone = [entry for name, entry in entries.items() if name not in names]
    return states + [ReviewedState(entry, None, "dropped", tuple(about.get(entry.name, ()))) for entry in gone]

"""The decision whether a program can continue from a snapshot: the fate of each state, and all refusals.

It depends on the manifest alone: no state is read. A start raises the first refusal; ``malflow plan`` shows all of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from malflow.errors import SnapshotError
from malflow.snapshot.codecs.contract import Codec
from malflow.snapshot.evolution import Refusal, changed_definitions, changed_shapes, match_states
from malflow.snapshot.manifest import Manifest, StateEntry
from malflow.snapshot.persistence import RestoreOptions
from malflow.snapshot.stored_states import refused_codec
from malflow.states.kinds import StateSpec

__all__ = ["Fate", "Review", "ReviewedState", "review"]

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
    changed, losses = changed_definitions(manifest, specs, matched.names)
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

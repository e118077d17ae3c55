"""Matching the states of a snapshot to a program that may have changed since.

States are matched by the operator's name, or the new name given in ``renamed``, and by their kind. A state with keys
that has no place in the program is an error unless the user allows dropping it, or its kind may be lost. Then the
definitions of windows and aggregators, and the shapes of classes in states, are compared: a difference is an error
unless the operator's version was increased, or there is a migration. All checks precede loading.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from malflow.errors import SnapshotError
from malflow.operators.letters import LETTERS
from malflow.snapshot.codecs.contract import Codec, ShapedCodec
from malflow.snapshot.manifest import Manifest, StateEntry
from malflow.snapshot.persistence import RestoreOptions
from malflow.states.kinds import StateKind, StateSpec

__all__ = ["check_definitions", "check_shapes", "match_states", "may_be_lost", "present_name"]

_log = logging.getLogger("malflow.snapshot")

_WINDOWS = (StateKind.WINDOW, StateKind.ROLLUP, StateKind.SESSION, StateKind.COUNT_WINDOW)


def may_be_lost(entry: StateEntry) -> bool:
    """Whether a state may be dropped without the user's permission."""
    kind = StateKind.of(entry.kind)
    return kind is not None and kind.may_be_lost


def match_states(manifest: Manifest, program: Sequence[StateSpec], start: RestoreOptions) -> dict[str, str]:
    """Return the states of the snapshot that are to be loaded, mapped to their names in the program.

    Raises:
        SnapshotError: if a state has no place in the program and may not be dropped, or its kind has changed.
    """
    there = {entry.name: entry for entry in manifest.operators}
    here = {spec.name: spec for spec in program}
    _check_renamed(there, here, start)
    start = _with_hidden(there, here, start)
    matched, homeless = {}, []
    for entry in manifest.operators:
        if entry.name in _replaced(there, start):
            continue
        name = start.renamed.get(entry.name, present_name(entry))
        if name in here and here[name].kind.word == entry.kind:
            matched[entry.name] = name
        elif entry.keys and not may_be_lost(entry) and entry.name not in start.allow_dropped_state:
            homeless.append(entry)
    if homeless:
        raise SnapshotError(_refusal(manifest, homeless, _unfilled(program, matched.values()), here))
    return matched


def _unfilled(program: Sequence[StateSpec], matched: Collection[str]) -> list[StateSpec]:
    """Return the states of the program that are not in the snapshot, without dead letters, which most never have."""
    return [
        spec
        for spec in program
        if spec.name not in matched and not spec.kind.may_be_lost and spec.kind is not StateKind.LETTERS
    ]


def _with_hidden(
    there: Mapping[str, StateEntry], here: Mapping[str, StateSpec], start: RestoreOptions
) -> RestoreOptions:
    """Return the options with the hidden states of the operators that they name."""
    hidden = [name.split("/", 1) for name in there if "/" in name]
    renamed = {
        f"{operator}/{role}": f"{start.renamed[operator]}/{role}"
        for operator, role in hidden
        if operator in start.renamed and f"{start.renamed[operator]}/{role}" in here
    }
    dropped = [f"{operator}/{role}" for operator, role in hidden if operator in start.allow_dropped_state]
    return replace(
        start, renamed={**renamed, **start.renamed}, allow_dropped_state=[*start.allow_dropped_state, *dropped]
    )


def present_name(entry: StateEntry) -> str:
    """Return the current name of a state of an exchange or a union, which older versions named differently."""
    if StateKind.of(entry.kind) is not StateKind.FRONTIER:
        return entry.name
    if entry.name.startswith("\n"):
        return f"{entry.name[1:]}/union"
    operator = entry.name.removesuffix("-distribute")
    return entry.name if operator == entry.name else f"{operator}/exchange"


def check_definitions(manifest: Manifest, program: Sequence[StateSpec], names: dict[str, str]) -> None:
    """Check that the windows and aggregators of states are unchanged, except where the version was increased.

    Accumulators in panes of another partition of time can't be carried over: such states, whose version was increased,
    are removed from `names`, so that their operators start without open windows.

    Args:
        manifest: the snapshot.
        program: the states of the program.
        names: the states to be loaded, mapped to their names in the program.

    Raises:
        SnapshotError: if a definition has changed, with both definitions and a remedy.
    """
    specs = {spec.name: spec for spec in program}
    for entry in manifest.operators:
        spec = specs.get(names.get(entry.name, ""))
        if spec is None or (entry.definition, entry.panes) == (spec.definition, spec.panes):
            continue
        if spec.version == entry.version:
            raise SnapshotError(
                f"operator '{spec.name}' is {spec.definition}, but in snapshot {manifest.snapshot} it is "
                f"{entry.definition}; restore it, or increase version=: {_after(entry, spec)}"
            )
        if entry.panes != spec.panes:
            _log.warning(
                "operator '%s' starts without the %d %s in snapshot %d: it was %s and is %s",
                spec.name,
                entry.keys,
                "accumulators of open windows" if spec.kind in _WINDOWS else "states",
                manifest.snapshot,
                entry.definition,
                spec.definition,
            )
            del names[entry.name]


def _after(entry: StateEntry, spec: StateSpec) -> str:
    """Return how a new version treats states of another definition."""
    if spec.kind is StateKind.MATCH:
        return "partial matches are then dropped, unless migrate=(partials, old_version) -> partials converts them"
    if spec.kind in _WINDOWS or entry.panes == spec.panes:
        return (
            "other aggregators then need migrate=(old, version) -> accumulator, and other windows start without those "
            "that are open"
        )
    return "the operator then starts without states"


def check_shapes(manifest: Manifest, program: Sequence[StateSpec], names: Mapping[str, str], codec: Codec) -> None:
    """Check that the classes in states are unchanged, except where a migration handles the change.

    Args:
        manifest: the snapshot.
        program: the states of the program.
        names: the states to be loaded, mapped to their names in the program.
        codec: the codec of the states.

    Raises:
        SnapshotError: if a class has changed or is missing, with both shapes and a remedy.
    """
    if not isinstance(codec, ShapedCodec) or manifest.codec != codec.name:
        return
    specs = {spec.name: spec for spec in program}
    for entry in manifest.operators:
        spec = specs.get(names.get(entry.name, ""))
        if spec is None or spec.version != entry.version:
            continue
        changes = [codec.change_of(shape, f"snapshot {manifest.snapshot}") for shape in entry.shapes]
        said = [change for change in changes if change is not None]
        if said:
            raise SnapshotError(f"operator '{spec.name}': {'; '.join(said)}; {_way_out(spec)}")


def _way_out(spec: StateSpec) -> str:
    if spec.kind.migrates:
        return "increase version= and pass migrate=(old, version) -> state"
    return (
        f"states of kind '{spec.kind.word}' can't be migrated: leave the class as it was (unless it is a tuple, it may "
        f"have a __setstate__ that accepts its old fields); or rename '{spec.name}' and pass "
        f"allow_dropped_state=['{spec.name}'] to start it with empty state"
    )


def _check_renamed(there: dict[str, StateEntry], here: dict[str, StateSpec], start: RestoreOptions) -> None:
    for old, new in start.renamed.items():
        if new not in here and not any(name.startswith(f"{new}/") for name in here):
            near = get_close_matches(new, here, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise SnapshotError(f"renamed= maps '{old}' to '{new}', but the program has no state of that name{hint}")
        if old in here and old != new:
            raise SnapshotError(f"renamed= maps '{old}' to '{new}', but the program still has '{old}'")
        if new in _replaced(there, start) and new not in start.allow_dropped_state:
            raise SnapshotError(
                f"renamed= maps '{old}' to '{new}', but the snapshot has states of both; pass "
                f"allow_dropped_state=['{new}'] if the state of the old '{new}' may be dropped"
            )
    taken = list(start.renamed.values())
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice is not None:
        raise SnapshotError(f"renamed= maps two operators to '{twice}'")


def _replaced(there: Mapping[str, StateEntry], start: RestoreOptions) -> set[str]:
    """Return the names in the snapshot that now belong to renamed operators."""
    return {new for old, new in start.renamed.items() if old != new and old in there and new in there}


def _refusal(manifest: Manifest, homeless: list[StateEntry], new: list[StateSpec], here: dict[str, StateSpec]) -> str:
    changed = [entry for entry in homeless if entry.name in here]
    if changed:
        entry = changed[0]
        return (
            f"operator '{entry.name}' is now a {here[entry.name].kind.word}, but in snapshot {manifest.snapshot} it is "
            f"a {entry.kind} with {entry.keys} keys; rename the new operator, and pass "
            f"allow_dropped_state=['{entry.name}'] if the old state may be dropped"
        )
    states = ", ".join(f"'{entry.name}' ({entry.kind}, {entry.keys} keys)" for entry in homeless)
    operators = ", ".join(f"'{spec.name}' ({spec.kind.word})" for spec in new) or "none"
    old, other = _rename(homeless[0].name, [spec.name for spec in new], here)
    return (
        f"snapshot {manifest.snapshot} has states without an operator in the program: {states}; operators without a "
        f"state in the snapshot: {operators}; pass renamed={{'{old}': '{other}'}} if an operator was renamed, "
        f"or allow_dropped_state=['{old}'] if its state may be dropped"
    )


def _rename(name: str, new: Sequence[str], here: Collection[str]) -> tuple[str, str]:
    """Return the old and a new name of the operator that a state may have had, whose hidden states go with it."""
    operator, _, role = name.partition("/")
    if not role or operator in here:
        return name, next(iter(new), "its new name")
    if role == LETTERS:
        near = get_close_matches(operator, [it.removesuffix(f"/{role}") for it in here if it.endswith(f"/{role}")], 1)
        return operator, next(iter(near), "its new name")
    heirs = [it.removesuffix(f"/{role}") for it in new if it.endswith(f"/{role}")]
    return operator, next(iter(heirs or new), "its new name")

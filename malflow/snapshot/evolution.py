"""What becomes of the states in a snapshot when the program has changed since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from malflow.errors import SnapshotError
from malflow.snapshot.codecs.contract import Codec, ShapedCodec
from malflow.snapshot.manifest import Manifest, OperatorEntry
from malflow.snapshot.persistence import Start
from malflow.state import StateKind, StateSpec

__all__ = ["check_shapes", "match_operators", "may_be_lost"]


def may_be_lost(entry: OperatorEntry) -> bool:
    """Whether a run may begin without a state in a snapshot, and nobody has to be asked."""
    kind = StateKind.of(entry.kind)
    return kind is not None and kind.may_be_lost


def match_operators(manifest: Manifest, program: Sequence[StateSpec], start: Start) -> dict[str, str]:
    """Give for each operator in the snapshot whose state is to be loaded its name in the program.

    Raises:
        SnapshotError: if a state has no operator to go to and may not be dropped, or its operator has become another
            kind of operator.
    """
    there = {entry.name: entry for entry in manifest.operators}
    here = {spec.name: spec for spec in program}
    _check_renamed(there, here, start)
    matched, homeless = {}, []
    for entry in manifest.operators:
        if entry.name in _replaced(there, start):
            continue
        name = start.renamed.get(entry.name, _present_name(entry))
        if name in here and here[name].kind.word == entry.kind:
            matched[entry.name] = name
        elif entry.keys and not may_be_lost(entry) and entry.name not in start.allow_dropped_state:
            homeless.append(entry)
    if homeless:
        new = [spec for spec in program if spec.name not in set(matched.values()) and not spec.kind.may_be_lost]
        raise SnapshotError(_refusal(manifest, homeless, new, here))
    return matched


def _present_name(entry: OperatorEntry) -> str:
    """Return the present name of a state of an exchange or a union, which older versions named in another way."""
    if StateKind.of(entry.kind) is not StateKind.FRONTIER:
        return entry.name
    if entry.name.startswith("\n"):
        return f"{entry.name[1:]}/union"
    operator = entry.name.removesuffix("-distribute")
    return entry.name if operator == entry.name else f"{operator}/exchange"


def check_shapes(manifest: Manifest, program: Sequence[StateSpec], names: Mapping[str, str], codec: Codec) -> None:
    """Check that every class in the states is what it was, where no migration comes between.

    Args:
        manifest: the snapshot.
        program: what the program keeps.
        names: the operators whose state is to be loaded, with their names in the program.
        codec: reads the states.

    Raises:
        SnapshotError: if a class has changed, or is gone, with both forms and what to write.
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
        return "raise version= and give migrate=(old, version) -> state"
    return (
        f"states of kind '{spec.kind.word}' can't be migrated: keep the class as it was (one that is no tuple may have "
        f"a __setstate__ that takes its old fields); or give '{spec.name}' another name, and say "
        f"allow_dropped_state=['{spec.name}'], so that it begins with nothing"
    )


def _check_renamed(there: dict[str, OperatorEntry], here: dict[str, StateSpec], start: Start) -> None:
    for old, new in start.renamed.items():
        if new not in here:
            near = get_close_matches(new, here, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise SnapshotError(f"renamed= says that '{old}' is '{new}' now; the program keeps no state there{hint}")
        if old in here and old != new:
            raise SnapshotError(f"renamed= says that '{old}' is '{new}' now, but the program still has '{old}'")
        if new in _replaced(there, start) and new not in start.allow_dropped_state:
            raise SnapshotError(
                f"renamed= says that '{old}' is '{new}' now, but the snapshot has states of both; say "
                f"allow_dropped_state=['{new}'] if those of the old '{new}' may be dropped"
            )
    taken = list(start.renamed.values())
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice is not None:
        raise SnapshotError(f"renamed= gives two operators the name '{twice}'")


def _replaced(there: Mapping[str, OperatorEntry], start: Start) -> set[str]:
    """Return the names in a snapshot that operators under other names in it have now."""
    return {new for old, new in start.renamed.items() if old != new and old in there and new in there}


def _refusal(
    manifest: Manifest, homeless: list[OperatorEntry], new: list[StateSpec], here: dict[str, StateSpec]
) -> str:
    changed = [entry for entry in homeless if entry.name in here]
    if changed:
        entry = changed[0]
        return (
            f"operator '{entry.name}' is a {here[entry.name].kind.word} now; in snapshot {manifest.snapshot} it is a "
            f"{entry.kind} with state of {entry.keys} keys, which does not fit; give the new one another name, and say "
            f"allow_dropped_state=['{entry.name}'] if that state may be dropped"
        )
    states = ", ".join(f"'{entry.name}' ({entry.kind}, {entry.keys} keys)" for entry in homeless)
    operators = ", ".join(f"'{spec.name}' ({spec.kind.word})" for spec in new) or "none"
    old, other = homeless[0].name, new[0].name if new else "its new name"
    return (
        f"snapshot {manifest.snapshot} has state that no operator of the program takes: {states}; operators of the "
        f"program that have no state in it: {operators}; say renamed={{'{old}': '{other}'}} for one that was renamed, "
        f"or allow_dropped_state=['{old}'] for one whose state may be dropped"
    )

"""Matching the states of a snapshot to a program that may have changed since.

States are matched by the operator's name, or the new name given in ``renamed``, and by their kind. A state with keys
that has no place in the program is refused unless the user allows dropping it, or its kind may be lost. Then the
definitions of windows and aggregators, and the shapes of classes in states, are compared: a difference is refused
unless the operator's version was increased, or there is a migration. The functions return all refusals, so that a user
sees them at once; `malflow.snapshot.restore` puts them together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from malflow.errors import SnapshotError
from malflow.operators.failures.dead_letters import LETTERS
from malflow.snapshot.codecs.contract import Codec, ShapedCodec
from malflow.snapshot.persistence import RestoreOptions
from malflow.snapshot.protocol.manifest import Manifest, StateEntry
from malflow.states.kinds import StateKind, StateSpec
from malflow.words import did_you_mean, plural, resembling

__all__ = [
    "Fault",
    "Matched",
    "Refusal",
    "changed_definitions",
    "changed_shapes",
    "match_states",
    "may_be_lost",
    "present_name",
]

_WINDOWS = (StateKind.WINDOW, StateKind.ROLLUP, StateKind.SESSION, StateKind.COUNT_WINDOW)


Fault = Literal["renamed", "kind", "homeless", "definition", "shape", "codec"]
"""The kind of a refusal: a wrong new name, a state of another kind, a state without an operator, a changed definition,
a changed class, or another codec."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason why a program can't continue from a snapshot.

    Attributes:
        fault: its kind.
        states: the names in the snapshot of the states with this fault; empty if it concerns all.
        error: the error that a start raises.
        heir: the operator that may be the renamed one of a state without an operator; None without a candidate.
    """

    fault: Fault
    states: tuple[str, ...]
    error: SnapshotError
    heir: str | None = None


@dataclass(frozen=True, slots=True)
class Matched:
    """The states of a snapshot with their places in a program.

    Attributes:
        names: the states to be loaded, mapped to their names in the program.
        refusals: the reasons why the program can't continue.
    """

    names: dict[str, str]
    refusals: tuple[Refusal, ...]


def may_be_lost(entry: StateEntry) -> bool:
    """Whether a state may be dropped without the user's permission."""
    kind = StateKind.of(entry.kind)
    return kind is not None and kind.may_be_lost


# Invariant: a state with keys is loaded, or refused, or dropped with permission, unless its kind may be lost.
#
# Example: a snapshot has the states "total" and "seen"; the program has the operators "sums" and "late".
#   total    is loaded as "sums", if the options say that "total" was renamed to it
#   seen     has no place: it is refused, or dropped if the user allows that
#   late     is not in the snapshot, and starts without state
def match_states(manifest: Manifest, program: Sequence[StateSpec], start: RestoreOptions) -> Matched:
    """Return the states of the snapshot that are to be loaded, mapped to their names in the program.

    A state has no place if its operator is gone or of another kind. A faulty new name is ignored, for other faults to
    be found too; its state is not refused again.
    """
    there = {entry.name: entry for entry in manifest.operators}
    here = {spec.name: spec for spec in program}
    refusals = [*_faulty_names(there, here, start)]
    misnamed = {name for it in refusals for name in it.states}
    if misnamed:
        start = replace(start, renamed={old: new for old, new in start.renamed.items() if old not in misnamed})
    start = _with_hidden(there, here, start)
    matched: dict[str, str] = {}
    homeless, replaced = [], _replaced(there, start)
    for entry in manifest.operators:
        if entry.name in replaced:
            continue
        name = start.renamed.get(entry.name, present_name(entry))
        if name in here and here[name].kind.word == entry.kind:
            matched[entry.name] = name
        elif entry.keys and not may_be_lost(entry) and entry.name not in start.allow_dropped_state:
            homeless.append(entry)
    told = misnamed.difference(here)
    refused = [entry for entry in homeless if entry.name.partition("/")[0] not in told]
    refusals += _refusals(manifest, refused, _unfilled(program, matched.values()), here)
    return Matched(matched, tuple(refusals))


def _unfilled(program: Sequence[StateSpec], matched: Collection[str]) -> list[StateSpec]:
    """Return the states of the program that are not in the snapshot, without dead letters. Most never have them."""
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
    """Return the current name of a state of an exchange or a union. Older versions named it differently."""
    if StateKind.of(entry.kind) is not StateKind.FRONTIER:
        return entry.name
    if entry.name.startswith("\n"):
        return f"{entry.name[1:]}/union"
    operator = entry.name.removesuffix("-distribute")
    return entry.name if operator == entry.name else f"{operator}/exchange"


def changed_definitions(
    manifest: Manifest, program: Sequence[StateSpec], names: Mapping[str, str], dropped: Collection[str] = ()
) -> tuple[list[Refusal], dict[str, str]]:
    """Compare the windows and aggregators of states with those in a snapshot.

    Accumulators in panes of another partition of time can't be carried over: operators with an increased version start
    without open windows.

    Args:
        manifest: the snapshot.
        program: the states of the program.
        names: the states to be loaded, mapped to their names in the program.
        dropped: the operators with states that may be dropped.

    Returns:
        The refusals, and a sentence for each state that is not to be loaded after all, by its name in the snapshot.
    """
    specs = {spec.name: spec for spec in program}
    refusals, lost = [], {}
    for entry in manifest.operators:
        spec = specs.get(names.get(entry.name, ""))
        if spec is None or (entry.definition, entry.panes) == (spec.definition, spec.panes):
            continue
        missing = _missing(entry, spec)
        if spec.version == entry.version and missing == []:
            continue
        may_drop = spec.kind.migrates and entry.name in dropped
        if spec.version == entry.version and not may_drop:
            error = SnapshotError(
                f"operator '{spec.name}' is {spec.definition}, but in snapshot {manifest.snapshot} it is "
                f"{entry.definition}; restore it, or {_cure(entry, spec, missing)}"
            )
            refusals.append(Refusal("definition", (entry.name,), error))
        elif entry.panes != spec.panes or may_drop:
            states = "accumulators of open windows" if spec.kind in _WINDOWS else "states"
            lost[entry.name] = (
                f"operator '{spec.name}' starts without the {entry.keys} {states} in snapshot {manifest.snapshot}: it "
                f"was {entry.definition} and is {spec.definition}"
            )
    return refusals, lost


def _missing(entry: StateEntry, spec: StateSpec) -> list[str] | None:
    """Return the parts that a state of another layout lacks; None if it can't become one of the program."""
    if spec.layout is None or entry.definition is None or entry.panes != spec.panes:
        return None
    arrangement = spec.layout.arrangement(entry.definition)
    return None if arrangement is None else spec.layout.missing(arrangement)


def _cure(entry: StateEntry, spec: StateSpec, missing: Sequence[str] | None) -> str:
    """Return how a program can begin although a definition has changed."""
    if spec.layout is None:
        return f"increase version=: {_after(entry, spec)}"
    if not spec.kind.migrates:
        return "start without state, by restore=None"
    dropped = f"pass allow_dropped_state=['{spec.name}'] to start it without its states"
    return f"{spec.layout.without}, or {dropped}" if missing and spec.layout.without else dropped


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


def changed_shapes(
    manifest: Manifest, program: Sequence[StateSpec], names: Mapping[str, str], codec: Codec
) -> list[Refusal]:
    """Compare the classes in states with those in a snapshot, except where a migration handles the change.

    Args:
        manifest: the snapshot.
        program: the states of the program.
        names: the states to be loaded, mapped to their names in the program.
        codec: the codec of the states.

    Returns:
        The refusals: a class has changed or is missing.
    """
    if not isinstance(codec, ShapedCodec) or manifest.codec != codec.name:
        return []
    specs = {spec.name: spec for spec in program}
    refusals = []
    for entry in manifest.operators:
        spec = specs.get(names.get(entry.name, ""))
        if spec is None or spec.version != entry.version:
            continue
        changes = [codec.change_of(shape, f"snapshot {manifest.snapshot}") for shape in entry.shapes]
        said = [change for change in changes if change is not None]
        if said:
            error = SnapshotError(f"operator '{spec.name}': {'; '.join(said)}; {_way_out(spec)}")
            refusals.append(Refusal("shape", (entry.name,), error))
    return refusals


def _way_out(spec: StateSpec) -> str:
    if spec.kind.migrates:
        return "increase version= and pass migrate=(old, version) -> state"
    return (
        f"states of kind '{spec.kind.word}' can't be migrated: leave the class as it was (unless it is a tuple, it may "
        f"have a __setstate__ that accepts its old fields); or rename '{spec.name}' and pass "
        f"allow_dropped_state=['{spec.name}'] to start it with empty state"
    )


def _faulty_names(there: dict[str, StateEntry], here: dict[str, StateSpec], start: RestoreOptions) -> Iterator[Refusal]:
    sound = []
    for old, new in start.renamed.items():
        fault = _fault_of_name(old, new, there, here, start)
        if fault is None:
            sound.append((old, new))
        else:
            yield Refusal("renamed", (old,), SnapshotError(f"renamed= maps '{old}' to '{new}', but {fault}"))
    by_new: dict[str, list[str]] = {}
    for old, new in sound:
        by_new.setdefault(new, []).append(old)
    for new, names in by_new.items():
        if len(names) > 1:
            yield Refusal("renamed", tuple(names), SnapshotError(f"renamed= maps two operators to '{new}'"))


def _fault_of_name(
    old: str, new: str, there: dict[str, StateEntry], here: dict[str, StateSpec], start: RestoreOptions
) -> str | None:
    if new not in here and not any(name.startswith(f"{new}/") for name in here):
        return f"the program has no state of that name{did_you_mean(new, here, else_='')}"
    if old in here and old != new:
        return f"the program still has '{old}'"
    if new in _replaced(there, start) and new not in start.allow_dropped_state:
        return (
            "the snapshot has states of both; pass "
            f"allow_dropped_state=['{new}'] if the state of the old '{new}' may be dropped"
        )
    return None


def _replaced(there: Mapping[str, StateEntry], start: RestoreOptions) -> set[str]:
    """Return the names in the snapshot that now belong to renamed operators."""
    return {new for old, new in start.renamed.items() if old != new and old in there and new in there}


def _refusals(
    manifest: Manifest, homeless: list[StateEntry], new: list[StateSpec], here: dict[str, StateSpec]
) -> Iterator[Refusal]:
    """Yield a refusal for each state of another kind, and one for all states without an operator.

    The refusal of an operator of another kind covers its hidden states.
    """
    changed = {entry.name for entry in homeless if entry.name in here}
    for entry in homeless:
        if entry.name in here:
            text = (
                f"operator '{entry.name}' is now a {here[entry.name].kind.word}, but in snapshot {manifest.snapshot} "
                f"it is a {entry.kind} with {plural(entry.keys, 'key')}; rename the new operator, and pass "
                f"allow_dropped_state=['{entry.name}'] if the old state may be dropped"
            )
            yield Refusal("kind", (entry.name,), SnapshotError(text))
    homeless = [entry for entry in homeless if changed.isdisjoint((entry.name, entry.name.partition("/")[0]))]
    if not homeless:
        return
    states = ", ".join(f"'{entry.name}' ({entry.kind}, {plural(entry.keys, 'key')})" for entry in homeless)
    operators = ", ".join(f"'{spec.name}' ({spec.kind.word})" for spec in new) or "none"
    old, heir = _rename(homeless[0], new, here)
    is_foreign = here.keys().isdisjoint(entry.name for entry in manifest.operators)
    instead = ", or choose another job= if the state is another program's" if is_foreign else ""
    text = (
        f"snapshot {manifest.snapshot} has states without an operator in the program: {states}; operators without a "
        f"state in the snapshot: {operators}; pass renamed={{'{old}': '{heir or 'its new name'}'}} if an operator was "
        f"renamed, or allow_dropped_state=['{old}'] if its state may be dropped{instead}"
    )
    yield Refusal("homeless", tuple(entry.name for entry in homeless), SnapshotError(text), heir)


def _rename(entry: StateEntry, specs: Sequence[StateSpec], here: Collection[str]) -> tuple[str, str | None]:
    """Return the old and a new name of the operator that a state may have had. Its hidden states go with it.

    An operator of another kind can't have had the state.
    """
    operator, _, role = entry.name.partition("/")
    new = [spec.name for spec in specs if spec.kind.word == entry.kind]
    if not role or operator in here:
        return entry.name, next(iter(new), None)
    if role.endswith(LETTERS):
        near = resembling(operator, [it.removesuffix(f"/{role}") for it in here if it.endswith(f"/{role}")])
        return operator, next(iter(near), None)
    heirs = [it.removesuffix(f"/{role}") for it in new if it.endswith(f"/{role}")]
    return operator, next(iter(heirs or new), None)

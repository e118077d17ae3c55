"""The rows of a plan: a line for each thing that a start would do with a state, a source or a sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Final, Literal

from malflow.diagnostics import describe
from malflow.engine.plan import Program
from malflow.graph import forms_of
from malflow.nodes import SourceNode, StatefulNode
from malflow.operators.failures.dead_letters import LETTERS
from malflow.runtime.start_plan import PlannedRefusal, StartPlan
from malflow.snapshot.protocol.manifest import StateEntry
from malflow.snapshot.restore import ReviewedState
from malflow.states.kinds import Arrangement, StateKind, StateSpec
from malflow.words import listed, plural, resembling, short_repr

__all__ = ["Row", "as_json", "rows_of"]

Change = Literal["keep", "migrate", "rename", "new", "dropped", "changed", "moved", "source", "sink"]

MARKS: Final[Mapping[Change, str]] = {
    "keep": "=",
    "migrate": "^",
    "rename": ">",
    "new": "+",
    "dropped": "-",
    "changed": "!",
    "moved": "~",
    "source": ".",
    "sink": ".",
}

_MOST_PARTS = 3
"""The most parts to name, to fit a row on a line; the others are counted."""

_TIME = (StateKind.EPOCHS, StateKind.FRONTIER)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a plan.

    Attributes:
        change: what happens.
        name: the name of the state in the program, or in the snapshot if the program has no such state.
        before: its name in the snapshot; None if the name is the same, or the state is new.
        type: the kind of state, with its version or definition.
        keys: the number of its keys in the snapshot, or of those that move; None if its keys are not counted.
        note: more about it.
        refusals: the numbers of the refusals about it, from 1.
        cures: the shortest ways out of them.
        is_estimate: whether the number of keys is an estimate.
    """

    change: Change
    name: str
    before: str | None
    type: str
    keys: int | None
    note: str = ""
    refusals: tuple[int, ...] = ()
    cures: tuple[str, ...] = ()
    is_estimate: bool = False

    @property
    def mark(self) -> str:
        """The character that stands for the change."""
        return MARKS[self.change]

    @property
    def shown_name(self) -> str:
        """The name as people read it; dead letters are called after their operator."""
        after = _readable(self.name)
        return after if self.before is None else f"{_readable(self.before)} -> {after}"

    @property
    def shown_keys(self) -> str:
        """The number of keys as a text."""
        return "" if self.keys is None else f"{'~' if self.is_estimate else ''}{plural(self.keys, 'key')}"


def rows_of(plan: StartPlan, program: Program) -> list[Row]:
    """Return the rows of a plan: states in the order of the program, dropped ones, moves, sources and sinks."""
    rows = _Rows(plan, program)
    states = [row for it in plan.states for row in rows.of_state(it)]
    return [
        *(row for row in states if row.change not in ("source", "sink")),
        *rows.of_moves(),
        *(row for row in states if row.change == "source"),
        *(row for row in states if row.change == "sink"),
    ]


def _forms_by_name(program: Program) -> dict[str, str]:
    """Return how each operator gets columns, and each source gives them: ``[columns]``, ``[rows]``, or both."""
    found: dict[str, list[str]] = {}
    for (index, number), form in forms_of(program.vertices).items():
        reader = program.vertices[index]
        source = program.vertices[reader.inputs[number].vertex].node
        for node in (reader.node, source) if isinstance(source, SourceNode) else (reader.node,):
            forms = found.setdefault(node.name, [])
            if f"[{form}]" not in forms:
                forms.append(f"[{form}]")
    return {name: " ".join(forms) for name, forms in found.items()}


class _Rows:
    """Makes rows of a plan."""

    def __init__(self, plan: StartPlan, program: Program) -> None:
        self._plan = plan
        self._nodes = {it.node.name: it.node for it in program.vertices}
        self._sinks = {node.name: node for node in program.sinks}
        self._forms = _forms_by_name(program)
        self._heirs = _heirs(plan.states)
        self._own = {it.entry.name for it in plan.states if it.entry is not None}
        self._unseen = {it.operator: it for it in plan.unseen}

    def of_state(self, state: ReviewedState) -> Iterator[Row]:
        """Yield the row of a state, unless it is hidden."""
        entry, spec = state.entry, state.spec
        refusals = self._refusals(state)
        is_hidden = "/" in state.name and not _is_of_letters(state)
        if (is_hidden and state.name.partition("/")[0] in self._own) or not (refusals or _is_shown(state)):
            return
        kind = StateKind.of((spec.kind.word if spec is not None else entry.kind) if entry else spec.kind.word)  # type: ignore[union-attr] # one of them is there
        change = self._change(state, kind)
        cures = tuple(dict.fromkeys(cure for _, it in refusals for cure in self._cures(it, state)))
        yield Row(
            change,
            state.name,
            entry.name if entry is not None and spec is not None and entry.name != spec.name else None,
            _type(entry, spec, change),
            None if entry is None or kind in (*_TIME, StateKind.SINK) or change == "source" else entry.keys,
            "  ".join(text for text in (self._note(state, change), self._forms.get(state.name, "")) if text),
            tuple(number for number, _ in refusals),
            cures,
        )

    def of_moves(self) -> Iterator[Row]:
        """Yield the rows of the states with keys that change workers."""
        manifest, after = self._plan.manifest, self._plan.workers
        if manifest is None:
            return
        for name, it in self._plan.moves.items():
            where = f"parallelism {manifest.parallelism} -> {after}"
            if manifest.parallelism == after:
                where = f"parallelism {after}, another partitioner"
            if it.keys == 0 and it.is_exact:
                continue
            note = "some keys change worker; --deep counts them" if it.keys is None else "change worker"
            yield Row("moved", name, None, where, it.keys, note, is_estimate=not it.is_exact and it.keys is not None)

    def _refusals(self, state: ReviewedState) -> list[tuple[int, PlannedRefusal]]:
        """Return the refusals about a state with their numbers; an operator also has those of its hidden states."""
        return [(at, it) for at, it in enumerate(self._plan.refusals, 1) if _is_about(it, state)]

    def _change(self, state: ReviewedState, kind: StateKind | None) -> Change:
        entry, spec = state.entry, state.spec
        if spec is None:
            return "changed" if entry is not None and any(it.fault == "kind" for it in state.refusals) else "dropped"
        if kind is StateKind.SOURCE and (entry is None or entry.name == spec.name):
            return "source"
        if kind is StateKind.SINK and (entry is None or entry.name == spec.name):
            return "sink"
        if entry is None:
            return "new"
        if state.fate == "lost" or any(it.fault in ("definition", "shape") for it in state.refusals):
            return "changed"
        if entry.name != spec.name:
            return "rename"
        return "keep" if entry.version == spec.version else "migrate"

    def _note(self, state: ReviewedState, change: Change) -> str:
        entry, spec = state.entry, state.spec
        if change == "source":
            return self._source_note(state)
        if change == "sink":
            return self._sink_note(state)
        if spec is None or entry is None:
            return "" if self._refusals(state) else self._end_note(state)
        notes = ["by renamed="] if change == "rename" else []
        if state.fate == "lost":
            notes.append("starts empty: " + ("open windows are dropped" if spec.panes else "its states are dropped"))
        elif entry.version < spec.version:
            notes.append(self._migration_note(entry, spec))
        elif change != "changed" and (arrangement := _arrangement(entry, spec)):
            notes += [f"without {listed(arrangement.dropped, _MOST_PARTS, write=str)}"] if arrangement.dropped else []
            notes += [f"{listed(arrangement.added, _MOST_PARTS, write=str)} from now on"] if arrangement.added else []
        return ", ".join(notes)

    def _end_note(self, state: ReviewedState) -> str:
        if state.spec is None:
            return "by allow_dropped_state=" if state.entry is not None and state.entry.keys else "it has no keys"
        it = self._unseen.get(state.name)
        return "starts empty" if it is None else f"starts without the {plural(it.rows, 'row')} of table '{it.table}'"

    def _migration_note(self, entry: StateEntry, spec: StateSpec) -> str:
        node = self._nodes.get(spec.name)
        if not isinstance(node, StatefulNode) or node.migrate is None:
            return ""
        note = f"migrate={describe(node.migrate)}"
        count = self._plan.migrated.get(spec.name)
        if count is None:
            return note
        dropped = f", {entry.keys - count:,} dropped by it" if count < entry.keys else ""
        return f"{note}: {entry.keys:,} of {entry.keys:,} pass{dropped}"

    def _source_note(self, state: ReviewedState) -> str:
        parts, entry = self._plan.parts.get(state.name), state.entry
        if state.name in self._plan.begins_anew:
            return "has no positions: it is read from its beginning again"
        if entry is None:
            count = "" if parts is None else f"{plural(parts.listed, 'part')}, "
            return f"{count}read from its beginning"
        if parts is None:
            return f"{plural(entry.keys, 'part')} in the snapshot, read from there"
        facts = [plural(parts.listed, "part")]
        if parts.new:
            facts.append(f"{len(parts.new):,} new")
        if parts.gone:
            facts.append(f"{len(parts.gone):,} gone ({listed(parts.gone, _MOST_PARTS, write=short_repr)})")
        if parts.listed and len(parts.new) == parts.listed:
            facts.append("so all of it is read from its beginning")
        return ", ".join(facts)

    def _sink_note(self, state: ReviewedState) -> str:
        if state.entry is None:
            return "begins with this start"
        node = self._sinks.get(state.name)
        if node is None or not node.is_transactional:
            return "returns to its position in the snapshot: what was written after it is dropped"
        pending = self._plan.pending.get(state.name)
        if not pending:
            return "exactly once"
        return f"{plural(pending, 'transaction')} prepared and not known to be committed: the start commits them"

    def _cures(self, refusal: PlannedRefusal, state: ReviewedState) -> Iterator[str]:
        found, entry = refusal.found, state.entry
        if found is None or entry is None:
            return
        name = entry.name.partition("/")[0]
        if found.fault == "homeless":
            yield f"--drop {quote(name)}"
            same = self._heirs.get(entry.name)
            heir = found.heir if same is None else same.partition("/")[0]
            if heir is not None:
                yield f"--rename {quote(f'{name}={heir}')}{'' if same is None else ' (same kind)'}"
        elif found.fault == "kind":
            yield f"give the new operator another name, and --drop {quote(name)}"
        elif found.fault == "definition":
            spec = state.spec
            if spec is None or spec.layout is None:
                yield "increase version="
            elif spec.kind.migrates:
                yield f"--drop {quote(name)}"
        elif found.fault == "shape":
            migrates = state.spec is not None and state.spec.kind.migrates
            yield "increase version= and pass migrate=" if migrates else "leave the class as it was"


def _heirs(states: Sequence[ReviewedState]) -> dict[str, str]:
    """Return, for each state without a place, the new operator of the same kind with the most similar name."""
    new = {it.spec.name: it.spec.kind.word for it in states if it.spec is not None and it.entry is None}
    heirs: dict[str, str] = {}
    for it in sorted(states, key=lambda it: "/" in it.name):  # a hidden state goes with that of its operator
        owner, _, role = it.name.partition("/")
        if role and owner in heirs:
            heirs[it.name] = f"{heirs[owner]}/{role}"
        elif it.spec is None and it.entry is not None:
            same = [name for name, word in new.items() if word == it.entry.kind and name not in heirs.values()]
            near = resembling(it.name, same) or same
            heirs |= {it.name: near[0]} if near else {}
    return heirs


def _is_about(refusal: PlannedRefusal, state: ReviewedState) -> bool:
    if refusal.found is None:  # by names in the program
        return state.spec is not None and state.spec.name in refusal.states
    if state.entry is None:
        return False
    name = state.entry.name
    hidden = (it for it in refusal.states if it.startswith(f"{name}/") and not it.endswith(f"/{LETTERS}"))
    return name in refusal.states or any(hidden)


def _is_shown(state: ReviewedState) -> bool:
    """Whether a state without refusals is shown; of the hidden ones, only dead letters and dropped keys are."""
    kinds = _kinds(state)
    if StateKind.FRONTIER.word in kinds:
        return False
    if "/" not in state.name:
        return True
    has_keys = state.entry is not None and state.entry.keys > 0
    return has_keys and (state.fate == "dropped" or _is_of_letters(state))


def _is_of_letters(state: ReviewedState) -> bool:
    return StateKind.LETTERS.word in _kinds(state)


def _kinds(state: ReviewedState) -> set[str]:
    spec = set() if state.spec is None else {state.spec.kind.word}
    return spec if state.entry is None else {*spec, state.entry.kind}


def _arrangement(entry: StateEntry, spec: StateSpec) -> Arrangement | None:
    """Return how a state of another layout becomes one of the program; None if it is the same."""
    if spec.layout is None or entry.definition is None or entry.definition == spec.definition:
        return None
    return spec.layout.arrangement(entry.definition)


def _type(entry: StateEntry | None, spec: StateSpec | None, change: Change) -> str:
    if change in ("source", "sink"):
        return ""
    if entry is None or spec is None:
        return entry.kind if entry is not None else spec.kind.word if spec is not None else ""
    if change == "changed" and entry.definition != spec.definition:
        return f"{entry.definition} -> {spec.definition}"
    if not spec.kind.migrates:
        return spec.kind.word
    versions = f"v{entry.version}" + ("" if entry.version == spec.version else f" -> v{spec.version}")
    return f"{spec.kind.word} {versions}"


def _readable(name: str) -> str:
    operator, _, role = name.partition("/")
    return f"dead letters of {operator}" if role.endswith(LETTERS) else name


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows as JSON values."""
    return [
        {
            "change": it.change,
            "operator": it.name.partition("/")[0],
            "state": it.name,
            "before": it.before,
            "type": it.type,
            "keys": it.keys,
            "estimate": it.is_estimate,
            "note": it.note,
            "refusals": list(it.refusals),
            "cures": list(it.cures),
        }
        for it in rows
    ]

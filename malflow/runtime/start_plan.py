"""The outcome of a start, predicted by the start's own functions without acting on anything.

No claim is made, nothing is written, no sink is restored, opened or fenced, and no part of a source is read.
`StartPlan.unknown` lists the facts that only a start can find out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from malflow.engine.parts.dealing import deal
from malflow.engine.parts.places import Parts as DealtParts
from malflow.engine.parts.places import waiting_parts, with_given
from malflow.engine.parts.pool import PartPool
from malflow.engine.plan import Program, check_not_input
from malflow.engine.sink_transactions import SinkTransactions, check_owners
from malflow.engine.sinks import position_in
from malflow.engine.state_specs import states_of
from malflow.engine.states.loading import Loaded, Unseen, loaded, obstacles, unseen_rows
from malflow.engine.states.rescale import key_routes, refusing
from malflow.errors import MalflowError, SnapshotError
from malflow.operators.hosting.parts import list_parts
from malflow.partitioners import SLOTS, rendezvous_select, slot_owners
from malflow.runtime.options import RunOptions
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.evolution import Refusal
from malflow.snapshot.persistence import RestoredState
from malflow.snapshot.preview import Preview, SnapshotIsGone, preview
from malflow.snapshot.protocol.manifest import Manifest
from malflow.snapshot.restore import ReviewedState
from malflow.words import short_repr

__all__ = ["Moves", "Parts", "PlannedRefusal", "StartPlan", "planned"]

_ATTEMPTS = 5
"""Tries while a run deletes snapshots. Fewer: more plans fail; more: a plan that can't succeed takes longer."""


@dataclass(frozen=True, slots=True)
class PlannedRefusal:
    """A reason why a start would fail.

    Attributes:
        states: the names of the states, sources or sinks that it concerns, in the snapshot or in the program.
        error: the error that the start would raise.
        found: the refusal of the review, if it comes from one.
    """

    states: tuple[str, ...]
    error: MalflowError
    found: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Moves:
    """The keys of a state that change their worker.

    Attributes:
        keys: their number; None if it depends on the user's own partitioner.
        is_exact: whether they were counted; otherwise they are estimated from the slots that move.
    """

    keys: int | None
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a source, as it lists them now and as they are in the snapshot.

    Attributes:
        listed: the number of parts that it lists.
        new: the parts that are not in the snapshot, under their present names.
        gone: the parts that it no longer lists.
    """

    listed: int
    new: tuple[Any, ...]
    gone: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class StartPlan:
    """The effect of a start.

    Attributes:
        manifest: the snapshot from which it would resume; None for an empty state.
        latest: the id of the job's latest snapshot; None without one.
        states: the states of the program and of the snapshot.
        refusals: the reasons why it would fail, in the order in which it would raise them.
        workers: the number of workers; None if only the started runtime knows it.
        moves: the states whose keys change their worker, by name in the program.
        migrated: the number of states after their migration, by name; only of those that were tried.
        parts: the parts of sources, by name; only if they were listed.
        pending: the number of transactions of each exactly-once sink that the start would commit; only if read.
        unseen: operators that will not see rows of a table.
        begins_anew: sources without positions, which start over.
        dealt: the parts of each source that each worker would begin with; only if they were listed, and the number of
            workers is known.
        waiting: the parts of each source that workers would get later, when they have read others.
        unknown: the facts that can't be known before the start, as sentences.
    """

    manifest: Manifest | None = None
    latest: int | None = None
    states: tuple[ReviewedState, ...] = ()
    refusals: tuple[PlannedRefusal, ...] = ()
    workers: int | None = None
    moves: Mapping[str, Moves] = field(default_factory=dict)
    migrated: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, Parts] = field(default_factory=dict)
    pending: Mapping[str, int] = field(default_factory=dict)
    unseen: tuple[Unseen, ...] = ()
    begins_anew: tuple[str, ...] = ()
    dealt: DealtParts | None = None
    waiting: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def planned(program: Program, options: RunOptions, *, deep: bool = False) -> StartPlan:
    """Return the effect of a start of a program.

    Args:
        program: the program.
        options: the options of the run.
        deep: whether to read the states, migrate them and list the parts of sources: this calls the user's
            functions. They may access other systems. Otherwise, only manifests are read.

    Raises:
        SnapshotError: if the store can't be read, or a run deletes each snapshot before its states are read.
    """
    for _ in range(_ATTEMPTS):
        with suppress(SnapshotIsGone):
            return _planned(program, options, deep=deep)
    raise SnapshotError("a run deletes snapshots faster than a plan can read one; plan without reading the states")


def _planned(program: Program, options: RunOptions, *, deep: bool) -> StartPlan:
    program = replace(program, part_assignment=options.part_assignment)
    backend, found = options.persistence, Preview()
    if isinstance(backend, FsspecBackend):
        found = preview(backend, states_of(program), options.restore_options)
    planning = _Planning(program, options, found)
    if deep:
        planning.list_parts()
        planning.deal()
    is_known = isinstance(backend, FsspecBackend) or not backend.is_enabled
    if is_known:
        planning.review()
    if found.manifest is not None:
        planning.judge(found.manifest)
        if deep:
            planning.load(found)
    return planning.plan(is_known=is_known, deep=deep)


class _Planning:
    """Collects the findings of a start, in its order."""

    def __init__(self, program: Program, options: RunOptions, found: Preview) -> None:
        self._program = program
        self._options = options
        self._found = found
        self._workers = options.first_workers
        self._refusals: list[PlannedRefusal] = []
        self._plan = StartPlan(found.manifest, found.latest, workers=self._workers)
        self._listed: dict[str, list[Any]] = {}

    def _refuse(self, name: str, error: MalflowError) -> None:
        self._refusals.append(PlannedRefusal((name,), error))

    def list_parts(self) -> None:
        """List the parts of the sources, as the workers do when they are made."""
        for name, node in self._program.sources.items():
            with refusing(self._refuse, name):
                self._listed[name] = list_parts(name, node.source)
        with refusing(self._refuse, ""):
            check_not_input(self._program, self._listed)

    def deal(self) -> None:
        """Deal the parts as a start without a snapshot does."""
        if self._workers is not None and len(self._listed) == len(self._program.sources):
            self._note_dealt(deal(self._program, self._listed, self._workers))

    def _note_dealt(self, dealt: DealtParts) -> None:
        """Note the parts that each worker would begin with, and those that wait for a worker."""
        with refusing(self._refuse, ""):
            dealt = with_given(dealt, PartPool(self._program, self._listed, dealt).take())
        self._plan = replace(self._plan, dealt=dealt, waiting=waiting_parts(self._listed, dealt))

    def review(self) -> None:
        """Note the states, and the refusals that follow from the manifest alone."""
        found = self._found
        if found.error is not None:
            self._refuse("", found.error)
        if found.review is not None:
            self._refusals += [PlannedRefusal(it.states, it.error, it) for it in found.review.refusals]
        if found.review is not None and found.manifest is not None:
            self._plan = replace(self._plan, states=found.review.states)
        elif found.error is None:
            specs = states_of(self._program)
            self._plan = replace(self._plan, states=tuple(ReviewedState(None, spec, "new") for spec in specs))

    def judge(self, manifest: Manifest) -> None:
        """Compare the program with the manifest: note obstacles, estimated moves, and rows that no operator sees."""
        found = self._found
        if found.review is None:
            return
        entries = {found.review.names[it.name]: it for it in manifest.operators if it.name in found.review.names}
        versions = {name: it.version for name, it in entries.items()}
        keys = {name: it.keys for name, it in entries.items()}
        placements = {name: it.placement for name, it in entries.items()}
        before = manifest.parallelism
        for name, error in obstacles(self._program, versions, keys, placements, before, self._workers):
            self._refuse(name, error)
        self._plan = replace(
            self._plan,
            moves={} if self._workers is None else dict(self._moves(before, self._workers, keys, placements)),
            unseen=tuple(unseen_rows(self._program, versions, keys)),
            begins_anew=tuple(self._program.without_positions) if manifest.tick else (),
        )

    def _moves(
        self, before: int, after: int, keys: Mapping[str, int], placements: Mapping[str, str | None]
    ) -> Iterator[tuple[str, Moves]]:
        refused = {name for it in self._refusals for name in it.states}
        movable = {name for name in keys if name not in refused}
        current = {spec.name: spec.placement for spec in states_of(self._program)}
        for name, route in key_routes(self._program, movable, before, after, placements).items():
            if route is None or not keys[name]:
                continue
            by_slots = route.partitioner is rendezvous_select and placements[name] == current[name]
            moving = round(keys[name] * _moving_share(before, after)) if by_slots else None
            yield name, Moves(moving, is_exact=False)

    def load(self, found: Preview) -> None:
        """Read the states, and distribute them over the future workers."""
        if found.load is None or (
            found.review is not None and any(it.fault == "codec" for it in found.review.refusals)
        ):
            return
        try:
            restored = found.load()
        except SnapshotError as error:
            self._refuse("", error)
            return
        self._note_sinks(restored)
        ours = {node.name for node in self._program.sinks if node.is_resumable or node.is_transactional}
        states = {name: it for name, it in restored.states.items() if name not in ours}
        known = {name: _parts_in(restored, name) for name in self._program.sources}
        listed = {name: self._listed.get(name, parts) for name, parts in known.items()}
        told = {str(it.error) for it in self._refusals}  # the obstacles are known

        def refuse(name: str, error: MalflowError) -> None:
            if str(error) not in told:
                self._refuse(name, error)

        workers = self._workers or restored.parallelism
        result = loaded(self._program, listed, replace(restored, states=states), workers, refuse)
        self._note_loaded(result, listed, known)

    def _note_loaded(self, result: Loaded, listed: Mapping[str, list[Any]], known: Mapping[str, list[Any]]) -> None:
        moves = dict(self._plan.moves)
        for name in moves:
            if name in result.routed:
                moves[name] = Moves(result.moved_keys(name), is_exact=True)
        parts = {}
        for name in self._listed:
            present = {part for by_part in result.present.get(name, {}).values() for part in by_part} or {*known[name]}
            present_now = {*listed[name]}
            new = tuple(part for part in listed[name] if part not in present)
            gone = tuple(part for part in present if part not in present_now)
            parts[name] = Parts(len(listed[name]), new, gone)
        if self._workers is not None:
            self._note_dealt(result.parts)
        migrated = {name: sum(map(len, result.present[name].values())) for name in result.migrated}
        self._plan = replace(self._plan, moves=moves, parts=parts, migrated=migrated)

    def _note_sinks(self, restored: RestoredState) -> None:
        """Note the transactions that the start would commit, and whether two sinks share one ledger."""
        sinks = []
        for node in self._program.sinks:
            position = position_in(restored.states, node.name) if node.is_transactional else None
            if position is not None:
                sink = SinkTransactions(node.name, node.sink.impl)
                sink.load(position)
                sinks.append(sink)
        self._plan = replace(self._plan, pending={it.name: it.uncommitted for it in sinks})
        with refusing(self._refuse, ""):
            check_owners(sinks)

    def plan(self, *, is_known: bool, deep: bool) -> StartPlan:
        """Return the plan."""
        unknown = tuple(self._unknown(is_known=is_known, deep=deep))
        return replace(self._plan, refusals=tuple(self._refusals), unknown=unknown)

    def _unknown(self, *, is_known: bool, deep: bool) -> Iterator[str]:
        plan, persistence = self._plan, self._options.persistence
        if not is_known:
            yield f"the state in {short_repr(persistence)}, which only a start opens: a plan needs an FsspecBackend"
            return
        if plan.manifest is None:
            return
        if self._workers is None:
            yield (
                "the number of workers, and so the keys that move: Spark decides when it starts; --parallelism sets it"
            )
        migrations = [it.name for it in plan.states if _is_older(it) and it.fate == "kept" and not it.refusals]
        if migrations and not deep:
            yield f"the outcome of the migration of {_quoted_names(migrations)}; --deep tries it"
        sources = [it.name for it in plan.states if it.name in self._program.sources and it.entry is not None]
        sources = [name for name in sources if name not in plan.begins_anew]
        if sources and not deep:
            yield f"the present parts of {_quoted_names(sources)}; --deep lists them"
        resumable = [node.name for node in self._program.sinks if node.is_resumable]
        if resumable:
            yield f"the present outputs of {_quoted_names(resumable)}, which only a start opens"
        fenced = [node.name for node in self._program.sinks if node.is_transactional]
        if fenced:
            accepts = self._options.sinks == "accept_duplicates"
            consequence = "its records are written again" if accepts else "the start is refused"
            yield (
                f"the last commit of {_quoted_names(fenced)}: if it is after snapshot {plan.manifest.snapshot}, "
                f"{consequence}"
            )


def _moving_share(before: int, after: int) -> float:
    """Return the part of the slots that change their worker."""
    old, new = slot_owners(before), slot_owners(after)
    return sum(map(int.__ne__, old, new)) / SLOTS


def _is_older(state: ReviewedState) -> bool:
    return state.entry is not None and state.spec is not None and state.entry.version < state.spec.version


def _parts_in(restored: RestoredState, source: str) -> list[Any]:
    return [part for by_part in restored.states.get(source, {}).values() for part in by_part]


def _quoted_names(names: list[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)

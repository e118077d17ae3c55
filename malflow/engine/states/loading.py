"""The initial states of a run's workers, from a snapshot: renamed parts, added consumers.

Nothing is opened, written or claimed here, so a plan can call the same functions as a start. The only user code called
is migrations, partitioners, and readers of parts that no longer exist.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from malflow.diagnostics import operator_error
from malflow.engine.parts.dealing import redeal
from malflow.engine.parts.discovery import check_finished, discovering
from malflow.engine.parts.places import Parts, Redeal, held_positions
from malflow.engine.plan import Program
from malflow.engine.state_specs import DEALT, OldStates, States, specs_of, state_id, stored_once
from malflow.engine.states.migration import faulty_versions, migrated, migrations
from malflow.engine.states.rescale import Refuse, local_states, raised, refusing, reroute
from malflow.errors import SnapshotError
from malflow.nodes import StatefulNode, Vertex
from malflow.operators.epochs.generator import ANSWERED
from malflow.operators.epochs.part_epochs import PART
from malflow.partitioners import rendezvous_select
from malflow.snapshot.persistence import RestoredState
from malflow.sources.contract import StatefulSource
from malflow.states.kinds import StateKind
from malflow.words import plural

if TYPE_CHECKING:
    from malflow.engine.workers import Workers

__all__ = [
    "Loaded",
    "Unseen",
    "check_manifest_facts",
    "loaded",
    "obstacles",
    "redealt",
    "unseen_rows",
    "with_present_names",
]

_log = logging.getLogger("malflow.runtime")


def with_present_names(program: Program, listed: Mapping[str, Iterable[Any]], states: OldStates) -> OldStates:
    """Rename the positions and epochs of renamed parts.

    A source with renamed parts has a method ``present_part(part)``.

    Args:
        program: the program.
        listed: the parts of each source.
        states: the states in the snapshot.
    """
    names: dict[Any, Any] = {}
    present = dict(states)
    for source, node in program.sources.items():
        if not isinstance(node.source, StatefulSource):
            continue
        positions = {part: at for by_part in states.get(source, {}).values() for part, at in by_part.items()}
        known = list(positions)
        here = _names(node.source.impl, known)
        here = _with_renamed(source, node.source.impl, positions, listed[source], here)
        if here:
            present[source] = _renamed(states[source], here)
            names.update(here)
    if names:
        by_part = {(what, old): (what, new) for old, new in names.items() for what in (PART, ANSWERED)}
        for vertex in program.vertices:
            if vertex.node.issues_epochs and vertex.node.name in states:
                present[vertex.node.name] = _renamed(states[vertex.node.name], by_part)
    return present


def _names(impl: Any, known: list[Any]) -> dict[Any, Any]:
    """Return the new names by the old ones; a part with its current name takes precedence."""
    if not hasattr(impl, "present_part"):
        return {}
    taken, names = set(known), {}
    for part in known:
        name = impl.present_part(part)
        if name not in taken:
            taken.add(name)
            names[part] = name
    return names


def _with_renamed(
    source: str, impl: Any, positions: Mapping[Any, Any], listed: Iterable[Any], names: Mapping[Any, Any]
) -> dict[Any, Any]:
    """Return the new names of parts, with those that the source finds by the positions.

    Args:
        source: the name of the source.
        impl: its implementation.
        positions: the positions by the old names.
        listed: the current parts.
        names: the new names that are known without the positions, by the old ones.

    Raises:
        OperatorError: if the source fails.
    """
    if not hasattr(impl, "renamed_parts") or not positions:
        return dict(names)
    present = {names.get(old, old): at for old, at in positions.items()}
    try:
        renamed = impl.renamed_parts(present, list(listed))
    except Exception as error:
        raise operator_error(source, error, None, impl) from error
    whole = {old: renamed.get(names.get(old, old), names.get(old, old)) for old in positions}
    return {old: new for old, new in whole.items() if new != old}


def _renamed(by_worker: Mapping[int, Mapping[Any, Any]], names: Mapping[Any, Any]) -> dict[int, dict[Any, Any]]:
    """Return a state with new names of its keys. A key that loses its name to another, and gets no new one, is dropped.

    Args:
        by_worker: the state by worker.
        names: the new key by the old one.
    """
    taken = set(names.values())
    return {
        worker: {names.get(key, key): it for key, it in by_key.items() if key in names or key not in taken}
        for worker, by_key in by_worker.items()
    }


def _tell_if_all_are_new(program: Program, source: str, listed: set[Any], known: set[Any]) -> None:
    """Log a warning if a source that was read before has only new parts."""
    if not isinstance(program.sources[source].source, StatefulSource):
        return
    if listed and known and listed.isdisjoint(known):
        _log.warning(
            "source '%s' has %s, all of them new, and none of the %d that were read before: they are read from "
            "their beginning; if they are the same under other names, such as after a mount was moved, restore the old "
            "names",
            source,
            plural(len(listed), "part"),
            len(known),
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """The states of a snapshot, as distributed to the workers of a run.

    Attributes:
        before: the number of workers in the snapshot.
        old: the states in the snapshot, by name and worker.
        present: the same states, migrated and with the current names of parts; refused states are omitted.
        migrated: the old version or layout of each state that was migrated.
        routed: the states of each new worker, by name.
        parts: the parts of each source that each new worker holds.
        discovered: the new parts of each source that has parts in the snapshot.
        once: the states that every worker loads, and only worker 0 stores.
    """

    before: int
    old: OldStates
    present: OldStates
    migrated: Mapping[str, object]
    routed: Mapping[str, Sequence[States]]
    parts: Parts
    discovered: Mapping[str, set[Any]]
    once: frozenset[str] = frozenset()

    def changed(self, worker: int, workers: int) -> set[str]:
        """Return the names of a worker's states that differ from the snapshot, given the number of workers."""
        if self.before != workers:
            return set(self.routed)
        ours = {name: new for name, new in self.routed.items() if worker == 0 or name not in self.once}
        moved = {name for name, new in ours.items() if _has_moved(self.old[name].get(worker, {}), new[worker])}
        return moved.union(self.migrated)

    def moved_keys(self, name: str) -> int:
        """Return how many keys of a state move to another worker."""
        old = self.present[name]
        return sum(len(new.keys() - old.get(at, {}).keys()) for at, new in enumerate(self.routed[name]))


def obstacles(
    program: Program,
    versions: Mapping[str, int],
    keys: Mapping[str, int],
    placements: Mapping[str, str | None],
    before: int,
    after: int | None,
) -> Iterator[tuple[str, SnapshotError]]:
    """Yield each state that a manifest shows can't be loaded, with the error that a start would raise.

    Args:
        program: the program.
        versions: the version of each state in the snapshot, by its name in the program.
        keys: the number of keys of each state.
        placements: the name of the partitioner of each state's keys.
        before: the number of workers in the snapshot.
        after: the number of new workers; None if it is unknown.
    """
    yield from faulty_versions(program, versions, keys)
    if after is not None:
        yield from local_states(program, keys, before, after, placements)


def check_manifest_facts(program: Program, restored: RestoredState, parallelism: int) -> None:
    """Raise the first of the `obstacles` to loading a snapshot on this number of workers.

    Raises:
        SnapshotError: naming an operator with state that can't be loaded.
    """
    found = obstacles(program, restored.versions, restored.keys, restored.placements, restored.parallelism, parallelism)
    for _, error in found:
        raise error


def load_into(workers: Workers, program: Program, restored: RestoredState) -> None:
    """Load the state of a run with any number of workers, before they are opened.

    Args:
        workers: the workers.
        program: their program.
        restored: the content of a snapshot, without positions that belong to no worker.

    Raises:
        SnapshotError: as `loaded`.
        OperatorError: as `loaded`.
    """
    workers.load(loaded(program, workers.listed, restored, workers.parallelism))


# Idea: a chain of functions over data, so a plan shows the same result that a start would load.
#   obstacles             states that the manifest alone shows can't be loaded are refused
#   with_present_names    entries of parts get the names that the source lists now
#   migrated              states of an older version are converted, worker by worker
#   discovering           parts that are new since the snapshot are found
#   redealt               parts are dealt to the workers, most of them where they were
#   reroute               entries move to the workers that own them now
#
# Invariant: nothing outside is changed. A state refused as an obstacle, or by its migration, takes no further step.
def loaded(
    program: Program,
    listed: Mapping[str, Sequence[Any]],
    restored: RestoredState,
    parallelism: int,
    refuse: Refuse = raised,
) -> Loaded:
    """Return the states of a snapshot, distributed to a number of workers.

    Args:
        program: the program.
        listed: the parts of each source.
        restored: the content of the snapshot; states that the program does not have are left out.
        parallelism: the number of workers.
        refuse: is called for each state that can't be loaded; by default, the first error is raised.

    Raises:
        SnapshotError: if a state can't be moved to its key's worker, or migrated to its current version.
        OperatorError: if a migration or a partitioner fails, or an unfinished part of a source with discovery is gone.
    """
    before, placements = restored.parallelism, restored.placements
    versions = {name: restored.versions.get(name, 1) for name in restored.states}
    blocked = set()
    for name, error in obstacles(program, versions, restored.keys, placements, before, parallelism):
        refuse(name, error)
        blocked.add(name)
    old = {name: by_worker for name, by_worker in restored.states.items() if name not in blocked}
    present = {name: dict(them) for name, them in with_present_names(program, listed, old).items()}
    for name in program.sources:
        _tell_if_all_are_new(
            program, name, set(listed[name]), {part for it in present.get(name, {}).values() for part in it}
        )
    converted = {}
    for name, (node, before_) in migrations(program, {it: versions[it] for it in old}, restored.definitions).items():
        states = present.pop(name)
        with refusing(refuse, name):
            present[name] = {worker: migrated(node, before_, them) for worker, them in states.items()}
            converted[name] = before_
    discovered = _discovered(program, listed, present, refuse)
    redeal = redealt(program, listed, present, placements, before, parallelism)
    routed = reroute(program, present, before, parallelism, placements=placements, redeal=redeal, refuse=refuse)
    return Loaded(before, old, present, converted, routed, redeal.parts, discovered, stored_once(program))


def redealt(
    program: Program,
    listed: Mapping[str, Sequence[Any]],
    states: OldStates,
    placements: Mapping[str, str | None],
    before: int,
    after: int,
) -> Redeal:
    """Deal the parts to the workers of a run that continues from a snapshot.

    A part was on the worker that has its position. At the same number of workers it stays there, unless a version of
    malflow that did not deal parts had placed it.

    Args:
        program: the program.
        listed: the parts of each source.
        states: the states in the snapshot, with the current names of parts.
        placements: the name of the partitioner of each state's keys.
        before: the number of workers in the snapshot.
        after: the number of new workers.
    """
    held = held_positions(program, states)
    was_dealt = DEALT in placements.values()
    if was_dealt:
        return redeal(program, listed, after, held, levels=before != after)
    hashed = {name: {part: rendezvous_select(part, range(before)) for part in some} for name, some in listed.items()}
    states_at = {name: them | held[name] for name, them in hashed.items()}
    return redeal(program, listed, after, held, states=states_at)


def _discovered(
    program: Program, listed: Mapping[str, Sequence[Any]], states: OldStates, refuse: Refuse
) -> dict[str, set[Any]]:
    """Return the parts that have appeared since a snapshot; refuse unfinished ones that have disappeared."""
    found: dict[str, set[Any]] = {}
    with_discovery = discovering(program)
    for name in program.sources:
        by_worker = states.get(name, {})
        known = {part for by_part in by_worker.values() for part in by_part}
        if known:
            found[name] = set(listed[name]) - known
        if name in with_discovery:
            with refusing(refuse, name):
                check_finished(program, name, known.difference(listed[name]), by_worker)
    return found


def _has_moved(old: States, new: States) -> bool:
    """Whether a worker's initial states differ from those in the snapshot."""
    if new is old:
        return False
    if len(new) != len(old):
        return True
    pairs = zip(old.items(), new.items(), strict=True)  # in order: renamed parts may exchange equal states
    return any(key != other or state is not it for (key, state), (other, it) in pairs)


_PASSING = (StateKind.FRONTIER, StateKind.EPOCHS)
"""The kinds of states of operators that pass records on as they are."""


class Unseen(NamedTuple):
    """The rows of a table that an operator will not see.

    Attributes:
        operator: the operator, which has no state in the snapshot that a run resumes from.
        table: the operator that keeps the table.
        rows: the number of rows that the table has in the snapshot.
    """

    operator: str
    table: str
    rows: int


def unseen_rows(program: Program, known: Container[str], keys: Mapping[str, int]) -> list[Unseen]:
    """Return the operators without a state that read a table with rows, directly or by operators without a state.

    Args:
        program: the program.
        known: the states in the snapshot.
        keys: the number of keys of each of them.
    """
    return [
        Unseen(consumer, vertex.node.name, keys[vertex.node.name])
        for index, vertex in enumerate(program.vertices)
        if _keeps_table(vertex) and keys.get(vertex.node.name)
        for consumer in dict.fromkeys(_new_readers(program.vertices, index, known))
    ]


def _keeps_table(vertex: Vertex) -> bool:
    """Whether others read the rows of a vertex; a join keeps rows for itself."""
    node = vertex.node
    return isinstance(node, StatefulNode) and node.kind is StateKind.TABLE and node.times is None


def _new_readers(vertices: Sequence[Vertex], table: int, known: Container[str]) -> Iterator[str]:
    """Yield the first operators with a state of their own, on each way from a table, that have none in the snapshot."""
    reached = {table}
    for index, vertex in enumerate(vertices):
        if not any(port.vertex in reached for port in vertex.inputs):
            continue
        own = [spec for spec in specs_of(vertex.node) if spec.name == state_id(vertex.node)]
        if not own or own[0].kind in _PASSING:
            reached.add(index)
        elif own[0].name not in known:
            yield vertex.node.name

"""Computes the initial states of a run's workers from a snapshot.

Nothing is opened, written or claimed here, so a plan can call the same functions as a start. The only user code called
is migrations, partitioners, and readers of parts that no longer exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from malflow.engine.discovery import check_finished, discovering
from malflow.engine.migration import faulty_versions, migrated, migrations
from malflow.engine.part_names import with_present_names
from malflow.engine.plan import Program
from malflow.engine.refusals import Refuse, raised, refusing
from malflow.engine.rescale import local_states, reroute
from malflow.engine.state_specs import OldStates, States, stored_once
from malflow.errors import SnapshotError
from malflow.snapshot.persistence import RestoredState

__all__ = ["Loaded", "check_manifest_facts", "loaded", "obstacles"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The states of a snapshot, as distributed to the workers of a run.

    Attributes:
        before: the number of workers in the snapshot.
        old: the states in the snapshot, by name and worker.
        present: the same states, migrated and with the current names of parts; refused states are omitted.
        migrated: the old version of each state that was migrated.
        routed: the states of each new worker, by name.
        discovered: the new parts of each source that has parts in the snapshot.
        once: the states that every worker loads, and only worker 0 stores.
    """

    before: int
    old: OldStates
    present: OldStates
    migrated: Mapping[str, int]
    routed: Mapping[str, Sequence[States]]
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


# Idea: a chain of functions over data, so a plan shows the same result that a start would load.
#   obstacles             states that the manifest alone shows can't be loaded are refused
#   with_present_names    entries of parts get the names that the source lists now
#   migrated              states of an older version are converted, worker by worker
#   discovering           parts that are new since the snapshot are found
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
    present = {name: dict(them) for name, them in with_present_names(program, listed, old, before).items()}
    converted = {}
    for name, (node, version) in migrations(program, {name: versions[name] for name in old}).items():
        states = present.pop(name)
        with refusing(refuse, name):
            present[name] = {worker: migrated(node, version, them) for worker, them in states.items()}
            converted[name] = version
    discovered = _discovered(program, listed, present, refuse)
    routed = reroute(program, present, before, parallelism, placements=placements, refuse=refuse)
    return Loaded(before, old, present, converted, routed, discovered, stored_once(program))


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

"""Redistribution of states when the number of workers or their partitioner changes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias, assert_never

from malflow.diagnostics import operator_error
from malflow.engine.parts.places import Redeal
from malflow.engine.plan import Program
from malflow.engine.state_specs import OldStates, States, placement_of, specs_of
from malflow.engine.states.epochs import exchange_frontiers, input_frontiers, least_of_all, past_epochs, with_least
from malflow.errors import MalflowError, OperatorError, SnapshotError
from malflow.nodes import EpochsNode, Node, SourceNode, Vertex
from malflow.operators.failures.dead_letters import place_letter
from malflow.partitioners import (
    FORMER_PLACEMENTS,
    PLACEMENT,
    Partitioner,
    index_select,
    part_select,
    rendezvous_select,
)
from malflow.states.kinds import Movement, StateSpec
from malflow.words import short_repr

__all__ = [
    "KeyRoute",
    "Refuse",
    "check_placed",
    "key_of_entry",
    "key_routes",
    "keyed_by_parts",
    "local_states",
    "raised",
    "refusing",
    "reroute",
    "united",
]

_OURS: Sequence[Partitioner] = (rendezvous_select, index_select, part_select)
_SECOND = itemgetter(1)
"""The functions that return the key of a slot, and the part of an entry of epochs."""


def _key_of_entry(slot: tuple[int, tuple[Any, Any]]) -> Any:
    return slot[1][0]


_KEYS_OF_ENTRIES: Mapping[Movement, Callable[[Any], Any]] = {
    Movement.BY_SLOT: _SECOND,
    Movement.BY_ENTRY: _key_of_entry,
}


def key_of_entry(spec: StateSpec) -> Callable[[Any], Any] | None:
    """Return a function that returns the key of an entry of a state; None if the entry's name is the key."""
    return _KEYS_OF_ENTRIES.get(spec.kind.movement)


Refuse: TypeAlias = Callable[[str, MalflowError], object]
"""A function to call with the name of a state that can't be loaded and the error."""


def raised(_name: str, error: MalflowError) -> None:
    """Raise the error, as a start does.

    Raises:
        MalflowError: always.
    """
    raise error


@contextmanager
def refusing(refuse: Refuse, name: str) -> Iterator[None]:
    """Pass an error in the context to `refuse` instead of raising it."""
    try:
        yield
    except MalflowError as error:
        refuse(name, error)


def check_placed(program: Program) -> None:
    """Check that the program determines the worker of every key with state.

    Raises:
        SnapshotError: naming an operator with keys set by ``key_local``.
    """
    for vertex in program.vertices:
        for spec in specs_of(vertex.node):
            if spec.kind.is_by_key and spec.placement is None:
                raise _local(spec.name)


def _local(name: str) -> SnapshotError:
    return SnapshotError(
        f"operator '{name}' keeps the state of a key on the worker where the key appears, by .key_local(), so the "
        "state can't be assigned to a new worker; keep the number of workers and the keys, or key the stream with "
        ".key_distribute()"
    )


@dataclass(frozen=True, slots=True)
class KeyRoute:
    """The way of a state's keys to new workers.

    Attributes:
        name: the name of the state.
        workers: the number of new workers.
        partitioner: returns the worker of a key.
        key_of: returns the key of an entry's name; None if the name is the key.
    """

    name: str
    workers: int
    partitioner: Partitioner
    key_of: Callable[[Any], Any] | None = None

    def deal(self, states: States, new: Sequence[dict[Any, Any]]) -> None:
        """Add the states of an old worker to the states of the new workers.

        Raises:
            SnapshotError: if a new worker has a state for one of the keys.
            OperatorError: if the partitioner fails, or does not return a worker.
        """
        key_of, select, workers = self.key_of, self.partitioner, range(self.workers)
        for name, state in states.items():
            key = name if key_of is None else key_of(name)
            try:
                worker = select(key, workers)
            except Exception as error:
                raise self._failed(key, error) from error
            if worker not in workers:
                reason = f"the partitioner returned {short_repr(worker)}; it must return one of {list(workers)}"
                raise self._failed(key, reason)
            held = new[worker]
            if name in held:
                raise _twice(self.name, name)
            held[name] = state

    def _failed(self, key: Any, reason: Exception | str) -> OperatorError:
        return operator_error(self.name, reason, None, self.partitioner, about=f"key {short_repr(key)}")


def united(name: str, parts: Iterable[States]) -> dict[Any, Any]:
    """Return the state of a new worker, from its parts of old ones in their order.

    Raises:
        SnapshotError: if two parts have a state for one key.
    """
    held: dict[Any, Any] = {}
    for part in parts:
        if not held.keys().isdisjoint(part):
            raise _twice(name, next(key for key in part if key in held))
        held.update(part)
    return held


def _twice(name: str, key: Any) -> SnapshotError:
    return SnapshotError(
        f"operator '{name}' has two states for key {short_repr(key)}, on two workers, which can't be merged: they were "
        "kept under .key_local(), or by a version of malflow in which keys of pandas or numpy differed from equal keys "
        "of Python; keep the operator and the version of malflow, or rename the operator to start it without state"
    )


def key_routes(
    program: Program,
    names: Container[str],
    before: int,
    after: int,
    placements: Mapping[str, str | None] | None = None,
    redeal: Redeal | None = None,
) -> dict[str, KeyRoute | None]:
    """Return the route of each state with keys; None where every key stays with its worker.

    Args:
        program: the program that continues.
        names: the states that the old workers have.
        before: the number of old workers.
        after: the number of new workers.
        placements: the partitioner of each state's keys on the old workers; by default that of `program`.
        redeal: the workers of parts; None if parts stay, or if their workers are unknown yet.

    Raises:
        SnapshotError: naming an operator with keys that have no owner.
    """
    routes: dict[str, KeyRoute | None] = {}
    for vertex in program.vertices:
        for spec in specs_of(vertex.node):
            if spec.kind.is_by_key and spec.name in names:
                was = spec.placement if placements is None else placements.get(spec.name)
                routes[spec.name] = _key_route(vertex, spec, before, after, was, redeal)
    return routes


def keyed_by_parts(program: Program, names: Container[str]) -> bool:
    """Whether any of these states has keys that are parts of sources. Their way depends on the deal of the parts."""
    return any(
        spec.kind.is_by_key and spec.name in names and placement_of(vertex.node) is part_select
        for vertex in program.vertices
        for spec in specs_of(vertex.node)
    )


def local_states(
    program: Program, names: Container[str], before: int, after: int, placements: Mapping[str, str | None]
) -> Iterator[tuple[str, SnapshotError]]:
    """Yield each state whose keys have no owner among the new workers, with its error; see above for the arguments."""
    for vertex in program.vertices:
        for spec in specs_of(vertex.node):
            is_local = spec.kind.is_by_key and placement_of(vertex.node) is None and spec.name in names
            if is_local and not _stays(vertex, spec, before, after, placements.get(spec.name), None):
                yield spec.name, _local(spec.name)


def _stays(vertex: Vertex, spec: StateSpec, before: int, after: int, was: str | None, redeal: Redeal | None) -> bool:
    """Whether every key stays with its worker."""
    if before == after == 1:
        return True
    placement = placement_of(vertex.node)
    if placement is part_select and redeal is not None:
        return False  # parts are few, so it costs nothing to look
    return before == after and was == spec.placement and (placement is None or placement in _OURS)


def _key_route(
    vertex: Vertex, spec: StateSpec, before: int, after: int, was: str | None, redeal: Redeal | None
) -> KeyRoute | None:
    if _stays(vertex, spec, before, after, was, redeal):
        return None
    placement = _placed(placement_of(vertex.node), vertex.node, redeal)
    if placement is None:
        raise _local(spec.name)
    return KeyRoute(spec.name, after, placement, key_of_entry(spec))


def _placed(placement: Partitioner | None, node: Node, redeal: Redeal | None) -> Partitioner | None:
    """Return the partitioner by which keys of an operator find their new worker."""
    return placement if redeal is None else redeal.after.bound(placement, node.name)


def _of_source(name: str | None, redeal: Redeal | None) -> Partitioner:
    """Return the partitioner of the parts of a source."""
    return part_select if redeal is None or name is None else redeal.after.of(name)


# Idea: how a state moves follows from its `Movement`. Each new worker gets the entries that it owns.
#   BY_KEY, BY_SLOT, BY_ENTRY    to the worker that the partitioner selects for the key
#   BY_PART                      to the worker to which the source's part was dealt, or a sink's part is hashed
#   BY_LETTER                    to the worker where the dead letter belongs
#   EVERYWHERE                   the first worker's copy, to all
#   EPOCHS, FRONTIER             the least of the old workers, to all, if their number has changed
#
# Invariant: an entry with a key or part has one owner, before and after. Where a partitioner places the keys, records
# that were late remain late.
#
# Example: worker 0 had reached epoch 8 and worker 1 epoch 5, and there are three workers now. All begin at 5. A key
# of worker 0 takes its 8 along as a floor, so a record of it at 7 is still late.
def reroute(
    program: Program,
    states: OldStates,
    before: int,
    after: int,
    *,
    placements: Mapping[str, str | None] | None = None,
    redeal: Redeal | None = None,
    refuse: Refuse = raised,
) -> dict[str, list[States]]:
    """Redistribute states from `before` workers to `after` workers; return the states of each new worker by name.

    Keys move to the worker that their partitioner selects, parts to the worker of the source's or sink's part. All new
    workers begin at the least epoch of the old ones, except for those that received no records; so the epochs of a
    whole stream never go back, though the epochs of one worker may. If an old worker had a later epoch, this moves with
    the worker's keys. Records that were late there thus remain late.

    Args:
        program: the program that continues; states that it does not have are dropped.
        states: the states of the old workers.
        before: the number of old workers.
        after: the number of new workers.
        placements: the partitioner of each state's keys on the old workers, as in `states_of`; by default that of
            `program`.
        redeal: the workers of parts; None if all parts stay.
        refuse: is called for each state that can't be redistributed; by default, the first error is raised.

    Raises:
        SnapshotError: if a key has no owner, or two workers have a state for one key.
        OperatorError: if a partitioner fails, or does not return a worker.
    """
    moved: dict[str, list[States]] = {}
    stays = before == after and not (redeal is not None and redeal.moves(before))
    for vertex in program.vertices:
        for spec in specs_of(vertex.node):
            if spec.name in states and spec.name not in moved:
                old = [states[spec.name].get(worker, {}) for worker in range(before)]
                was = spec.placement if placements is None else placements.get(spec.name)
                with refusing(refuse, spec.name):
                    moved[spec.name] = _Move(vertex, spec, old, after, was, redeal, stays).moved()
    return moved


@dataclass(frozen=True, slots=True)
class _Move:
    """The move of one state to new workers.

    Attributes:
        vertex: the operator.
        spec: the state.
        old: the state of each old worker.
        after: the number of new workers.
        was: the name of the former partitioner of its keys.
        redeal: the workers of parts; None if all parts stay.
        stays: whether the number of workers and the worker of each part are the same.
    """

    vertex: Vertex
    spec: StateSpec
    old: list[States]
    after: int
    was: str | None
    redeal: Redeal | None
    stays: bool

    def moved(self) -> list[States]:
        """Return the state, by new worker."""
        old, after = self.old, self.after
        match self.spec.kind.movement:
            case Movement.BY_KEY | Movement.BY_SLOT | Movement.BY_ENTRY:
                route = _key_route(self.vertex, self.spec, len(old), after, self.was, self.redeal)
                return old if route is None else _dealt(route, old)
            case Movement.EVERYWHERE:
                return [old[0]] * after
            case Movement.BY_PART:
                return self._by_part()
            case Movement.BY_LETTER:
                if self.stays and self.was == self.spec.placement:
                    return old
                by = partial(place_letter, _placed(self.vertex.node.placed_by, self.vertex.node, self.redeal))
                return _dealt(KeyRoute(self.spec.name, after, by), old)
            case Movement.EPOCHS:
                return self._epochs()
            case Movement.FRONTIER if self.stays:
                return old
            case Movement.FRONTIER:
                if self.vertex.node.starts_stage:
                    return exchange_frontiers(old, after)
                return input_frontiers(old, after, len(self.vertex.inputs))
            case _:
                assert_never(self.spec.kind.movement)

    def _by_part(self) -> list[States]:
        """Return the positions in a source, dealt with its parts, or of a sink, hashed by part."""
        if isinstance(self.vertex.node, SourceNode):
            stays, by = self.stays, _of_source(self.spec.name, self.redeal)
        else:
            stays, by = len(self.old) == self.after and self.was not in FORMER_PLACEMENTS, rendezvous_select
        return self.old if stays else _dealt(KeyRoute(self.spec.name, self.after, by), self.old)

    def _epochs(self) -> list[States]:
        """Set all workers to the least epoch; if nothing moves, only those that never had a part.

        If the former worker of a key is unknown, because another partitioner had placed it, the greatest epoch of any
        worker counts for each key: this may make records late, but no late record becomes on time.
        """
        old, was, placement = self.old, self.was, placement_of(self.vertex.node)
        redeal = self.redeal if placement is part_select else None
        dealt = None if redeal is None else redeal.before_of_keys(self.vertex.node.name)
        former = was in FORMER_PLACEMENTS and (self.spec.placement == PLACEMENT or dealt is not None)
        known = former or dealt is not None or (redeal is None and was in (None, self.spec.placement))
        if self.stays and known and not former:
            return with_least(old)
        earlier = FORMER_PLACEMENTS[-1] if former else PLACEMENT if dealt is not None else None
        past = None if placement is None else past_epochs(old, dealt, earlier, is_known=known)
        whole = least_of_all(old, past)
        by_part = [{key: epoch for key, epoch in states.items() if isinstance(key, tuple)} for states in old]
        node = self.vertex.node
        by = _of_source(node.source if isinstance(node, EpochsNode) else None, self.redeal)
        return [{**whole, **parts} for parts in _dealt(KeyRoute(self.spec.name, self.after, by, _SECOND), by_part)]


def _dealt(route: KeyRoute, old: Iterable[States]) -> list[States]:
    """Distribute the states of old workers over the new ones."""
    new: list[dict[Any, Any]] = [{} for _ in range(route.workers)]
    for states in old:
        route.deal(states, new)
    return list(new)

"""The worker of each part of a source, as data, and the partitioner that follows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from malflow.engine.plan import PartGroups, Program
from malflow.errors import RunFailed
from malflow.nodes import ExchangeNode, SourceNode
from malflow.partitioners import Partitioner, part_select, rendezvous_select

__all__ = [
    "Held",
    "PartMove",
    "PartPlaces",
    "Parts",
    "Place",
    "Redeal",
    "everywhere",
    "held_parts",
    "held_positions",
    "near",
    "only",
    "places_of",
    "waiting_parts",
    "with_given",
]

Parts = Mapping[str, Sequence[Sequence[Any]]]
"""The parts of each source that each worker holds."""

Place = tuple[str, int]
"""A source, and a worker that holds parts of it."""

Held = Mapping[str, Mapping[Any, int]]
"""The worker of each part of each source."""


def held_parts(parts: Parts) -> dict[str, dict[Any, int]]:
    """Return the worker of each part of each source."""
    return {
        name: {part: worker for worker, them in enumerate(by_worker) for part in them}
        for name, by_worker in parts.items()
    }


def held_positions(
    program: Program, states: Mapping[str, Mapping[int, Mapping[Any, Any]]]
) -> dict[str, dict[Any, int]]:
    """Return the worker of each part that has a position, from the states by name and worker."""
    return {
        name: {part: worker for worker, by_part in states.get(name, {}).items() for part in by_part}
        for name in program.sources
    }


def waiting_parts(listed: Mapping[str, Sequence[Any]], parts: Parts) -> dict[str, list[Any]]:
    """Return the parts of each source that no worker holds yet; only of sources that have any."""
    waiting: dict[str, list[Any]] = {}
    for name, some in listed.items():
        if len(some) > sum(map(len, parts.get(name, ()))):
            held = {part for them in parts.get(name, ()) for part in them}
            waiting[name] = [part for part in some if part not in held]
    return {name: some for name, some in waiting.items() if some}


def with_given(parts: Parts, given: Parts) -> Parts:
    """Return the parts that each worker holds, with more of them."""
    if not given:
        return parts
    more = {
        name: [[*held, *new] if new else held for held, new in zip(parts[name], by_worker, strict=True)]
        for name, by_worker in given.items()
    }
    return {**parts, **more}


def everywhere(parts: Parts, names: Collection[str]) -> Parts:
    """Return the parts, with a part of some sources on every worker: any worker may yet read them."""
    if not names:
        return parts
    return {name: [(name,)] * len(by_worker) if name in names else by_worker for name, by_worker in parts.items()}


class PartPlaces:
    """The partitioners of the streams that are keyed by parts: they look a part up where the parts were dealt.

    A key that is not a part has the worker that `rendezvous_select` selects.

    Args:
        workers: the number of workers.
        groups: the sources with streams that are keyed by parts, and the operators of these streams.
        parts: the parts of each source that each worker holds.
        others: the workers of parts that are no longer listed.
    """

    def __init__(self, workers: int, groups: PartGroups, parts: Parts, others: Held = MappingProxyType({})) -> None:
        self._workers = workers
        self._groups = groups
        self._parts = parts
        self._others = {name: {part: at for part, at in held.items() if at < workers} for name, held in others.items()}
        self._of_source: dict[str, dict[Any, int]] = {}
        self._of_group: dict[str, dict[Any, int]] = {}
        self._given: dict[str, dict[Any, int]] = {}

    def add(self, given: Parts) -> None:
        """Add parts that workers have got since."""
        for name, by_worker in given.items():
            new = {part: worker for worker, them in enumerate(by_worker) for part in them}
            self._given.setdefault(name, {}).update(new)
            if name in self._of_source:
                self._of_source[name].update(new)
            group = self._groups.sources.get(name)
            if group in self._of_group:
                self._of_group[group].update(new)

    def set(self, parts: Parts) -> None:
        """Set the parts that each worker holds."""
        self._parts, self._of_source, self._of_group, self._given = parts, {}, {}, {}

    def _select_key(self, group: str, key: Any, workers: Sequence[int]) -> int:
        if len(workers) != self._workers:
            return rendezvous_select(key, workers)
        held = self._of_group.get(group)
        if held is None:
            names = sorted(name for name, it in self._groups.sources.items() if it == group)
            held = self._of_group[group] = {part: at for name in names for part, at in self._held_of(name).items()}
        worker = held.get(key)
        return rendezvous_select(key, workers) if worker is None else worker

    def of(self, name: str) -> Partitioner:
        """Return the partitioner of the parts of a source."""
        return partial(self._select, name)

    def _select(self, name: str, part: Any, workers: Sequence[int]) -> int:
        worker = self._held_of(name).get(part)
        return rendezvous_select(part, workers) if worker is None else worker

    def _held_of(self, name: str) -> Mapping[Any, int]:
        if name not in self._of_source:
            by_worker = enumerate(self._parts.get(name, ()))
            listed = {part: worker for worker, them in by_worker for part in them}
            self._of_source[name] = {**self._others.get(name, {}), **listed, **self._given.get(name, {})}
        return self._of_source[name]

    def bound(self, partitioner: Partitioner | None, operator: str) -> Partitioner | None:
        """Return the partitioner itself; instead of `part_select` that of the parts in the streams of an operator."""
        group = self._groups.operators.get(operator)
        if partitioner is not part_select or group is None:
            return partitioner
        return partial(self._select_key, group)


@dataclass(frozen=True, slots=True)
class Redeal:
    """The workers of parts before and after a change of the workers, or of the parts that each of them holds.

    Attributes:
        parts: the parts of each source that each new worker holds.
        before: the old worker of each part.
        after: returns the new worker of a part.
        groups: the sources with streams that are keyed by parts.
    """

    parts: Parts
    before: Held
    after: PartPlaces
    groups: PartGroups

    def moves(self, workers: int) -> bool:
        """Whether any part moves; `workers` is the number of workers, before and after."""
        held = ((self.after.of(name), part, at) for name, them in self.before.items() for part, at in them.items())
        return any(select(part, range(workers)) != worker for select, part, worker in held)

    def before_of_keys(self, operator: str) -> dict[Any, int] | None:
        """Return the old workers of keys that are parts, in the streams of an operator.

        None if equal parts were on several workers: the streams of their sources did not meet before.
        """
        of, group = self.groups.sources, self.groups.operators.get(operator)
        found: dict[Any, int] = {}
        for name in (name for name in of if of[name] == group):
            for part, worker in self.before.get(name, {}).items():
                if found.setdefault(part, worker) != worker:
                    return None
        return found


@dataclass(frozen=True, slots=True)
class PartMove:
    """A move of parts from a worker to another.

    Attributes:
        parts: the parts, by source.
        before: the worker that has them.
        after: the worker that gets them.
    """

    parts: Mapping[str, Sequence[Any]]
    before: int
    after: int

    def applied(self, parts: Parts, listed: Mapping[str, Sequence[Any]]) -> Parts:
        """Return the parts that each worker holds after the move, in the order listed.

        Raises:
            RunFailed: if the old worker does not have the parts.
        """
        moved: dict[str, Sequence[Sequence[Any]]] = dict(parts)
        for name, some in self.parts.items():
            held = {part: worker for worker, them in enumerate(parts[name]) for part in them}
            if any(held.get(part) != self.before for part in some):
                raise RunFailed(f"a part of source '{name}' can't move: worker {self.before} does not have {some!r}")
            held |= dict.fromkeys(some, self.after)
            by_worker: list[list[Any]] = [[] for _ in parts[name]]
            for part in listed[name]:
                if part in held:
                    by_worker[held[part]].append(part)
            moved[name] = by_worker
        return moved


def places_of(parts: Parts) -> frozenset[Place]:
    """Return the sources and workers that have parts."""
    return frozenset(
        (name, worker) for name, by_worker in parts.items() for worker, them in enumerate(by_worker) if them
    )


def only(parts: Parts, some: Mapping[str, Collection[Any]]) -> Parts:
    """Return the parts of each worker that are among some parts."""
    return {
        name: [[part for part in them if part in some[name]] for them in by_worker]
        for name, by_worker in parts.items()
        if name in some
    }


def near(program: Program, sources: Collection[str]) -> list[bool]:
    """Return, for each vertex, whether records of these sources reach it on the worker that reads them."""
    found: list[bool] = []
    for vertex in program.vertices:
        node = vertex.node
        is_source = isinstance(node, SourceNode) and node.name in sources
        through = not isinstance(node, ExchangeNode) and any(found[port.vertex] for port in vertex.inputs)
        found.append(is_source or through)
    return found

"""The parts of sources in a run: found, assigned to workers, and confirmed once a snapshot is durable."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from heapq import heapify, heapreplace
from types import MappingProxyType
from typing import Any

from malflow.checks import checked_duration
from malflow.engine.plan import Program
from malflow.errors import GraphError, OperatorError
from malflow.nodes import Vertex
from malflow.operators.hosting.parts import check_gone, list_parts
from malflow.operators.hosting.source import Source
from malflow.partitioners import Partitioner, part_select, rendezvous_select

__all__ = [
    "Change",
    "Confirmations",
    "Discovery",
    "Held",
    "PartPlaces",
    "Parts",
    "Place",
    "Redeal",
    "check_finished",
    "deal",
    "discovering",
    "held_parts",
    "held_positions",
    "only",
    "places_of",
    "with_listed",
    "with_new",
    "with_waiting",
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


class PartPlaces:
    """The partitioner of the streams that are keyed by parts: it looks a part up where the parts were dealt.

    A key that is not a part has the worker that `rendezvous_select` selects.

    Args:
        workers: the number of workers.
        keyed: the sources with streams that are keyed by parts.
        parts: the parts of each source that each worker holds.
        others: the workers of parts that are no longer listed.
    """

    def __init__(self, workers: int, keyed: Collection[str], parts: Parts, others: Held = MappingProxyType({})) -> None:
        self._workers = workers
        self._keyed = frozenset(keyed)
        self._parts = parts
        self._others = {name: {part: at for part, at in held.items() if at < workers} for name, held in others.items()}
        self._of_source: dict[str, dict[Any, int]] = {}
        self._of_keys: dict[Any, int] | None = None

    def set(self, parts: Parts) -> None:
        """Set the parts that each worker holds."""
        self._parts, self._of_source, self._of_keys = parts, {}, None

    def __call__(self, key: Any, workers: Sequence[int]) -> int:
        """Return the worker of a key: see `Partitioner`."""
        if len(workers) != self._workers:
            return rendezvous_select(key, workers)
        if self._of_keys is None:
            self._of_keys = {part: at for name in sorted(self._keyed) for part, at in self._held_of(name).items()}
        worker = self._of_keys.get(key)
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
            self._of_source[name] = {**self._others.get(name, {}), **listed}
        return self._of_source[name]

    def bound(self, partitioner: Partitioner | None) -> Partitioner | None:
        """Return the partitioner itself, or this one instead of `part_select`."""
        return self if partitioner is part_select else partitioner


@dataclass(frozen=True, slots=True)
class Redeal:
    """The workers of parts before and after a change of the workers, or of the parts that each of them holds.

    Attributes:
        parts: the parts of each source that each new worker holds.
        before: the old worker of each part.
        after: returns the new worker of a part.
        keyed: the sources with streams that are keyed by parts.
    """

    parts: Parts
    before: Held
    after: PartPlaces
    keyed: frozenset[str]

    def moves(self, workers: int) -> bool:
        """Whether any part moves; `workers` is the number of workers, before and after."""
        held = ((self.after.of(name), part, at) for name, them in self.before.items() for part, at in them.items())
        return any(select(part, range(workers)) != worker for select, part, worker in held)

    @property
    def before_of_keys(self) -> dict[Any, int]:
        """The old workers of keys that are parts."""
        return {part: worker for name in sorted(self.keyed) for part, worker in self.before.get(name, {}).items()}


# Idea: water filling. A part that has a worker stays there, up to the level that balance allows; the others go, one by
# one, to the worker that has the least. Source by source, and with the count of the source as the second criterion, so
# that each source is spread too.
#   parts that are hashed    on the worker of their hash, whatever it has: their keys meet other streams there
#   equal parts of sources   on one worker if streams are keyed by them, since these may meet; they count as often
#   parts that have ended    count nothing, and stay
#
# Invariant: without hashed parts and equal ones, no worker has two live parts more than another after a deal with
# `levels`, and no deal with the same result moves fewer.
#
# Example: worker 0 has a, b, c and d, and worker 1 is new. The level is 2, so c and d move.
def deal(
    program: Program,
    listed: Mapping[str, Sequence[Any]],
    workers: int,
    held: Held = MappingProxyType({}),
    *,
    ended: Mapping[str, Collection[Any]] = MappingProxyType({}),
    levels: bool = True,
) -> Parts:
    """Deal the parts of all sources to workers.

    Args:
        program: the program.
        listed: the parts of each source.
        workers: the number of workers.
        held: the workers that have parts now; numbers from `workers` on have left.
        ended: the finished parts of each source.
        levels: whether parts may move for balance from workers that stay.

    Returns:
        The parts of each source that each worker holds, in the order listed.
    """
    keyed, hashed = program.keyed_sources, program.hashed_sources
    units = {name: {part: (None if name in keyed else name, part) for part in parts} for name, parts in listed.items()}
    live = {
        name: [unit for part, unit in them.items() if part not in ended.get(name, ())] for name, them in units.items()
    }
    weights = Counter(unit for them in live.values() for unit in them)
    fixed = {
        unit: rendezvous_select(unit[1], range(workers)) for name in hashed for unit in units.get(name, {}).values()
    }
    places = {
        units[name][part]: worker
        for name in reversed([*listed])  # the first source decides about equal parts
        for part, worker in held.get(name, {}).items()
        if worker < workers and part in units[name]
    } | fixed
    if levels:
        _take_above_level(places, workers, weights, fixed)
    _place_others(places, workers, weights, units, live)
    dealt: dict[str, list[list[Any]]] = {}
    for name, of_source in units.items():
        dealt[name] = [[] for _ in range(workers)]
        for part, unit in of_source.items():
            dealt[name][places[unit]].append(part)
    return dealt


_Unit = tuple[str | None, Any]
"""What moves as one: a part with its source, or, without one, equal parts of all sources with keyed streams."""


def with_listed(listed: Mapping[str, Sequence[Any]], new: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Return the parts of each source, with new ones."""
    return {name: [*parts, *new.get(name, ())] for name, parts in listed.items()}


def with_new(
    program: Program,
    listed: Mapping[str, Sequence[Any]],
    new: Mapping[str, Sequence[Any]],
    parts: Parts,
    ended: Mapping[str, Collection[Any]],
) -> Parts:
    """Deal new parts; no other part moves.

    Args:
        program: the program.
        listed: the parts of each source, without the new ones.
        new: the new parts.
        parts: the parts of each source that each worker holds.
        ended: the finished parts of each source.
    """
    workers = max(map(len, parts.values()), default=1)
    return deal(program, with_listed(listed, new), workers, held_parts(parts), ended=ended, levels=False)


def _place_others(
    places: dict[_Unit, int],
    workers: int,
    weights: Mapping[_Unit, int],
    units: Mapping[str, Mapping[Any, _Unit]],
    live: Mapping[str, Sequence[_Unit]],
) -> None:
    """Place the parts that have no worker, source by source."""
    loads = _loads(places, workers, weights)
    for name, of_source in units.items():
        new = [unit for unit in of_source.values() if unit not in places]
        if not new:
            continue
        least = list(zip(loads, _loads(places, workers, dict.fromkeys(live[name], 1)), range(workers), strict=True))
        heapify(least)
        for unit in sorted(new, key=lambda it: -weights.get(it, 0)):
            load, count, worker = least[0]
            places[unit] = worker
            loads[worker] = load + weights.get(unit, 0)
            heapreplace(least, (loads[worker], count + 1, worker))


def _take_above_level(
    places: dict[_Unit, int], workers: int, weights: Mapping[_Unit, int], fixed: Container[_Unit]
) -> None:
    """Take from each worker the parts, the last ones first, with which it has more than its share."""
    loads = _loads(places, workers, weights)
    unmoved = _loads(places, workers, {unit: weight for unit, weight in weights.items() if unit in fixed})
    movable: list[list[_Unit]] = [[] for _ in range(workers)]
    for unit in weights:
        if unit in places and unit not in fixed:
            movable[places[unit]].append(unit)
    level, above = _level(unmoved, sum(weights.values()))
    for worker in sorted(range(workers), key=loads.__getitem__, reverse=True):
        load, share = loads[worker], level
        if above and load > level and unmoved[worker] <= level + 1:
            share, above = level + 1, above - 1
        for unit in reversed(movable[worker]):
            if load > share and load - weights[unit] >= level:
                del places[unit]
                load -= weights[unit]


def _loads(places: Mapping[_Unit, int], workers: int, weights: Mapping[_Unit, int]) -> list[int]:
    """Return the weight of the parts of each worker."""
    loads = [0] * workers
    for unit, weight in weights.items():
        if unit in places:
            loads[places[unit]] += weight
    return loads


def _level(unmoved: Iterable[int], total: int) -> tuple[int, int]:
    """Return the share of the workers that have no more than that unmoved, and how many of them have one above it."""
    sharing = sorted(unmoved)
    while sharing[-1] * len(sharing) > total:
        total -= sharing.pop()
    return divmod(total, len(sharing))


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


@dataclass(frozen=True, slots=True)
class Change:
    """A change in the parts of a source.

    Attributes:
        new: the parts that were not listed before.
        gone: the parts that are no longer listed.
    """

    new: Sequence[Any]
    gone: Sequence[Any]


def discovering(program: Program) -> dict[str, timedelta]:
    """Return the interval between listings, for each source with discovery.

    Raises:
        GraphError: if an interval is not a span of time above zero.
    """
    found: dict[str, timedelta] = {}
    for vertex in program.vertices:
        node = program.sources.get(vertex.node.name)
        every = None if node is None else getattr(node.source.impl, "discover_every", None)
        if every is None:
            continue
        fault = partial(_malformed, vertex)
        found[vertex.node.name] = checked_duration(fault, "discover_every", every, or_else="None")
    return found


def _malformed(vertex: Vertex, what: str) -> GraphError:
    name = vertex.node.name
    return GraphError(f"source '{name}' {what}", operator=name, location=vertex.location)


class Discovery:
    """Lists the parts of sources again when due; used between ticks.

    Args:
        program: the program.
        listed: the known parts of each source.

    Raises:
        GraphError: if a source has a ``discover_every`` that is not a span of time above zero.
    """

    def __init__(self, program: Program, listed: Mapping[str, Sequence[Any]]) -> None:
        self._program = program
        self._every = discovering(program)
        self._known = {name: list(listed[name]) for name in self._every}
        self._missing: dict[str, set[Any]] = {name: set() for name in self._every}
        now = time.monotonic()
        self._due = {name: now + every.total_seconds() for name, every in self._every.items()}

    def find(self) -> Iterator[tuple[str, Change | OperatorError]]:
        """List the parts of the sources that are due; yield each source's change, or its error.

        Each change is reported once. A source that fails is tried again when it is next due.

        Raises:
            OperatorError: if a source fails by an error with ``is_permanent`` True.
        """
        now = time.monotonic()
        for name in [name for name, due in self._due.items() if now >= due]:
            self._due[name] = now + self._every[name].total_seconds()
            try:
                listed = list_parts(name, self._program.sources[name].source, again=True)
            except OperatorError as error:
                if getattr(error.__cause__, "is_permanent", False):
                    raise
                yield name, error
                continue
            change = self._change(name, listed)
            if change.new or change.gone:
                yield name, change

    def _change(self, name: str, listed: Sequence[Any]) -> Change:
        known, missing, present = self._known[name], self._missing[name], set(listed)
        new = [part for part in listed if part not in set(known)]
        gone = [part for part in known if part not in present and part not in missing]
        known.extend(new)
        self._missing[name] = (missing | set(gone)) - present
        return Change(new, gone)


def with_waiting(live: Collection[Place], places: Iterable[Place], names: Collection[str]) -> set[Place]:
    """Return the places at which a source may still emit records.

    A source with discovery may finish on a worker as long as it has unfinished parts elsewhere. If all its parts are
    finished, it counts as unfinished everywhere, since any worker may receive the next part.

    Args:
        live: the places with unfinished parts.
        places: all places.
        names: the sources with discovery.
    """
    waiting = set(names).difference(name for name, _ in live)
    return {*live, *(place for place in places if place[0] in waiting)}


def check_finished(program: Program, name: str, gone: Iterable[Any], states: Mapping[int, Mapping[Any, Any]]) -> None:
    """Raise if parts that are no longer listed are unfinished, judging by their readers.

    Args:
        program: the program.
        name: the name of the source.
        gone: the parts.
        states: the positions, by worker and part.

    Raises:
        OperatorError: naming the part.
    """
    positions = {part: state for by_part in states.values() for part, state in by_part.items()}
    for part in gone:
        if part in positions:
            check_gone(name, program.sources[name].source, part, positions[part])


class Confirmations:
    """Remembers the positions of the readers that confirm them, at the ticks of snapshots.

    Args:
        sources: returns the operators that host the sources in this process.
    """

    def __init__(self, sources: Callable[[], Sequence[Source]]) -> None:
        self._sources = sources
        self._captured: dict[int, Mapping[str, Mapping[Any, Any]]] = {}
        self._confirmed: int | None = None

    def note(self, tick: int) -> None:
        """Record the positions in the last deltas for a tick."""
        positions: dict[str, dict[Any, Any]] = {}
        for source in self._sources():
            if source.confirms:
                positions.setdefault(source.context.operator_name, {}).update(source.positions())
        self._captured[tick] = positions

    def settle(self, tick: int, snapshot: int | None) -> Iterator[tuple[str, Exception]]:
        """Confirm the positions of a tick to the readers, unless its snapshot failed or they were confirmed before.

        Args:
            tick: the tick.
            snapshot: the id of its durable snapshot; None if it failed.

        Yields:
            The sources with a reader that could not confirm its position, with the error.
        """
        positions = self._captured.pop(tick, {})
        if snapshot is None or not positions or snapshot == self._confirmed:
            return
        self._confirmed = snapshot
        for source in self._sources():
            name = source.context.operator_name
            for error in source.confirm(positions.get(name, {})):
                self._confirmed = None
                yield name, error

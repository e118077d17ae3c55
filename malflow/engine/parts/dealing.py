"""Parts of sources are dealt to workers: evenly, with few moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from heapq import heapify, heapreplace
from types import MappingProxyType
from typing import Any

from malflow.engine.parts.places import Held, PartPlaces, Parts, Redeal, held_parts
from malflow.engine.parts.pool import IN_HAND, on_demand_sources
from malflow.engine.plan import Program
from malflow.operators.hosting.parts import part_sizes
from malflow.partitioners import rendezvous_select

__all__ = ["deal", "redeal", "with_listed", "with_new"]


# Idea: water filling. A part that has a worker stays there, up to the level that balance allows; the others go, one by
# one, to the worker that has the least. Source by source, and with the count of the source as the second criterion, so
# that each source is spread too.
#   parts that are hashed    on the worker of their hash, whatever it has: their keys meet other streams there
#   equal parts of sources   on one worker if streams that are keyed by them meet; they count as often
#   parts that have ended    count nothing, and stay
#   parts with known sizes   are as many bytes on each worker if none has been read yet, else as many parts
#   many parts that end      are not dealt, but handed out while the run reads: see `malflow.engine.parts.pool`
#
# Invariant: without hashed parts, equal ones and sizes, no worker has two live parts more than another after a deal
# with `levels`, and no deal with the same result moves fewer.
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
        The parts of each source that each worker holds, in the order listed; parts to be handed out are left out.
    """
    groups, hashed = program.part_groups.sources, program.hashed_sources
    units = {name: {part: (groups.get(name, name), part) for part in parts} for name, parts in listed.items()}
    units = _without_waiting(program, units, workers, held)
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
    new = {name: [part for part, unit in them.items() if unit not in places] for name, them in units.items()}
    sizes = {name: _sizes(program, name, parts) for name, parts in new.items()} if workers > 1 else {}
    _place_others(places, workers, weights, units, live, sizes)
    dealt: dict[str, list[list[Any]]] = {}
    for name, of_source in units.items():
        dealt[name] = [[] for _ in range(workers)]
        for part, unit in of_source.items():
            dealt[name][places[unit]].append(part)
    return dealt


_Unit = tuple[str, Any]
"""What moves as one: a part with its source, or equal parts with the group of their sources."""


def _without_waiting(
    program: Program, units: dict[str, dict[Any, _Unit]], workers: int, held: Held
) -> dict[str, dict[Any, _Unit]]:
    """Return the parts without those that are handed out while the run reads.

    A part with a worker keeps it, and a part that meets an equal one of another source is dealt with it. Where few are
    left, all are dealt.
    """
    names = on_demand_sources(program).intersection(units) if workers > 1 else frozenset[str]()
    while names:
        dealt = {of[part] for name, of in units.items() for part in held.get(name, ()) if part in of}
        dealt.update(unit for name, them in units.items() if name not in names for unit in them.values())
        some = {name: {part: unit for part, unit in units[name].items() if unit in dealt} for name in names}
        many = frozenset(name for name in names if len(units[name]) - len(some[name]) > workers * IN_HAND)
        if many == names:
            return {**units, **some}
        names = many
    return units


def redeal(
    program: Program,
    listed: Mapping[str, Sequence[Any]],
    workers: int,
    held: Held,
    *,
    ended: Mapping[str, Collection[Any]] = MappingProxyType({}),
    levels: bool = True,
    states: Held | None = None,
) -> Redeal:
    """Deal the parts again: see `deal`.

    Args:
        program: the program.
        listed: the parts of each source.
        workers: the number of workers.
        held: the worker of each part; parts that are no longer listed stay.
        ended: the finished parts of each source.
        levels: whether parts may move for balance from workers that stay.
        states: the workers that have the states of parts; None if each part has them with it.
    """
    parts, groups = deal(program, listed, workers, held, ended=ended, levels=levels), program.part_groups
    return Redeal(parts, held if states is None else states, PartPlaces(workers, groups, parts, held), groups)


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
    workers, held = max(map(len, parts.values()), default=1), held_parts(parts)
    known = {name: [part for part in some if part in held.get(name, ())] for name, some in listed.items()}
    return deal(program, with_listed(known, new), workers, held, ended=ended, levels=False)


def _place_others(
    places: dict[_Unit, int],
    workers: int,
    weights: Mapping[_Unit, int],
    units: Mapping[str, Mapping[Any, _Unit]],
    live: Mapping[str, Sequence[_Unit]],
    sizes: Mapping[str, Mapping[Any, int]],
) -> None:
    """Place the parts that have no worker, source by source, the largest first where sizes are known."""
    loads, turns = _loads(places, workers, weights), _turns(workers)
    for name, of_source in units.items():
        new = [unit for unit in of_source.values() if unit not in places]
        if not new:
            continue
        known = sizes.get(name, {})
        size_of = {unit: known.get(unit[1], 0) for unit in new}
        by_size = bool(known) and len(new) == len(of_source)  # else the workers have read some of theirs
        counts = _loads(places, workers, dict.fromkeys(live[name], 1))
        least = [(0 if by_size else loads[it], counts[it], 0, turns[it], it) for it in range(workers)]
        heapify(least)
        for unit in sorted(new, key=lambda it: (-weights.get(it, 0), -size_of[it])):
            load, count, size, turn, worker = least[0]
            places[unit] = worker
            loads[worker] += weights.get(unit, 0)
            load = load + size_of[unit] if by_size else loads[worker]
            heapreplace(least, (load, count + 1, size + size_of[unit], turn, worker))


def _turns(workers: int) -> list[int]:
    """Return the turn in which each of equal workers gets a part: half of them apart, then a quarter, and so on.

    Workers that follow each other are in one process. A few parts thus go to all processes.

    >>> _turns(4)
    [0, 2, 1, 3]
    """
    turns, order, parts = [0] * workers, [0], [(0, workers)]
    for start, stop in parts:
        middle = (start + stop) // 2
        if middle > start:
            order.append(middle)
            parts += [(start, middle), (middle, stop)]
    for turn, worker in enumerate(order):
        turns[worker] = turn
    return turns


def _sizes(program: Program, name: str, parts: Sequence[Any]) -> Mapping[Any, int]:
    """Return the known sizes of parts that end; of others, a size is the amount until now only."""
    source = program.sources[name].source
    return part_sizes(name, source, parts) if parts and getattr(source.impl, "bounded", False) else {}


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

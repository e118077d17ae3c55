"""The choice of parts that move from a busy worker to an idle one: seldom, never back, and only where it helps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from malflow.engine.parts.places import Parts
from malflow.engine.plan import Program
from malflow.nodes import SourceNode
from malflow.sources.contract import StatefulSource

__all__ = ["Balance", "Choice", "Load", "Unit", "movable_sources", "uneven", "units_of"]

_BUSY: Final = 0.5
"""The least share of time in which a worker works that others wait for. Less: moves where input is what is missing."""

_IDLE: Final = 0.5
"""The greatest load of the worker that gets a part, beside that of the busy one. More: moves that gain little."""

_GAIN: Final = 0.9
"""The load of the busier of both workers after a move, at most, beside that of the busy one before: rates are uncertain
by a few percent, and a move makes all workers wait."""

_LASTING: Final = 30.0
"""Seconds for which one worker must be the busy one. Less: a burst moves parts; more: the run stays uneven longer."""

_PAUSE: Final = 60.0
"""The least seconds between two moves: loads settle, and snapshots are written in between."""


class Load(NamedTuple):
    """The load of a worker.

    Attributes:
        busy: the share of time in which it works.
        near: the part of that share which goes along with its parts, since it comes before the first exchange.
    """

    busy: float
    near: float


@dataclass(frozen=True, slots=True)
class Unit:
    """Parts that can only move together: one part, or equal parts of sources with keyed streams that meet.

    Attributes:
        name: the source, or one of them, always the same.
        part: the part.
        parts: the parts by source.
        worker: the worker that has them.
        rate: the records a second that they give.
    """

    name: str
    part: Any
    parts: Mapping[str, Sequence[Any]]
    worker: int
    rate: float


@dataclass(frozen=True, slots=True)
class Choice:
    """A move that helps.

    Attributes:
        unit: the parts.
        after: the worker that gets them.
        busy: the share of time in which the worker that has them works, with others that take turns with it.
        idle: the same of the worker that gets them.
    """

    unit: Unit
    after: int
    busy: float
    idle: float


def uneven(busy: Sequence[float], lanes: Sequence[int]) -> tuple[int, int] | None:
    """Return the busiest and the idlest lane if the others wait for the busiest one; None if they do not.

    Args:
        busy: the share of time in which each worker works.
        lanes: a number for each worker; workers with the same one take turns.
    """
    loads = _by_lane(busy, lanes)
    top, bottom = max(loads, key=lambda lane: (loads[lane], -lane)), min(loads, key=lambda lane: (loads[lane], lane))
    return (top, bottom) if loads[top] >= _BUSY and loads[bottom] <= _IDLE * loads[top] else None


def _by_lane(busy: Sequence[float], lanes: Sequence[int]) -> dict[int, float]:
    loads: defaultdict[int, float] = defaultdict(float)
    for lane, load in zip(lanes, busy, strict=True):
        loads[lane] += load
    return loads


# Idea: a unit has the share of its worker's load that it has of its records. Of the units of the busiest lane, one goes
# to the idlest worker of the idlest lane: the one after which the busier of both lanes has least to do.
#
# Invariant: no unit returns to a worker that it has left, so it moves less often than there are workers; there is at
# most one move a minute; after each, by these figures, the busiest lane has less to do.
class Balance:
    """Chooses the moves of a run with a number of workers."""

    def __init__(self) -> None:
        self._left: defaultdict[tuple[str, Any], set[int]] = defaultdict(set)
        self._kept: set[tuple[str, Any]] = set()
        self._moved: float | None = None
        self._busiest: tuple[int, float] | None = None

    def is_uneven(self, now: float, loads: Sequence[Load], lanes: Sequence[int]) -> bool:
        """Whether a part should move now: one lane has long been the busiest, and the last move is long ago.

        Args:
            now: the time, in seconds.
            loads: the load of each worker.
            lanes: a number for each worker; workers with the same one take turns.
        """
        found = uneven([it.busy for it in loads], lanes)
        if found is None:
            self._busiest = None
            return False
        top, _ = found
        if self._busiest is None or self._busiest[0] != top:
            self._busiest = top, now
        has_lasted = now - self._busiest[1] >= _LASTING
        return has_lasted and (self._moved is None or now - self._moved >= _PAUSE)

    @property
    def busiest(self) -> int | None:
        """The lane that others wait for; None if they do not, as far as is known."""
        return None if self._busiest is None else self._busiest[0]

    def choose(
        self, loads: Sequence[Load], lanes: Sequence[int], units: Iterable[Unit], rates: Mapping[int, float]
    ) -> Choice | None:
        """Return the move that helps most; None if none helps.

        Args:
            loads: the load of each worker.
            lanes: a number for each worker; workers with the same one take turns.
            units: the parts that have not ended and may move.
            rates: the records a second of each worker's parts, also of those that may not move.
        """
        busy = [it.busy for it in loads]
        found = uneven(busy, lanes)
        if found is None:
            return None
        by_lane, (top, bottom) = _by_lane(busy, lanes), found
        after = min((at for at, lane in enumerate(lanes) if lane == bottom), key=lambda at: (busy[at], at))
        best: tuple[float, float, Unit] | None = None
        for unit in units:
            key = (unit.name, unit.part)
            if lanes[unit.worker] != top or unit.rate <= 0 or after in self._left[key] or key in self._kept:
                continue
            load = loads[unit.worker].near * unit.rate / max(rates[unit.worker], unit.rate)
            then = max(by_lane[top] - load, by_lane[bottom] + load)
            if then <= _GAIN * by_lane[top] and (best is None or (then, load) < best[:2]):
                best = then, load, unit
        return None if best is None else Choice(best[2], after, by_lane[top], by_lane[bottom])

    def note_move(self, choice: Choice, now: float) -> None:
        """Note that a move was made."""
        self._left[choice.unit.name, choice.unit.part].add(choice.unit.worker)
        self._moved, self._busiest = now, None

    def note_kept(self, choice: Choice) -> None:
        """Note that parts can't move, as their state is too large: they are not asked for again."""
        self._kept.add((choice.unit.name, choice.unit.part))


def movable_sources(program: Program) -> frozenset[str]:
    """Return the sources with parts that may move while they are read: with positions, and read side by side."""
    return frozenset(name for name, node in program.sources.items() if _may_move(node)) - program.hashed_sources


def _may_move(node: SourceNode) -> bool:
    return isinstance(node.source, StatefulSource) and not getattr(node.source.impl, "in_order", False)


def units_of(
    program: Program,
    parts: Parts,
    workers: Collection[int],
    ended: Mapping[str, Collection[Any]],
    rates: Mapping[str, Mapping[Any, float]],
) -> Iterator[Unit]:
    """Yield the parts of some workers that have not ended and may move.

    Args:
        program: the program.
        parts: the parts of each source that each worker holds.
        workers: the workers.
        ended: the parts of each source that have been read to their end.
        rates: the records a second of each part that has been read, by source.
    """
    movable, groups = movable_sources(program), program.part_groups.sources
    for worker in workers:
        held: dict[tuple[str, Any], dict[str, Sequence[Any]]] = {}
        for name, by_worker in parts.items():
            for part in by_worker[worker]:
                held.setdefault((groups.get(name, name), part), {})[name] = (part,)
        for (source, part), them in held.items():
            is_live = any(it not in ended.get(name, ()) for name, some in them.items() for it in some)
            if is_live and movable.issuperset(them):
                rate = sum(rates.get(name, {}).get(it, 0.0) for name, some in them.items() for it in some)
                yield Unit(source, part, them, worker, rate)

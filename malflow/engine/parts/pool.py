"""Parts that are handed out while a run reads: a worker that has finished its parts gets the next unread one."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Any, Final

from malflow.engine.parts.places import Parts, Place, waiting_parts
from malflow.engine.plan import Program
from malflow.nodes import EpochsNode
from malflow.operators.hosting.parts import part_sizes

__all__ = ["IN_HAND", "PartPool", "on_demand_sources"]

IN_HAND: Final = 2
"""The parts of a source that a worker has in hand: the second is read on in the tick in which the first ends. With one,
the worker idles for the rest of that tick; with more, parts wait on a busy worker while others idle."""

_AT_ONCE = 2
"""How many parts a worker gets for each that it has read in a tick, where they are small. With one, a thousand small
files take as many ticks as there are pairs of them for a worker; with more, the last ones are uneven."""


def on_demand_sources(program: Program) -> frozenset[str]:
    """Return the sources with parts that may be handed out while a run reads.

    All of their parts end, and no operator depends on the parts that are read together. Where time is generated from
    their records, the unread parts hold it back, so that windows stay open until the last part is begun: such sources
    are dealt at once, unless the run asks for it. Where several parts have one time, it never is handed out.
    """
    if program.part_assignment == "static":
        return frozenset()
    found = {name for name, node in program.sources.items() if _is_bounded(node.source.impl)}
    upstream: list[frozenset[str]] = []
    for vertex in program.vertices:
        ports = vertex.inputs
        fed_by = frozenset[str]().union(*(upstream[port.vertex] for port in ports)) if ports else {vertex.node.name}
        upstream.append(frozenset(fed_by))
        if isinstance(vertex.node, EpochsNode):
            own = {vertex.node.source} if program.part_assignment == "dynamic" else frozenset[str | None]()
            found.difference_update(fed_by - own)
    return frozenset(found) - program.hashed_sources


def _is_bounded(impl: Any) -> bool:
    """Whether all parts of a source end, and may be read one after the other on any worker."""
    never = ("in_order", "discover_every", "in_one_process")
    return bool(getattr(impl, "bounded", False)) and not any(getattr(impl, name, None) for name in never)


# Idea: guided self-scheduling. The unread parts of a source wait in a queue, the largest first. After each tick, the
# workers with the fewest parts in hand get the next ones.
#   in hand               two of each source; twice as many as it has read in the tick, but no more than its share of
#                         those that are left: small parts take few ticks, and the last ones are spread
#   a large part          a worker with its share of all that is left gets none beside it
#   equal parts           of several sources with keyed streams that meet are handed out together
#
# Invariant: a part is handed out once. A waiting part has no position and no reader anywhere.
#
# Example: two workers, and files of 90, 30, 30, 20, 10, 10 MB. One gets 90. The other gets 30 and 30, then 20 and 10
# when the first of them ends, and so on.
class PartPool:
    """The unread parts of a run, by source.

    Args:
        program: the program.
        listed: the parts of each source.
        parts: the parts of each source that each worker holds.

    Attributes:
        names: the sources that had unread parts when the pool was made.
    """

    def __init__(self, program: Program, listed: Mapping[str, Sequence[Any]], parts: Parts) -> None:
        waiting = waiting_parts(listed, parts)
        self.names = frozenset(waiting)
        self._program = program
        self._groups = program.part_groups.sources
        self._workers = max(map(len, parts.values()), default=0)
        self._waiting = {name: set(some) for name, some in waiting.items()}
        self._queues = {name: deque(some) for name, some in waiting.items()}
        self._sizes: dict[str, dict[Any, int]] = {}
        self._left: dict[str, int] = {}
        self._hands: dict[Place, list[int]] = {
            (name, worker): [0] * len(them) for name in self.names for worker, them in enumerate(parts[name])
        }
        self._read: dict[Place, int] = {}

    @property
    def waiting(self) -> frozenset[str]:
        """The sources that have unread parts."""
        return frozenset(self._waiting)

    @property
    def places(self) -> frozenset[Place]:
        """The sources that have unread parts, on all workers: any of them may get one."""
        return frozenset((name, worker) for name in self._waiting for worker in range(self._workers))

    def size(self, name: str) -> int | None:
        """Return the size of the unread parts of a source; None if that of any part is unknown."""
        if name not in self._waiting:
            return 0
        sizes = self._sizes_of(name)
        return self._left[name] if len(sizes) == len(self._waiting[name]) else None

    def note(self, unfinished: Mapping[Place, int]) -> None:
        """Record how many parts each worker has still to read, by source; the smallest of them have ended."""
        for place, hand in self._hands.items() if self._waiting else ():
            self._read[place] = ended = len(hand) - min(unfinished.get(place, 0), len(hand))
            del hand[:ended]

    def take(self) -> dict[str, list[list[Any]]]:
        """Return the parts that workers get now, by source and worker; they wait no longer.

        Raises:
            OperatorError: if a source can't tell the sizes of its parts.
        """
        given: dict[str, list[list[Any]]] = {}
        for name in [*self._waiting]:
            for part, worker in self._next(name):
                for other in self._with_equal(name, part):
                    given.setdefault(other, [[] for _ in range(self._workers)])[worker].append(part)
                    insort(self._hands[other, worker], self._remove(other, part))
        self._waiting = {name: parts for name, parts in self._waiting.items() if parts}
        return given

    def _next(self, name: str) -> Iterator[tuple[Any, int]]:
        """Yield the parts of a source that workers get now, with their workers."""
        sizes, waiting, workers = self._sizes_of(name), self._waiting[name], self._workers
        queue = self._queues[name]
        hands = [self._hands[name, worker] for worker in range(workers)]
        total, share = self._left[name] + sum(map(sum, hands)), -(-len(waiting) // workers)
        most = [max(IN_HAND, min(_AT_ONCE * self._read.get((name, it), 0), share)) for it in range(workers)]
        least = [(len(hand), sum(hand), it) for it, hand in enumerate(hands) if len(hand) < most[it]]
        heapify(least)
        while least and queue:
            (count, load, worker), part = least[0], queue[0]
            if part not in waiting:  # it was handed out with an equal one
                queue.popleft()
                continue
            size = sizes.get(part, 0)
            if count and (load + size) * workers > total:
                heappop(least)
                continue
            yield queue.popleft(), worker
            if count + 1 < most[worker]:
                heapreplace(least, (count + 1, load + size, worker))
            else:
                heappop(least)

    def _with_equal(self, name: str, part: Any) -> list[str]:
        """Return the sources that have a part waiting that is handed out together with one."""
        group = self._groups.get(name, name)
        return [it for it, some in self._waiting.items() if self._groups.get(it, it) == group and part in some]

    def _remove(self, name: str, part: Any) -> int:
        """Remove a part from those that wait; return its size, or 0 if it is unknown."""
        self._waiting[name].remove(part)
        size = self._sizes_of(name).pop(part, 0)
        self._left[name] -= size
        return size

    def _sizes_of(self, name: str) -> dict[Any, int]:
        """Return the known sizes of the unread parts of a source; the largest are first in the queue from then on."""
        if name not in self._sizes:
            queue = self._queues[name]
            self._sizes[name] = sizes = part_sizes(name, self._program.sources[name].source, queue)
            self._queues[name] = deque(sorted(queue, key=lambda part: -sizes.get(part, 0)))
            self._left[name] = sum(sizes.values())
        return self._sizes[name]

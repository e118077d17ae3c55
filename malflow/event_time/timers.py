"""Timers: one deadline for each of many keys."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

__all__ = ["Timers"]

_SLACK = 1024
"""The heap is pruned if more than half of it, plus this number, are deadlines without keys."""


class Timers:
    """The deadlines of keys, at most one per key. They fire in ascending order.

    Keys with the same deadline share a bucket. So setting a deadline costs two dict entries, and a push to the heap
    only if no other key has this deadline. If deadlines only move forward, set them once, and again when they fire
    early: that is cheaper than moving them with each record.

    Attributes:
        at: the deadline of each key; only the methods may change it.
    """

    __slots__ = ("_buckets", "_heap", "at")

    def __init__(self) -> None:
        self.at: dict[Any, Any] = {}
        self._buckets: dict[Any, dict[Any, None]] = {}
        self._heap: list[Any] = []

    def set(self, key: Any, at: Any) -> None:
        """Set the deadline of a key, replacing any other.

        Raises:
            TypeError: if the deadline can't be hashed, or compared with the others.
        """
        self.cancel(key)
        bucket = self._buckets.get(at)
        self.at[key] = at
        if bucket is None:
            self._buckets[at] = {key: None}
            heappush(self._heap, at)
        else:
            bucket[key] = None

    def check(self, at: Any) -> None:
        """Check that a deadline can be set.

        Raises:
            TypeError: as `set` does.
        """
        hash(at)
        if self._heap:
            _ = at < self._heap[0]

    def cancel(self, key: Any) -> None:
        """Drop the deadline of a key, if it has one."""
        if key not in self.at:
            return
        at = self.at.pop(key)
        bucket = self._buckets[at]
        del bucket[key]
        if not bucket:
            del self._buckets[at]
            if len(self._heap) > 2 * len(self._buckets) + _SLACK:
                self._heap = list(self._buckets)
                heapify(self._heap)

    def clear(self) -> None:
        """Drop all deadlines."""
        self.at.clear()
        self._buckets.clear()
        self._heap.clear()

    @property
    def earliest(self) -> Any:
        """The first deadline, or None."""
        heap = self._heap
        while heap and heap[0] not in self._buckets:
            heappop(heap)
        return heap[0] if heap else None

    def times(self) -> list[Any]:
        """Return the distinct deadlines in ascending order."""
        return sorted(self._buckets)

    def take(self, at: Any) -> list[Any]:
        """Drop a deadline; return its keys in the order in which they were set."""
        keys = list(self._buckets.pop(at))
        for key in keys:
            del self.at[key]
        return keys

    def due(self, now: Any) -> Iterator[Any]:
        """Yield the keys with a deadline that has passed, in ascending order of deadlines, and drop the deadlines.

        For equal deadlines, keys are in the order in which they were set. Due deadlines set during the iteration fire
        too.
        """
        while (at := self.earliest) is not None and at <= now:
            heappop(self._heap)
            for key in self._buckets.pop(at):
                del self.at[key]
                yield key

"""The busiest worker and the busiest key of an exchange, estimated from a sample of the records.

The sample is bounded, so the counts of its keys are exact. Old records lose weight: when the sample is full, all counts
are halved, and keys that were seen once are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from malflow.words import short_repr

__all__ = ["ENOUGH", "HotKeys", "HotSample"]

ENOUGH = 64
"""The number of sampled records that tell something."""

_ONE_IN = 61
"""One record in so many is counted; it is prime, as input often has a period, but seldom this one."""

_MOST = 4_096
"""The sampled records at which all counts are halved."""


class HotSample(NamedTuple):
    """The sampled records that one worker has sent through an exchange.

    Attributes:
        records: their number.
        worker: the worker that most of them belong to.
        of_worker: how many.
        key: the key that most of them have, as a text.
        of_key: how many.
    """

    records: int
    worker: int
    of_worker: int
    key: str
    of_key: int


class HotKeys:
    """Samples the keys that one worker sends through an exchange.

    Args:
        workers: the number of receiving workers.
    """

    def __init__(self, workers: int) -> None:
        self._records = self._next = 0
        self._new, self._until = 0, ENOUGH
        self._keys: dict[Any, int] = {}
        self._workers = [0] * workers

    def note(self, keys: Sequence[Any], workers: Sequence[int]) -> None:
        """Count one in 61 of these keys. They go to these workers."""
        at, self._next = self._next, (self._next - len(keys)) % _ONE_IN
        if at >= len(keys):
            return
        counts, of_workers = self._keys, self._workers
        sampled = keys[at::_ONE_IN]
        for key, worker in zip(sampled, workers[at::_ONE_IN], strict=True):
            counts[key] = counts.get(key, 0) + 1
            of_workers[worker] += 1
        self._records += len(sampled)
        self._new += len(sampled)
        if self._records >= _MOST:
            self._halve()

    def take(self) -> HotSample | None:
        """Return the busiest worker and key; None if the sample has changed little since the last time."""
        if self._new < self._until or not self._keys:
            return None
        self._new, self._until = 0, min(2 * self._until, _MOST // 2)
        worker = max(range(len(self._workers)), key=self._workers.__getitem__)
        key = max(self._keys, key=self._keys.__getitem__)
        return HotSample(self._records, worker, self._workers[worker], short_repr(key), self._keys[key])

    def _halve(self) -> None:
        self._keys = {key: count // 2 for key, count in self._keys.items() if count > 1}
        self._workers = [count // 2 for count in self._workers]
        self._records = sum(self._workers)

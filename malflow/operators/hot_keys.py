"""The busiest worker and the busiest key of an exchange, estimated from a sample of the records.

Counts of keys are those of space-saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k
elements in data streams", 2005): a key that has no counter takes the least one over, with its count. A key's count is
too high by at most the number of records divided by that of counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from malflow.diagnostics import short_repr

__all__ = ["HotKeys", "HotSample"]

_ONE_IN = 61
"""One record in so many is counted; it is prime, as input often has a period, but seldom this one."""

_COUNTERS = 32
_MOST = 4_096
"""The sampled records at which all counts are halved, so that old ones matter less."""


class HotSample(NamedTuple):
    """The sampled records that one worker has sent through an exchange.

    Attributes:
        records: their number.
        worker: the worker that most of them belong to.
        of_worker: how many.
        key: the key that most of them have, as a text.
        of_key: how many, at most.
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
        self._records = self._told = self._next = 0
        self._keys: dict[Any, int] = {}
        self._workers = [0] * workers

    def note(self, keys: Sequence[Any], workers: Sequence[int]) -> None:
        """Count one in 61 of these keys, which go to these workers."""
        at, self._next = self._next, (self._next - len(keys)) % _ONE_IN
        for key, worker in zip(keys[at::_ONE_IN], workers[at::_ONE_IN], strict=True):
            self._workers[worker] += 1
            self._count(key)
            self._records += 1
        if self._records >= _MOST:
            self._halve()

    def take(self) -> HotSample | None:
        """Return the busiest worker and key; None if no record was sampled since the last call."""
        if self._told == self._records:
            return None
        self._told = self._records
        worker = max(range(len(self._workers)), key=self._workers.__getitem__)
        key = max(self._keys, key=self._keys.__getitem__)
        return HotSample(self._records, worker, self._workers[worker], short_repr(key), self._keys[key])

    def _count(self, key: Any) -> None:
        counts = self._keys
        if key in counts:
            counts[key] += 1
        elif len(counts) < _COUNTERS:
            counts[key] = 1
        else:
            least = min(counts, key=counts.__getitem__)
            counts[key] = counts.pop(least) + 1

    def _halve(self) -> None:
        self._records //= 2
        self._workers = [count // 2 for count in self._workers]
        self._keys = {key: count // 2 for key, count in self._keys.items()}

"""The epochs of former workers, which keep records of their keys late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from malflow.message import MIN
from malflow.partitioners import Partitioner, former_select

__all__ = ["Floors", "Past"]

Past = Sequence[tuple[Any, ...]]
"""Former numbers of workers, and the epochs of those workers that were ahead of the least epoch.

Where a former version of malflow had placed the keys, the name of its placement follows: see `former_select`.
"""

_CACHED_FLOORS = 1 << 20
"""Entries until the cache is emptied: double takes twice the memory, half recomputes more often."""


class Floors(dict[Any, Any]):
    """For each key, the greatest epoch that its former workers issued; `MIN` if they issued none.

    Args:
        placement: the partitioner of the keys.
        past: the former numbers of workers, and the epochs of these workers.
    """

    def __init__(self, placement: Partitioner, past: Past) -> None:
        super().__init__()
        self.past = past
        self._placement = placement

    @property
    def epochs(self) -> list[Any]:
        """The epochs of the former workers."""
        return [epoch for _, epochs, *_ in self.past for epoch in epochs.values()]

    def are_passed(self, epoch: Any) -> bool:
        """Whether no key's floor is above an epoch; the floors are then no longer needed."""
        return epoch is not None and all(epoch >= reached for reached in self.epochs)

    def __missing__(self, key: Any) -> Any:
        if len(self) >= _CACHED_FLOORS:
            self.clear()
        reached = [
            epochs.get((former_select if former else self._placement)(key, range(workers)), MIN)
            for workers, epochs, *former in self.past
        ]
        self[key] = floor = max(reached)
        return floor

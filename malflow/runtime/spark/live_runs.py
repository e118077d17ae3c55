"""The live runs of this driver; processes evict cached workers of all other runs."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import suppress
from typing import Final, NamedTuple

__all__ = ["REGISTRY", "LiveRuns", "RunRegistry"]


class LiveRuns(NamedTuple):
    """The runs that were live at some time. Ended runs stay ended, since a run does not start twice.

    Attributes:
        before: the number of the next run at that time.
        numbers: the numbers of the live runs.
    """

    before: int
    numbers: Collection[int]

    def is_over(self, run: int) -> bool:
        """Whether a run had ended at that time; False for a run that began later."""
        return run < self.before and run not in self.numbers


class RunRegistry:
    """Numbers runs in the order in which they begin, and knows which are live."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 1
        self._live: set[int] = set()

    def begin(self) -> int:
        """Return the number of a new run."""
        with self._lock:
            number = self._next
            self._next += 1
            self._live.add(number)
            return number

    def end(self, number: int) -> None:
        """Record the end of a run."""
        with self._lock, suppress(KeyError):
            self._live.remove(number)

    @property
    def live(self) -> LiveRuns:
        """The runs that are live now."""
        with self._lock:
            return LiveRuns(self._next, sorted(self._live))


REGISTRY: Final = RunRegistry()
"""The runs of this process, which share the processes of one Spark application, even from several sessions."""

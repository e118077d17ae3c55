"""The live runs of this driver; processes evict what they cache of any other run."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import suppress
from typing import Final, NamedTuple

__all__ = ["CENSUS", "Census", "Going"]


class Going(NamedTuple):
    """The runs that were live at some time; never outdated for ended runs, since a run does not start twice.

    Attributes:
        before: the number that the next run would have had.
        numbers: the numbers of the live runs.
    """

    before: int
    numbers: Collection[int]

    def is_over(self, run: int) -> bool:
        """Whether a run had ended at that time; a run that began later had not."""
        return run < self.before and run not in self.numbers


class Census:
    """Numbers runs in the order in which they begin, and knows which are live."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 1
        self._going: set[int] = set()

    def begin(self) -> int:
        """Return the number of a new run."""
        with self._lock:
            number = self._next
            self._next += 1
            self._going.add(number)
            return number

    def end(self, number: int) -> None:
        """Record the end of a run."""
        with self._lock, suppress(KeyError):
            self._going.remove(number)

    @property
    def going(self) -> Going:
        """The runs that are live now."""
        with self._lock:
            return Going(self._next, sorted(self._going))


CENSUS: Final = Census()
"""The runs of this process, which share the processes of one Spark application, even from several sessions."""

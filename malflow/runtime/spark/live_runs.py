"""Which runs of this driver are going on: processes let go of what they hold of any other."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import suppress
from typing import Final, NamedTuple

__all__ = ["CENSUS", "Census", "Going"]


class Going(NamedTuple):
    """The runs that were going on at some time. It stays true: a run that is over does not begin again.

    Attributes:
        before: the number of the run that would have begun next.
        numbers: those of the runs that were going on.
    """

    before: int
    numbers: Collection[int]

    def is_over(self, run: int) -> bool:
        """Whether a run was over then; one that has begun since was not."""
        return run < self.before and run not in self.numbers


class Census:
    """Numbers runs in the order in which they begin."""

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
        """Note that a run is over."""
        with self._lock, suppress(KeyError):
            self._going.remove(number)

    @property
    def going(self) -> Going:
        """The runs that are going on now."""
        with self._lock:
            return Going(self._next, sorted(self._going))


CENSUS: Final = Census()
"""The runs of this process: they share the processes of one Spark application, whatever the session of each."""

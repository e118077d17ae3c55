"""The results of a machine: matches as columns, and counters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from operator import le
from typing import Any

from malflow.patterns.match import Match

__all__ = ["Counters", "Emitted"]


class Emitted:
    """Matches as columns."""

    __slots__ = ("keys", "timestamps", "values")

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.values: list[Match[Any, Any, Any]] = []
        self.timestamps: list[Any] = []

    def sort(self) -> None:
        """Sort the matches by time; the sort is stable."""
        if all(map(le, self.timestamps, islice(self.timestamps, 1, None))):
            return
        order = sorted(range(len(self.timestamps)), key=self.timestamps.__getitem__)
        self.keys = [self.keys[index] for index in order]
        self.values = [self.values[index] for index in order]
        self.timestamps = [self.timestamps[index] for index in order]


@dataclass(slots=True)
class Counters:
    """The outcomes of partial matches.

    Attributes:
        starts: the number of events that began a partial match.
        matches: the number of matches emitted.
        timeouts: the number of starts that timed out.
        broken: the number broken by an event that was skipped or must not occur.
        used_up: the number discarded by a match.
        dropped: the number dropped at the limit, or because the pattern has changed.
    """

    starts: int = 0
    matches: int = 0
    timeouts: int = 0
    broken: int = 0
    used_up: int = 0
    dropped: int = 0

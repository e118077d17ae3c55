"""What a machine finds: matches as columns, and counts."""

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
        """Order the matches by time; those of one time keep their order."""
        if all(map(le, self.timestamps, islice(self.timestamps, 1, None))):
            return
        order = sorted(range(len(self.timestamps)), key=self.timestamps.__getitem__)
        self.keys = [self.keys[index] for index in order]
        self.values = [self.values[index] for index in order]
        self.timestamps = [self.timestamps[index] for index in order]


@dataclass(slots=True)
class Counters:
    """What became of partial matches.

    Attributes:
        starts: how many events have begun one.
        matches: how many matches were emitted.
        timeouts: how many starts were not finished in time.
        broken: how many could not be finished, by an event that was passed over or must not come.
        used_up: how many were used up by a match that was emitted before.
        dropped: how many were dropped at the limit, or since the pattern has changed.
    """

    starts: int = 0
    matches: int = 0
    timeouts: int = 0
    broken: int = 0
    used_up: int = 0
    dropped: int = 0

"""Partial matches, the selection of those to keep, and the results of a machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import le
from typing import Any, Final

from malflow.patterns.automaton import State
from malflow.patterns.match import ORDINAL, TIME, Match, Node
from malflow.words import short_repr

__all__ = [
    "FIRST",
    "LAST",
    "STATE",
    "Counters",
    "Emitted",
    "LimitReached",
    "Run",
    "merged",
    "newest",
    "starts_of",
]

Run = tuple[State, Node, Node]
"""A partial match: its state, and the nodes of its first and its last event."""

STATE: Final = 0  # the state of the automaton
FIRST: Final = 1  # the node of the first event
LAST: Final = 2  # the node of the last event


class LimitReached(RuntimeError):
    """A key has more partial matches than allowed."""


def starts_of(runs: Iterable[Run]) -> set[int]:
    """Return the ordinals of the first events."""
    return {run[FIRST][ORDINAL] for run in runs}


def merged(runs: Sequence[Run], *, has_silent_end: bool) -> list[Run]:
    """Return one partial match for each future: the first is preferred, and the others are discarded.

    A partial match that waits for an absence, and whose last event lies between the starts of two others, will discard
    only the first of them; so these two do not share a future.

    Args:
        runs: the partial matches of a key, in order.
        has_silent_end: whether partial matches may wait for an absence at the end.
    """
    if len({run[STATE] for run in runs}) == len(runs):
        return list(runs)
    firsts: dict[Any, Run] = {}
    kept: list[Run] = []
    for run in runs:
        state = run[STATE]
        future = (state, run[LAST][ORDINAL]) if state.depends_on_last else state
        first = firsts.setdefault(future, run)
        if first is run or (has_silent_end and _is_parted(first, run, runs)):
            kept.append(run)
    return kept


def _is_parted(first: Run, second: Run, runs: Iterable[Run]) -> bool:
    """Whether the last event of a waiting partial match lies between the starts of two others."""
    start, end = first[FIRST][ORDINAL], second[FIRST][ORDINAL]
    return any(run[STATE].waits and start <= run[LAST][ORDINAL] < end for run in runs)


def newest(key: Any, runs: list[Run], limit: int, *, drops_oldest: bool) -> list[Run]:
    """Return the newest partial matches of a key that has more than the limit.

    Raises:
        LimitReached: if none may be dropped.
    """
    if drops_oldest:
        return runs[-limit:]
    raise LimitReached(
        f"it has {len(runs):,} partial matches for key {short_repr(key)}, the limit is {limit:,}; bound "
        'it with .within(), after="end" or limit=, or pass overflow="oldest"; the oldest began at '
        f"{short_repr(runs[0][FIRST][TIME])}"
    )


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

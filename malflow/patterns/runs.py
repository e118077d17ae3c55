"""Partial matches, and the selection of those to keep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from malflow.patterns.automaton_states import State
from malflow.patterns.match import ORDINAL, TIME, Node
from malflow.words import short_repr

__all__ = ["FIRST", "LAST", "STATE", "LimitReached", "Run", "merged", "newest", "starts_of"]

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

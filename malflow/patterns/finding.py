"""Matches of a pattern in a list of records, without a runtime."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any, TypeVar

from malflow.message import MAX, DataMessage, NoKey
from malflow.patterns.machine import Machine
from malflow.patterns.masks import Masks
from malflow.patterns.match import Match
from malflow.words import short_repr

__all__ = ["Found", "find", "rows_of"]

V = TypeVar("V")


class Found(list[Match[Any, V, Any]]):
    """The matches, in order of completion.

    Attributes:
        timeouts: the partial matches that timed out.
    """

    def __init__(self, matches: Iterable[Match[Any, V, Any]], timeouts: Iterable[Match[Any, V, Any]]) -> None:
        super().__init__(matches)
        self.timeouts = list(timeouts)


def rows_of(records: Iterable[Any]) -> list[tuple[Any, Any, Any]]:
    """Return the timestamps, keys and values of records, in the order of time.

    Args:
        records: messages; or values, with the timestamps 0, 1, 2, ...

    Raises:
        ValueError: if a timestamp is None or does not equal itself.
    """
    rows = [
        (it.timestamp, it.key, it.value) if isinstance(it, DataMessage) else (number, NoKey, it)
        for number, it in enumerate(records)
    ]
    for time, _, value in rows:
        if time is None or time != time:  # noqa: PLR0124 - as NaN
            raise ValueError(
                f"{time!r} is not a timestamp; set another one for the record with value {short_repr(value)}"
            )
    rows.sort(key=itemgetter(0))
    return rows


def find(machine: Machine, masks: Masks, records: Iterable[Any]) -> Found[Any]:
    """Return the matches that a machine finds in records, including those at the end of time."""
    rows = rows_of(records)
    bits = masks.of([value for _, _, value in rows])
    machine.walk((time, key, mask, value) for (time, key, value), mask in zip(rows, bits, strict=True))
    for key in machine.timers.due(MAX):
        machine.expire(key, MAX)
    machine.matches.sort()
    machine.timeouts.sort()
    return Found(machine.matches.values, machine.timeouts.values)

"""Patterns as one writes them by hand: a dict of what each key has begun; records must be in the order of time.

Each loop takes keys, values and timestamps, and returns how many matches it finds. They are those of
``keyed.match(..., after="end")``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import Any

from malflow import DataMessage, NoKey
from malflow.records.batch import Batch
from workloads.pattern_records import QUIET, SPAN, Failed, LoggedIn

__all__ = ["absence_by_hand", "classes_by_hand", "failures_by_hand", "on_time", "rising_by_hand", "rows_of"]

_BOUND = 1_000
_FAILURES = 3
_RISES = 5

Rows = Iterable[tuple[Any, Any, int]]


def rows_of(columns: Sequence[Batch]) -> Rows:
    """Return the rows of columns in memory: what there is to do is the matching alone."""
    return chain.from_iterable(zip(it.keys or (), it.values, it.timestamps, strict=True) for it in columns)


def on_time(records: Iterable[Any], time_of: Callable[[Any], int], key_of: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield the rows of records with what a dataflow does before its operator: timestamps, keys, a running epoch."""
    epoch = -1
    for value in records:
        at = time_of(DataMessage(NoKey, value, None))
        key = key_of(DataMessage(NoKey, value, at))
        if at <= epoch:
            continue
        yield key, value, at
        epoch = max(epoch, at - _BOUND)


def failures_by_hand(rows: Rows) -> int:
    """Find three failed logins and a success in five minutes."""
    failures: dict[Any, list[Any]] = {}
    found: list[Any] = []
    for key, value, time in rows:
        kind = value["kind"]
        if kind == "failed":
            failures.setdefault(key, []).append((time, value))
        elif kind == "login":
            failed = failures.get(key)
            if failed:
                _settle(failures, key, failed, time, value, found)
    return len(found)


def classes_by_hand(rows: Rows) -> int:
    """Find three failed logins and a success in five minutes, by the classes of the records."""
    failures: dict[Any, list[Any]] = {}
    found: list[Any] = []
    for key, value, time in rows:
        if isinstance(value, Failed):
            failures.setdefault(key, []).append((time, value))
        elif isinstance(value, LoggedIn):
            failed = failures.get(key)
            if failed:
                _settle(failures, key, failed, time, value, found)
    return len(found)


def _settle(failures: dict[Any, Any], key: Any, failed: list[Any], time: int, value: Any, found: list[Any]) -> None:
    """Take a success after failures: note the match if there is one, and keep the failures that may lead to one."""
    recent = [it for it in failed if time - it[0] <= SPAN]
    if len(recent) >= _FAILURES:
        found.append((key, recent[:_FAILURES], value))
        del failures[key]
    else:
        failures[key] = recent


def absence_by_hand(rows: Rows) -> int:
    """Find A, then B, and no C for ten seconds."""
    begun: dict[Any, Any] = {}
    waiting: dict[Any, list[Any]] = {}
    due: list[Any] = []
    found: list[Any] = []
    for number, (key, value, time) in enumerate(rows):
        while due and due[0][0] < time:
            _, _, one, match = heappop(due)
            if match in waiting.get(one, ()):
                waiting[one].remove(match)
                found.append((one, match))
        kind = value["kind"]
        if kind == "A":
            begun.setdefault(key, (time, value))
        elif kind == "B":
            if key in begun:
                match = [begun.pop(key), (time, value)]
                waiting.setdefault(key, []).append(match)
                heappush(due, (time + QUIET, number, key, match))
        elif kind == "C":
            waiting.pop(key, None)
    return len(found) + sum(map(len, waiting.values()))


def rising_by_hand(rows: Rows) -> int:
    """Find five values in a row of which each is greater than the one before it."""
    rises: dict[Any, list[Any]] = {}
    found: list[Any] = []
    for key, value, time in rows:
        rise = rises.get(key)
        if rise is not None and value["size"] > rise[-1][1]["size"]:
            rise.append((time, value))
            if len(rise) == _RISES:
                found.append((key, rise))
                del rises[key]
        else:
            rises[key] = [(time, value)]
    return len(found)

"""The meaning of windows: an interpreter that keeps all records, and searches all of them for each window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Record = tuple[Any, Any, Any]
"""A key, a timestamp and a value."""


def parted(records: Iterable[Record], bound: Any) -> tuple[list[Record], list[Record], Any]:
    """Part records in order of arrival into those on time and the late ones; return the last epoch as well."""
    epoch: Any = None
    on_time: list[Record] = []
    late: list[Record] = []
    for key, timestamp, value in records:
        (on_time if epoch is None or timestamp > epoch else late).append((key, timestamp, value))
        epoch = timestamp - bound if epoch is None else max(epoch, timestamp - bound)
    return on_time, late, epoch


def sliding_windows(size: Any, every: Any, offset: Any, timestamp: Any) -> list[tuple[Any, Any]]:
    """Return the start and the end of each window that contains a timestamp."""
    start = (timestamp - offset) // every * every + offset
    found = []
    while start + size > timestamp:
        found.append((start, start + size))
        start -= every
    return found


def windowed(
    records: Iterable[Record], windows_of: Callable[[Any], Sequence[tuple[Any, Any]]]
) -> dict[tuple[Any, Any, Any], list[Any]]:
    """Return the values in each window of each key, by key, start and end."""
    found: dict[tuple[Any, Any, Any], list[Any]] = {}
    for key, timestamp, value in records:
        for start, end in windows_of(timestamp):
            found.setdefault((key, start, end), []).append(value)
    return found


def sessions(records: Iterable[Record], gap: Any) -> dict[tuple[Any, Any, Any], list[Any]]:
    """Return the values in each session, by key, start and end; those of the earlier of two that are joined first."""
    found: dict[Any, list[tuple[Any, Any, list[Any]]]] = {}
    for key, timestamp, value in records:
        held = found.setdefault(key, [])
        near = sorted(it for it in held if it[0] - gap < timestamp < it[1] + gap)
        values = [one for _, _, values in near for one in values] + [value]
        first = min([timestamp, *(it[0] for it in near)])
        last = max([timestamp, *(it[1] for it in near)])
        found[key] = [it for it in held if it not in near] + [(first, last, values)]
    return {(key, first, last + gap): values for key, held in found.items() for first, last, values in held}


def counted(records: Iterable[Record], size: int, every: int) -> dict[Any, list[list[tuple[Any, Any]]]]:
    """Return the timestamps and values in each window of a number of records, by key."""
    arrived: dict[Any, list[tuple[Any, Any]]] = {}
    for key, timestamp, value in records:
        arrived.setdefault(key, []).append((timestamp, value))
    return {
        key: [found[start : start + size] for start in range(0, len(found), every)] for key, found in arrived.items()
    }


def early_results(
    records: Iterable[Record], bound: Any, size: Any, every: Any, distance: Any
) -> list[tuple[Any, Any, Any, Any, list[Any]]]:
    """Return the early results of windows of integers: key, start, end, timestamp and values, by looking at each epoch.

    Records are looked at one by one. Each may raise the epoch, from one instant to the next; of the instants of a
    window that it passes, the last one counts.
    """
    epoch: Any = None
    held: list[Record] = []
    changed: set[tuple[Any, Any]] = set()
    found = []
    for key, timestamp, value in records:
        if epoch is None or timestamp > epoch:
            held.append((key, timestamp, value))
            changed |= {(key, start) for start, _ in sliding_windows(size, every, 0, timestamp)}
        before, epoch = epoch, timestamp - bound if epoch is None else max(epoch, timestamp - bound)
        for one, start in sorted(changed):
            instants = [start + at - 1 for at in range(distance, size, distance) if start + at - 1 <= epoch]
            if epoch >= start + size - 1:
                changed.discard((one, start))
            elif instants and (before is None or instants[-1] > before):
                values = [it for key, at, it in held if key == one and start <= at < start + size]
                found.append((one, start, start + size, instants[-1], values))
                changed.discard((one, start))
    return found


def late_windows(
    records: Iterable[Record], bound: Any, windows_of: Callable[[Any], Sequence[tuple[Any, Any]]], until: Any = 0
) -> tuple[dict[tuple[Any, Any, Any], list[Any]], list[tuple[Any, Any, Any, int]], list[Record]]:
    """Return the values in each window of integers, the revised results, with the number of values, and late records.

    A late record is added to those of its windows that are open, or else that are kept.
    """
    epoch: Any = None
    found: dict[tuple[Any, Any, Any], list[Any]] = {}
    kept: dict[tuple[Any, Any, Any], int] = {}
    revised = []
    too_late = []
    for key, timestamp, value in records:
        its = windows_of(timestamp)
        open_ones = [(start, end) for start, end in its if epoch is None or end - 1 > epoch]
        for start, end in open_ones:
            found.setdefault((key, start, end), []).append(value)
            kept[key, start, end] = kept.get((key, start, end), 0) + 1
        if its and not open_ones:
            (start, end) = its[0]
            if end - 1 + until > epoch:
                kept[key, start, end] = kept.get((key, start, end), 0) + 1
                revised.append((key, start, end, kept[key, start, end]))
            else:
                too_late.append((key, timestamp, value))
        epoch = timestamp - bound if epoch is None else max(epoch, timestamp - bound)
    return found, revised, too_late


def late_sessions(
    records: Iterable[Record], bound: Any, gap: Any
) -> tuple[dict[tuple[Any, Any, Any], list[Any]], list[Record]]:
    """Return the values in each session of integers, and the records that are too late for an open one."""
    epoch: Any = None
    held: list[tuple[Any, Any, Any, list[Any]]] = []
    too_late = []
    for key, timestamp, value in records:
        open_ones = [it for it in held if epoch is None or it[2] + gap - 1 > epoch]
        near = sorted(it for it in open_ones if it[0] == key and it[1] - gap < timestamp < it[2] + gap)
        if near or epoch is None or timestamp + gap - 1 > epoch:
            first = min([timestamp, *(it[1] for it in near)])
            last = max([timestamp, *(it[2] for it in near)])
            values = [one for it in near for one in it[3]] + [value]
            held = [it for it in held if it not in near] + [(key, first, last, values)]
        else:
            too_late.append((key, timestamp, value))
        epoch = timestamp - bound if epoch is None else max(epoch, timestamp - bound)
    return {(key, first, last + gap): values for key, first, last, values in held}, too_late

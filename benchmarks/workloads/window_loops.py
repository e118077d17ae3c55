"""Windows as one writes them by hand: callbacks, dicts of windows, a running epoch; they keep no state anywhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from malflow import DataMessage, NoKey

__all__ = ["pairs_by_hand", "sessions_by_hand", "sliding_by_hand", "tumbling_by_hand"]

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)

Rows = Sequence[dict[str, Any]]


def _time_of(msg: DataMessage[Any, Any, Any]) -> datetime:
    at: datetime = msg.value["at"]
    return at


def _key_of(msg: DataMessage[Any, Any, Any]) -> str:
    key: str = msg.value["key"]
    return key


def tumbling_by_hand(rows: Rows, size: timedelta, bound: timedelta) -> tuple[int, float]:
    """Sum in windows one after the other; return the number of results and their sum."""
    epoch: datetime | None = None
    windows: dict[int, dict[str, int]] = {}
    count = total = 0
    for value in rows:
        at = _time_of(DataMessage(NoKey, value, None))
        key = _key_of(DataMessage(NoKey, value, at))
        if epoch is not None and at <= epoch:
            continue
        window = (at - _ORIGIN) // size
        sums = windows.get(window)
        if sums is None:
            sums = windows[window] = {}
        sums[key] = sums.get(key, 0) + value["amount"]
        if epoch is None or at - bound > epoch:
            epoch = at - bound
            for over in [it for it in windows if _ORIGIN + (it + 1) * size - _TICK <= epoch]:
                for result in windows.pop(over).values():
                    count += 1
                    total += result
    left = [result for sums in windows.values() for result in sums.values()]
    return count + len(left), float(total + sum(left))


def sliding_by_hand(rows: Rows, span: int, every: timedelta, bound: timedelta) -> tuple[int, float]:
    """Sum in overlapping windows, the simple way: each record is added to each of its windows."""
    epoch: datetime | None = None
    windows: dict[int, dict[str, int]] = {}
    count = total = 0
    for value in rows:
        at = _time_of(DataMessage(NoKey, value, None))
        key = _key_of(DataMessage(NoKey, value, at))
        if epoch is not None and at <= epoch:
            continue
        first = (at - _ORIGIN) // every
        for window in range(first, first + span):
            sums = windows.get(window)
            if sums is None:
                sums = windows[window] = {}
            sums[key] = sums.get(key, 0) + value["amount"]
        if epoch is None or at - bound > epoch:
            epoch = at - bound
            for over in [it for it in windows if _ORIGIN + (it + 1) * every - _TICK <= epoch]:
                for result in windows.pop(over).values():
                    count += 1
                    total += result
    left = [result for sums in windows.values() for result in sums.values()]
    return count + len(left), float(total + sum(left))


def sessions_by_hand(rows: Rows, gap: timedelta, bound: timedelta) -> tuple[int, float]:
    """Sum in sessions of records that are in order; a session is noticed to be over when its key comes again."""
    epoch: datetime | None = None
    sessions: dict[str, list[Any]] = {}
    count = total = 0
    for value in rows:
        at = _time_of(DataMessage(NoKey, value, None))
        key = _key_of(DataMessage(NoKey, value, at))
        if epoch is not None and at <= epoch:
            continue
        found = sessions.get(key)
        if found is not None and at - found[0] >= gap:
            count += 1
            total += found[1]
            found = None
        if found is None:
            sessions[key] = [at, value["amount"]]
        else:
            found[0] = max(at, found[0])
            found[1] += value["amount"]
        if epoch is None or at - bound > epoch:
            epoch = at - bound
    return count + len(sessions), float(total + sum(found[1] for found in sessions.values()))


def pairs_by_hand(rows: Iterable[tuple[int, dict[str, Any]]], reach: timedelta, bound: timedelta) -> tuple[int, float]:
    """Join two streams within an interval; return the number of pairs and the sum of their left amounts.

    What can't have a partner any more is dropped when its key comes again.

    Args:
        rows: the records of both streams, each behind its side: 0 for left, 1 for right.
        reach: how far the two records of a pair may be apart.
        bound: how far epochs are behind the newest record of a side.
    """
    epochs: list[datetime | None] = [None, None]
    sides: tuple[dict[str, deque[tuple[datetime, Any]]], ...] = ({}, {})
    count = total = 0
    for side, value in rows:
        at = _time_of(DataMessage(NoKey, value, None))
        key = _key_of(DataMessage(NoKey, value, at))
        epoch = epochs[side]
        if epoch is not None and at <= epoch:
            continue
        own = sides[side].get(key)
        if own is None:
            own = sides[side][key] = deque()
        own.append((at, value))
        others = sides[1 - side].get(key)
        if others:
            low, high = at - reach, at + reach
            while epoch is not None and others and others[0][0] + reach <= epoch:
                others.popleft()
            for time, other in others:
                if low <= time <= high:
                    pair = (value, other) if side == 0 else (other, value)
                    count += 1
                    total += pair[0]["amount"]
        if epoch is None or at - bound > epoch:
            epochs[side] = at - bound
    return count, float(total)

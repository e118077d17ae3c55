"""(e) Readings of 500 sensors, out of order: how many of the sensor's last minute are there at each reading?

Bytewax has no epochs outside its windows and no `ttl_map`, and a loop has neither. The nearest thing that answers the
same: one variable holds the epoch, which drops late readings and goes with each other one; a sensor's entries are
expired when it is read, not when the epoch comes. In bytewax that variable lies outside the state, so that it is right
on one worker only, and lost in a restart; and the entries of a sensor that falls silent are never let go of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import bytewax.operators as op

from malflow import MIN, DataMessage, ExpireMap, NoKey, limit_out_of_orderness
from workloads.peers import Workload, run_bytewax, run_malflow

__all__ = ["WORKLOAD"]

PER_SECOND = 20
SECONDS_KEPT = 60


class Reading(NamedTuple):
    """A reading of a sensor, with its time."""

    sensor: str
    second: int
    level: float


Entries = ExpireMap[int, float, int]

newest_minus_three = limit_out_of_orderness(3)


def second_of(msg: DataMessage[Any, Reading, Any]) -> int:
    return msg.value.second


def sensor_of(msg: DataMessage[Any, Reading, Any]) -> str:
    return msg.value.sensor


def last_minute(key: str, value: Reading, timestamp: int, entries: Entries) -> tuple[int, Entries]:
    entries.insert(timestamp, value.level, timestamp + SECONDS_KEPT)
    return len(entries), entries


def _make(size: int) -> list[Reading]:
    """Make readings that come up to four seconds late: a few of them too late."""
    random = Random(1)
    return [
        Reading(
            f"sensor-{random.randrange(500)}",
            number // PER_SECOND - random.choice((0, 0, 0, 0, 1, 1, 2, 4)),
            random.random(),
        )
        for number in range(size)
    ]


def _malflow(records: Sequence[Reading]) -> int:
    def build(stream: Any) -> Any:
        on_time, _late = stream.assign_timestamps("second", second_of).generate_epochs("epochs", newest_minus_three)
        return on_time.key_distribute("sensor", sensor_of).ttl_map("last-minute", last_minute)

    return run_malflow(records, build)


def _loop(records: Sequence[Reading]) -> int:
    total = 0
    states: dict[str, Entries] = defaultdict(ExpireMap)
    epoch = None
    for value in records:
        second = second_of(DataMessage(NoKey, value, None))
        candidate = newest_minus_three(DataMessage(NoKey, value, second), epoch)
        if epoch is not None and second <= epoch:
            continue
        key = sensor_of(DataMessage(NoKey, value, second))
        entries = states[key]
        if epoch is not None:
            entries.expire(epoch)
        emitted, states[key] = last_minute(key, value, second, entries)
        total += emitted
        if epoch is None or candidate > epoch:
            epoch = candidate
    return total


def _tight_loop(records: Sequence[Reading]) -> int:
    total = 0
    states: dict[str, Entries] = defaultdict(ExpireMap)
    epoch = None
    view: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)
    for value in records:
        view.value = value
        view.timestamp = second = second_of(view)
        candidate = newest_minus_three(view, epoch)
        if epoch is not None and second <= epoch:
            continue
        key = sensor_of(view)
        entries = states[key]
        if epoch is not None:
            entries.expire(epoch)
        emitted, states[key] = last_minute(key, value, second, entries)
        total += emitted
        if epoch is None or candidate > epoch:
            epoch = candidate
    return total


def _bytewax(records: Sequence[Reading], batch_size: int) -> int:
    epoch: Any = MIN

    def on_time(value: Reading) -> tuple[Reading, Any] | None:
        nonlocal epoch
        before = epoch
        epoch = max(before, value.second - 3)
        return (value, before) if value.second > before else None

    def sensor(stamped: tuple[Reading, Any]) -> str:
        return stamped[0].sensor

    def last_minute_of(entries: Entries | None, stamped: tuple[Reading, Any]) -> tuple[Entries, int]:
        value, before = stamped
        if entries is None:
            entries = ExpireMap()
        entries.expire(before)
        entries.insert(value.second, value.level, value.second + SECONDS_KEPT)
        return entries, len(entries)

    def build(stream: Any) -> Any:
        keyed = op.key_on("sensor", op.filter_map("on-time", stream, on_time), sensor)
        return op.stateful_map("last-minute", keyed, last_minute_of)

    return run_bytewax(records, batch_size, build)


WORKLOAD = Workload("e", "event time, ttl_map", 500_000, _make, _malflow, _loop, _tight_loop, _bytewax)

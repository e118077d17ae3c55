"""(a) A running sum of integers under each of 1,000 keys.

The keys are names, taken from a table: bytewax takes text only, and nobody shall pay for making it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import bytewax.operators as op

from malflow import DataMessage, NoKey
from workloads.peers import Workload, run_bytewax, run_malflow

__all__ = ["WORKLOAD"]

NAMES = [f"key-{number}" for number in range(1_000)]


def name_of(msg: DataMessage[Any, int, Any]) -> str:
    return NAMES[msg.value % 1_000]


def add(key: str, value: int, state: int) -> tuple[int, int]:
    return state + value, state + value


def _malflow(records: Sequence[int]) -> int:
    return run_malflow(
        records,
        lambda stream: stream.key_distribute("name", name_of).stateful_map("sum", add, default=int),
    )


def _loop(records: Sequence[int]) -> int:
    total = 0
    states: dict[str, int] = defaultdict(int)
    for timestamp, value in enumerate(records):
        key = name_of(DataMessage(NoKey, value, timestamp))
        emitted, states[key] = add(key, value, states[key])
        total += emitted
    return total


def _tight_loop(records: Sequence[int]) -> int:
    total = 0
    states: dict[str, int] = defaultdict(int)
    view: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)
    for value in records:
        view.value = value
        key = name_of(view)
        emitted, states[key] = add(key, value, states[key])
        total += emitted
    return total


def _bytewax(records: Sequence[int], batch_size: int) -> int:
    def name(value: int) -> str:
        return NAMES[value % 1_000]

    def add_to(state: int | None, value: int) -> tuple[int, int]:
        if state is None:
            state = 0
        return state + value, state + value

    return run_bytewax(
        records, batch_size, lambda stream: op.stateful_map("sum", op.key_on("name", stream, name), add_to)
    )


WORKLOAD = Workload("a", "running sum, 1,000 keys", 2_000_000, range, _malflow, _loop, _tight_loop, _bytewax)

"""(c) Visits of users, each of whom comes once: 1,000,000 distinct keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import bytewax.operators as op

from malflow import DataMessage, NoKey
from workloads.peers import Workload, run_bytewax, run_malflow

__all__ = ["WORKLOAD"]


def user_of(msg: DataMessage[Any, str, Any]) -> str:
    return msg.value


def count(key: str, value: str, state: int) -> tuple[int, int]:
    return state + 1, state + 1


def _make(size: int) -> list[str]:
    return [f"user-{number}" for number in range(size)]


def _malflow(records: Sequence[str]) -> int:
    return run_malflow(
        records, lambda stream: stream.key_distribute("user", user_of).stateful_map("count", count, default=int)
    )


def _loop(records: Sequence[str]) -> int:
    total = 0
    states: dict[str, int] = defaultdict(int)
    for timestamp, value in enumerate(records):
        key = user_of(DataMessage(NoKey, value, timestamp))
        emitted, states[key] = count(key, value, states[key])
        total += emitted
    return total


def _tight_loop(records: Sequence[str]) -> int:
    total = 0
    states: dict[str, int] = defaultdict(int)
    view: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)
    for value in records:
        view.value = value
        key = user_of(view)
        emitted, states[key] = count(key, value, states[key])
        total += emitted
    return total


def _bytewax(records: Sequence[str], batch_size: int) -> int:
    def itself(user: str) -> str:
        return user

    def count_on(state: int | None, _user: str) -> tuple[int, int]:
        if state is None:
            state = 0
        return state + 1, state + 1

    return run_bytewax(
        records, batch_size, lambda stream: op.stateful_map("count", op.key_on("user", stream, itself), count_on)
    )


WORKLOAD = Workload("c", "count, 1,000,000 distinct keys", 1_000_000, _make, _malflow, _loop, _tight_loop, _bytewax)

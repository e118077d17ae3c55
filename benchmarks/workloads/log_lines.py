"""(b) Lines of a log, a quarter of them noise, counted by service: map, filter, map, key, stateful map over text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

import bytewax.operators as op

from malflow import DataMessage, NoKey
from workloads.peers import Workload, run_bytewax, run_malflow

__all__ = ["WORKLOAD"]

LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"]


def strip(line: str) -> str:
    return line.strip()


def is_notable(line: str) -> bool:
    return not line.startswith("DEBUG")


def service_of(line: str) -> str:
    return line.split(" ", 2)[1]


def value_of(msg: DataMessage[Any, str, Any]) -> str:
    return msg.value


def count(key: str, value: str, state: int) -> tuple[int, int]:
    return state + 1, state + 1


def _make(size: int) -> list[str]:
    random = Random(1)
    return [f"{random.choice(LEVELS)} service-{random.randrange(200)} took {number} ms\n" for number in range(size)]


def _malflow(records: Sequence[str]) -> int:
    return run_malflow(
        records,
        lambda stream: (
            stream.map("strip", strip)
            .filter("notable", is_notable)
            .map("service", service_of)
            .key_distribute("by-service", value_of)
            .stateful_map("count", count, default=int)
        ),
    )


def _loop(records: Sequence[str]) -> int:
    total = 0
    states: dict[str, int] = defaultdict(int)
    for timestamp, record in enumerate(records):
        line = strip(record)
        if not is_notable(line):
            continue
        service = service_of(line)
        key = value_of(DataMessage(NoKey, service, timestamp))
        emitted, states[key] = count(key, service, states[key])
        total += emitted
    return total


def _tight_loop(records: Sequence[str]) -> int:
    total = 0
    states: dict[str, int] = defaultdict(int)
    view: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)
    for record in records:
        line = strip(record)
        if not is_notable(line):
            continue
        view.value = service = service_of(line)
        key = value_of(view)
        emitted, states[key] = count(key, service, states[key])
        total += emitted
    return total


def _bytewax(records: Sequence[str], batch_size: int) -> int:
    def itself(service: str) -> str:
        return service

    def count_on(state: int | None, _service: str) -> tuple[int, int]:
        if state is None:
            state = 0
        return state + 1, state + 1

    def build(stream: Any) -> Any:
        stripped = op.map("strip", stream, strip)
        notable = op.filter("notable", stripped, is_notable)
        services = op.map("service", notable, service_of)
        return op.stateful_map("count", op.key_on("by-service", services, itself), count_on)

    return run_bytewax(records, batch_size, build)


WORKLOAD = Workload("b", "map, filter, map, key, count", 1_000_000, _make, _malflow, _loop, _tight_loop, _bytewax)

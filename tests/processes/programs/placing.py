"""A program with keys of every kind that hashes differently in every process; it prints the worker of each.

``main(FOLDER, STOP)`` goes on from the last snapshot until a number of records, and prints the worker of each key that
it met, as JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.snapshot import FsspecBackend
from malflow.testing import PAUSE, ScriptedSource


class Colour(Enum):
    """A kind of key."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Place:
    """A kind of key."""

    town: str
    street: tuple[str, int]


KEYS: list[Any] = [
    *(f"text {number}" for number in range(8)),
    *(f"bytes {number}".encode() for number in range(4)),
    *(("tuple", str(number), number) for number in range(4)),
    *(frozenset({"a", "b", "c", f"set {number}"}) for number in range(8)),
    *(Place("Ulm", (f"street {number}", number)) for number in range(8)),
    *(frozenset({("nested", frozenset({"x", "y", str(number)}))}) for number in range(4)),
    *(number * 7 for number in range(4)),
    *Colour,
    date(2013, 1, 1),
    Decimal("1.5"),
    "",
    "\ud800",
    "e\u0301",
    "\u00e9",
]
ROUNDS = 6


def main(folder: str, stop: int) -> None:
    placed: dict[int, int] = {}
    seen = 0

    def note(msg: Any, ctx: Any) -> None:
        placed[msg.value] = ctx.worker_id

    def stop_in_time(_msg: Any, _ctx: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == stop:
            runtime.stop()

    def build_dataflow(provider: StreamProvider) -> None:
        script = [item for _ in range(ROUNDS) for item in (*range(len(KEYS)), PAUSE)]
        numbers = provider.new_stream().source("numbers", ScriptedSource(script)).inspect("stop", stop_in_time)
        keyed = numbers.key_distribute("key", lambda msg: KEYS[msg.value])
        keyed.stateful_map("count", lambda _key, value, count: (value, count + 1), int).inspect("note", note)

    backend = FsspecBackend(folder, job="placing")
    runtime = SingleThreadRuntime(build_dataflow, backend, parallelism=3)
    runtime.execute()
    print(json.dumps(placed))

"""Dataflows that the tests of the Spark runtime share, and what comes of them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from malflow import StreamProvider
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import ScriptedSource
from tests.kept import kept_states

PARTS = ("a", "b", "c")
KEYS = 17


def add(_key: Any, value: int, total: int) -> tuple[int, int]:
    return total + value, total + value


def sums(size: int, sink: Any = None, *, fails_at: int | None = None) -> Any:
    """Add up the numbers below `size`, of each of three parts, by their remainder."""
    target = StatelessSink(VecSink() if sink is None else sink)

    def check(value: int) -> int:
        if value == fails_at:
            raise ValueError(f"it is {value}")
        return value

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource({part: list(range(size)) for part in PARTS}))
        keyed = numbers.map("check", check).key_distribute("key", lambda msg: msg.value % KEYS)
        keyed.stateful_map("sum", add, default=int).sink("out", target)

    return build


def expected_sums(size: int) -> dict[int, int]:
    """Give what the sums of `sums` come to."""
    totals: dict[int, int] = defaultdict(int)
    for number in range(size):
        totals[number % KEYS] += len(PARTS) * number
    return dict(totals)


def kept_sums(backend: FsspecBackend) -> dict[int, int]:
    """Give the sums that the newest snapshot holds."""
    return kept_states(backend, "sum")


def backend_at(folder: Path, **options: Any) -> FsspecBackend:
    """Make the backend of a test."""
    return FsspecBackend(str(folder / "state"), job="sums", **options)

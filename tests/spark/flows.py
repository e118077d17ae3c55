"""Dataflows shared by the tests of the Spark runtime, and their expected results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import chain, combinations_with_replacement
from pathlib import Path
from typing import Any

import fsspec

from malflow import DataMessage, StreamProvider
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import ScriptedSource
from tests.kit.backends import kept_states

PARTS = ("a", "b", "c")
KEYS = 17
WRITTEN = "written.txt.gz"
"""The file of a dataflow's sink."""


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


def as_line(msg: DataMessage[int, int, int]) -> str:
    """Return the line of a running sum: the key, the number that was added, and what it came to."""
    return f"{msg.key} {msg.timestamp} {msg.value}"


def assert_written_once(path: Path, size: int) -> None:
    """Check that a file has the line of each number of each part once, and that each sum follows the one before."""
    totals: dict[int, int] = defaultdict(int)
    numbers: list[int] = []
    with fsspec.open(str(path), "rt", compression="infer") as file:
        for line in file:
            key, number, total = map(int, line.split())
            totals[key] += number
            assert (total, key) == (totals[key], number % KEYS), f"{line!r} does not follow what is before it"
            numbers.append(number)
    assert sorted(numbers) == sorted(len(PARTS) * [*range(size)])


def expected_sums(size: int) -> dict[int, int]:
    """Return the expected result of `sums`."""
    totals: dict[int, int] = defaultdict(int)
    for number in range(size):
        totals[number % KEYS] += len(PARTS) * number
    return dict(totals)


def are_of_a_tick(found: Mapping[int, int], size: int) -> bool:
    """Whether sums are those of the first numbers of each part, however many of each."""
    total = sum(found.values())
    for firsts in combinations_with_replacement(range(size + 1), len(PARTS)):
        if sum(first * (first - 1) // 2 for first in firsts) == total:
            totals = Counter(dict.fromkeys(found, 0))
            for number in chain.from_iterable(map(range, firsts)):
                totals[number % KEYS] += number
            if totals == found:
                return True
    return False


def kept_sums(backend: FsspecBackend) -> dict[int, int]:
    """Return the sums in the newest snapshot."""
    return kept_states(backend, "sum")


def backend_at(folder: Path, **options: Any) -> FsspecBackend:
    """Make the backend of a test."""
    return FsspecBackend(str(folder / "state"), job="sums", **options)

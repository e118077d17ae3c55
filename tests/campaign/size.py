"""Many keys, and many workers: a job moves between the runtimes with two million keys, or with 32 workers."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from malflow import SingleThreadRuntime, SparkRuntime
from malflow.snapshot import FsspecBackend, fsck
from malflow.sources import StatefulSource
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition
from tests.campaign.cases import Campaign, Difference
from tests.campaign.comparing import snapshots_every
from tests.kit.backends import kept_states
from tests.kit.spark_session import quiet_session

__all__ = ["size"]

KEYS = 2_000_000
PARTS = 8


def size(campaign: Campaign) -> None:
    """Run cases until the time is up."""
    with TemporaryDirectory() as folder, quiet_session(Path(folder), "local[2]") as spark:
        for seed in campaign.seeds():
            campaign.attempt(seed, partial(_case, seed, campaign.size or KEYS, spark))


class Numbers(StatefulSourceImpl[int, int, int, int]):
    """The numbers below `keys`, so many times, in parts.

    Args:
        keys: how many there are.
        times: how often each comes.
    """

    def __init__(self, keys: int, times: int) -> None:
        self.keys, self.times = keys, times

    def list_parts(self) -> list[int]:
        return list(range(PARTS))

    def build_part(self, part: int, state: int | None) -> NumbersPart:
        return NumbersPart(range(part, self.keys, PARTS), self.times, state or 0)


class NumbersPart(StatefulSourcePartition[int, int, int]):
    """The numbers of one part."""

    def __init__(self, numbers: range, times: int, position: int) -> None:
        self.numbers, self.times, self.position = numbers, times, position

    def poll_batch(self, limit: int) -> tuple[list[int], list[int]]:
        first = self.position % len(self.numbers)
        values = [] if self.is_finished() else list(self.numbers[first : first + limit])
        self.position += len(values)
        return values, values

    def poll(self) -> tuple[int, int] | None:
        values, _ = self.poll_batch(1)
        return (values[0], values[0]) if values else None

    def is_finished(self) -> bool:
        return self.position >= self.times * len(self.numbers)

    def snapshot(self) -> int:
        return self.position


def _build(keys: int, times: int, provider: Any) -> None:
    numbers = provider.new_stream().source("numbers", StatefulSource(Numbers(keys, times)))
    keyed = numbers.key_distribute("key", lambda msg: msg.value)
    counted = keyed.stateful_map("count", lambda _key, _value, count: (count + 1, count + 1), default=int)
    tens = counted.key_distribute("ten", lambda msg: msg.key % 10)
    tens.stateful_map("sum", lambda _key, value, total: (total + value, total + value), default=int)


def _case(seed: int, keys: int, spark: Any) -> str:
    rng = random.Random(seed)
    parallelism = rng.choice([2, 32])
    keys = keys if parallelism == 2 else keys // 20
    said = [f"{keys} keys, parallelism {parallelism}"]
    with TemporaryDirectory() as folder:
        backend = FsspecBackend(folder, job="numbers", retain=2)
        for times in range(1, 4):
            began = time.monotonic()
            build = partial(_build, keys, times)
            if times == 2 and rng.random() < 0.5:
                SingleThreadRuntime(build, backend, parallelism=rng.choice([1, 3])).execute()
                said.append(f"one thread {time.monotonic() - began:.0f} s")
            else:
                SparkRuntime(build, backend, snapshots_every(rng), parallelism, spark=spark).execute()
                said.append(f"Spark {time.monotonic() - began:.0f} s")
                parallelism = rng.choice([parallelism, 3])
            _check(backend, keys, times)
    return ", ".join(said)


def _check(backend: FsspecBackend, keys: int, times: int) -> None:
    counts = kept_states(backend, "count")
    wrong = [key for key, count in counts.items() if count != times]
    if len(counts) != keys or wrong:
        raise Difference(f"{len(counts)} keys of {keys}, and {len(wrong)} are not {times}, such as {wrong[:5]}")
    sums = kept_states(backend, "sum")
    wanted = {ten: times * (times + 1) // 2 * len(range(ten, keys, 10)) for ten in range(10)}
    if sums != wanted:
        raise Difference(f"sums: {sums}, not {wanted}")
    if problems := fsck(backend).problems:
        raise Difference(f"fsck: {problems}")

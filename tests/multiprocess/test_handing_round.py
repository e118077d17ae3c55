"""A job goes from one runtime to the next, at any number of workers, and its state stays exact."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from malflow import MultiProcessRuntime, SingleThreadRuntime, SparkRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.patterns import step
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, fsck
from malflow.sources import TextFileSource
from malflow.windows import tumbling
from tests.kit.backends import kept_states
from tests.kit.nights import at_night

pytestmark = pytest.mark.slow

PARTS = ("a.txt", "b.txt", "c.txt")
KEYS = 7
LENGTH = 10

PROCESSES = partial(MultiProcessRuntime, processes=2, start_method="forkserver")


def flow(
    folder: Path, windows: VecSink[Any, Any, Any], pairs: VecSink[Any, Any, Any], provider: StreamProvider
) -> None:
    """Sum per key, count in windows, and find two multiples of five in a row."""
    lines = provider.new_stream().source("lines", TextFileSource(str(folder / "*.txt")))
    numbers = lines.map("numbers", int).assign_timestamps("times", lambda msg: msg.value)
    timed, _ = numbers.generate_epochs("epochs", limit_out_of_orderness(3 * LENGTH))
    keyed = timed.key_distribute("key", lambda msg: msg.value % KEYS)
    keyed.stateful_map("sum", lambda _, value, total: (total + value, total + value), default=int).sink(
        "sums", VecSink()
    )
    keyed.window(tumbling(LENGTH)).aggregate("count", agg.count()).sink("windows", windows)
    five = step("five", lambda value: value % 5 == 0)
    keyed.match("pairs", five.then(step("again", lambda value: value % 5 == 0))).matches.sink("matches", pairs)


def hand_round(legs: Sequence[tuple[Any, int]], folder: Path) -> None:
    """Run the job in turn on several runtimes, each with more input, and compare with plain loops."""
    backend = FsspecBackend(str(folder / "state"))
    data = folder / "data"
    data.mkdir()
    numbers = range(600)
    size = -(-len(numbers) // len(legs))
    windows: VecSink[Any, Any, Any] = VecSink()
    pairs: VecSink[Any, Any, Any] = VecSink()
    for leg, (runtime, workers) in enumerate(legs):
        for part, name in enumerate(PARTS):
            with (data / name).open("a") as file:
                piece = numbers[leg * size : (leg + 1) * size]
                file.writelines(f"{number}\n" for number in piece if number % len(PARTS) == part)
        at_end = "finish" if leg == len(legs) - 1 else "keep"
        runtime(partial(flow, data, windows, pairs), backend, parallelism=workers, at_end=at_end).execute()
    expected = {key: sum(number for number in numbers if number % KEYS == key) for key in range(KEYS)}
    assert kept_states(backend, "sum") == expected
    counted = Counter((number % KEYS, number // LENGTH) for number in numbers)
    found = [((it.key, it.value.start // LENGTH), it.value.value) for it in windows]
    assert sorted(found) == sorted(counted.items())
    fives = [number for number in numbers if number % 5 == 0]
    by_key = Counter(number % KEYS for number in fives)
    assert len(pairs) == sum(count // 2 for count in by_key.values())
    assert fsck(backend).problems == ()


@pytest.mark.parametrize("seed", at_night(range(4), but=range(2)))
def test_a_job_goes_between_one_thread_and_processes(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    legs = [(chance.choice([SingleThreadRuntime, PROCESSES]), chance.randint(1, 5)) for _ in range(6)]
    hand_round([*legs, (PROCESSES, 3)], tmp_path)


@pytest.mark.spark
@pytest.mark.nightly
def test_a_job_goes_round_all_three_runtimes(spark: Any, tmp_path: Path) -> None:
    on_spark = partial(SparkRuntime, spark=spark)
    hand_round(
        [(PROCESSES, 2), (on_spark, 3), (SingleThreadRuntime, 5), (on_spark, 1), (PROCESSES, 4), (on_spark, 2)],
        tmp_path,
    )

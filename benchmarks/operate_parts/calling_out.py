"""The time of calls by `map_async`, compared with asyncio alone, which has no ticks, order or snapshots.

Each pair of runs has the same calls: a call sleeps as long as its number says.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable, Sequence
from operator import truediv
from statistics import median
from typing import Any

from tables import print_table

from malflow import Retry, SingleThreadRuntime, StreamProvider
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.sources import SingleIteratorSource

__all__ = ["print_calls"]

_CALLS = 2_000
_CAPACITY = 100
_SPREAD = 0.5
"""The standard deviation of the logarithm of the times that are log-normal."""


class _Nothing(StatelessSinkImpl[Any, Any, Any]):
    """Drops all records."""

    def sink(self, message: Any) -> None:
        pass


async def _call(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def print_calls(rounds: int, records: int) -> None:
    """Print the table.

    Args:
        rounds: how often each job runs in each mode.
        records: the most calls of 50 ms; there are ten times as many of 10 ms.
    """
    calls = min(records, _CALLS)
    draw = random.Random(1).lognormvariate
    jobs: dict[str, Sequence[float]] = {
        "50 ms": [0.05] * calls,
        "log-normal, median 10 ms": [0.01 * draw(0, _SPREAD) for _ in range(10 * calls)],
    }
    rows = [_row(name, seconds, rounds) for name, seconds in jobs.items()]
    print(
        f"\nSeconds for calls at capacity {_CAPACITY}, medians; '/': the speed, medians of the rounds, 'asyncio' is 1\n"
    )
    print_table(("each", "calls", *_MODES, *(f"{mode} / asyncio" for mode in [*_MODES][1:])), rows)


def _row(name: str, seconds: Sequence[float], rounds: int) -> Sequence[str]:
    """Run the calls once a round in each mode, each round beginning with another one, and make the row of the table."""
    times: dict[str, list[float]] = {mode: [] for mode in _MODES}
    names = [*_MODES]
    for turn in range(rounds):
        first = turn % len(names)
        for mode in names[first:] + names[:first]:
            gc.collect()
            start = time.perf_counter()
            _MODES[mode](seconds)
            times[mode].append(time.perf_counter() - start)
    print(name, {mode: round(median(found), 3) for mode, found in times.items()}, flush=True)
    ratios = [median(map(truediv, times["asyncio"], times[mode])) for mode in names[1:]]
    return (
        name,
        f"{len(seconds):,}",
        *(f"{median(times[it]):.2f}" for it in names),
        *(f"{it:.2f}" for it in ratios),
    )


def _bare(seconds: Sequence[float]) -> None:
    """Make all calls by asyncio alone, a limited number at a time."""

    async def take(rest: Any) -> None:
        for each in rest:
            await _call(each)

    async def end() -> None:
        rest = iter(seconds)
        await asyncio.gather(*(take(rest) for _ in range(_CAPACITY)))

    asyncio.run(end())


def _mapped(seconds: Sequence[float], **options: Any) -> None:
    """Make all calls by a dataflow."""

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("seconds", SingleIteratorSource(seconds))
        stream.map_async("call", _call, capacity=_CAPACITY, **options).sink("out", StatelessSink(_Nothing()))

    SingleThreadRuntime(build_dataflow).execute()


def _guarded(seconds: Sequence[float]) -> None:
    _mapped(seconds, retry=Retry(), on_error="skip")


_MODES: dict[str, Callable[[Sequence[float]], None]] = {
    "asyncio": _bare,
    "map_async": _mapped,
    "with retry and skip": _guarded,
}

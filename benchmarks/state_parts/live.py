"""Questions to a running job: how long an answer takes, beside a tick, and how much of the throughput they cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

from malflow import RunHandle, SingleThreadRuntime, SparkRuntime, StreamProvider
from malflow.events import Event, TickFinished
from malflow.sources import StatelessSource, StatelessSourceImpl

__all__ = ["measured"]

_KEYS = 10_000
_WARM_UP = 3.0
_TURNS, _TURNS_ON_SPARK = 8, 8
_PAUSE = 0.1
"""Seconds from one question to the next: ten a second, of all who ask."""

_ASKERS = 10


class _Part:
    """Numbers without end, as many as are asked for, or none at all."""

    def __init__(self, *, idle: bool) -> None:
        self._at, self._idle = 0, idle

    def poll_batch(self, limit: int) -> tuple[list[int], list[int]]:
        if self._idle and self._at >= _KEYS:
            return [], []
        first, self._at = self._at, self._at + limit
        numbers = list(range(first, self._at))
        return numbers, numbers

    def is_finished(self) -> bool:
        return False


class _Numbers(StatelessSourceImpl[int, int, int]):
    def __init__(self, parts: int, *, idle: bool) -> None:
        self._parts, self._idle = parts, idle

    def list_parts(self) -> list[int]:
        return list(range(self._parts))

    def build_part(self, _part: int) -> Any:
        return _Part(idle=self._idle)


class _Ticks:
    """Notes the end of each tick by a clock, its records and its seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seen: list[tuple[float, int, float]] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, TickFinished):
            self.seen.append((self._clock(), event.polled, event.seconds))


def _flow(parts: int, *, idle: bool) -> Any:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatelessSource(_Numbers(parts, idle=idle)))
        keyed = numbers.key_distribute("key", lambda msg: msg.value % _KEYS)
        keyed.stateful_map("sum", lambda _key, value, total: (None, total + value), default=int)

    return build


def measured(runtime: str, seconds: float, *, idle: bool) -> dict[str, float]:
    """Ask a job half of the time; return the latencies and ticks in ms, and the throughput with questions / without."""
    on_spark = runtime == "spark"
    ticks = _Ticks(time.perf_counter if on_spark else time.process_time)  # Spark's processes are elsewhere
    kind: Any = SparkRuntime if on_spark else SingleThreadRuntime
    handle: RunHandle = kind(_flow(2, idle=idle), parallelism=2, listeners=[ticks]).start()
    turns = _TURNS_ON_SPARK if on_spark else _TURNS
    asked: list[float] = []
    rates: dict[bool, list[float]] = {True: [], False: []}
    lengths: list[float] = []
    try:
        while handle.progress.records.get("sum", 0) < _KEYS:
            time.sleep(0.1)
        time.sleep(_WARM_UP)
        for turn in range(turns):
            asks = turn % 4 in (0, 3)
            seen = _seen(handle, ticks, asked if asks else None, seconds / turns)
            lengths += [length for _, _, length in seen]
            rates[asks] += [polled / (end - start) for (start, _, _), (end, polled, _) in pairwise(seen) if end > start]
    finally:
        handle.stop()
        handle.await_termination()
    asked.sort()
    return {
        "tick": 1000 * median(lengths),
        "longest": 1000 * max(lengths),
        "median": 1000 * median(asked),
        "p99": 1000 * asked[int(len(asked) * 0.99)],
        "asked": len(asked),
        "ratio": 0.0 if idle else median(rates[True]) / median(rates[False]),
    }


def _seen(
    handle: RunHandle, ticks: _Ticks, asked: list[float] | None, seconds: float
) -> list[tuple[float, int, float]]:
    """Return the ticks of some seconds, and at least three, while questions are asked."""
    over, began = threading.Event(), len(ticks.seen)
    threads = (
        []
        if asked is None
        else [threading.Thread(target=_ask, args=(handle, asked, over, number)) for number in range(_ASKERS)]
    )
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    while len(ticks.seen) < began + 3:
        time.sleep(0.01)
    seen = ticks.seen[began:]
    over.set()
    for thread in threads:
        thread.join()
    return seen


def _ask(handle: RunHandle, asked: list[float], over: threading.Event, number: int) -> None:
    view, key = handle.state("sum"), number
    over.wait(_PAUSE * number)
    while not over.is_set():
        began = time.perf_counter()
        view.get(key % _KEYS, default=0).result(60)
        asked.append(time.perf_counter() - began)
        key += 7_919
        over.wait(_PAUSE * _ASKERS)

"""Questions to a running job: how long an answer takes, beside a tick, and how much of the throughput they cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from malflow import RunHandle, SingleThreadRuntime, SparkRuntime, StreamProvider
from malflow.events import Event, TickFinished
from malflow.sources import StatelessSource, StatelessSourceImpl

__all__ = ["measured"]

_KEYS = 10_000
_WARM_UP = 3.0
_TURNS = 20
_PAUSE = 0.1
"""Seconds from one question to the next: ten a second."""


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
    """Notes the seconds of ticks."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, TickFinished):
            self.seconds.append(event.seconds)


def _flow(parts: int, *, idle: bool) -> Any:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatelessSource(_Numbers(parts, idle=idle)))
        keyed = numbers.key_distribute("key", lambda msg: msg.value % _KEYS)
        keyed.stateful_map("sum", lambda _key, value, total: (None, total + value), default=int)

    return build


def measured(runtime: str, seconds: float, *, idle: bool) -> dict[str, float]:
    """Ask a job in every other second; return the latencies and ticks in ms, and records a second with and without."""
    ticks = _Ticks()
    build = _flow(2, idle=idle)
    if runtime == "spark":
        handle: RunHandle = SparkRuntime(build, parallelism=2, listeners=[ticks]).start()
    else:
        handle = SingleThreadRuntime(build, parallelism=2, listeners=[ticks]).start()
    try:
        while handle.progress.records.get("sum", 0) < _KEYS:
            time.sleep(0.1)
        time.sleep(_WARM_UP)
        ticks.seconds.clear()
        asked: list[float] = []
        rates: dict[bool, list[float]] = {True: [], False: []}
        clock = time.perf_counter if runtime == "spark" else time.process_time  # Spark's processes are elsewhere
        for turn in range(_TURNS):
            asks = turn % 4 in (0, 3)
            rates[asks].append(_rate(handle, asked if asks else None, seconds / _TURNS, clock))
    finally:
        handle.stop()
        handle.await_termination()
    asked.sort()
    pairs = zip(rates[True], rates[False], strict=True)
    return {
        "tick": 1000 * median(ticks.seconds),
        "longest": 1000 * max(ticks.seconds),
        "median": 1000 * median(asked),
        "p99": 1000 * asked[int(len(asked) * 0.99)],
        "asked": len(asked),
        "quiet": median(rates[False]),
        "with": median(rates[True]),
        "ratio": 0.0 if idle else median(one / two for one, two in pairs),
    }


def _rate(handle: RunHandle, asked: list[float] | None, seconds: float, clock: Callable[[], float]) -> float:
    """Return the records a second of a clock, while questions are asked."""
    records, began = handle.progress.records["numbers"], clock()
    over = threading.Event()
    thread = threading.Thread(target=_ask, args=(handle, asked, over)) if asked is not None else None
    if thread is not None:
        thread.start()
    time.sleep(seconds)
    rate = (handle.progress.records["numbers"] - records) / (clock() - began)
    over.set()
    if thread is not None:
        thread.join()
    return rate


def _ask(handle: RunHandle, asked: list[float], over: threading.Event) -> None:
    view, key = handle.state("sum"), 0
    while not over.wait(_PAUSE):
        began = time.perf_counter()
        view.get(key % _KEYS, default=0).result(60)
        asked.append(time.perf_counter() - began)
        key += 7_919

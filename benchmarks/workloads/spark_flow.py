"""The running sum under malflow on Spark, sums in windows, and a dataflow with next to nothing in it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from processor_time import cpu_seconds

from malflow import DataMessage, StreamProvider, agg, limit_out_of_orderness, rendezvous_select
from malflow.runtime.spark.runtime import SparkHandle, SparkRuntime
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from malflow.windows import tumbling
from workloads.measured import Measured, scattered

__all__ = [
    "FEWEST_TICKS",
    "ColumnNumbers",
    "ColumnNumbersPartition",
    "Forget",
    "Numbers",
    "NumbersPartition",
    "add",
    "from_start_to_start",
    "key_of",
    "measure_column_windows",
    "measure_dataflow",
    "measure_sum",
    "measure_trickle",
    "measure_windows",
    "start_of",
]

FEWEST_TICKS = 5
"""Ticks that a window of nearly empty ones has at least."""


_LOOK_SECONDS = 0.005
_SETTLED_SECONDS = 0.02
_FEW = 4
"""Records a tick where there is little data."""


class Numbers(StatefulSourceImpl[int, int, int, int]):
    """The numbers below `keys`, over and over, from one part for each worker; it never ends."""

    keyed = False

    def __init__(self, keys: int, workers: int) -> None:
        self._keys = keys
        self._workers = workers

    def list_parts(self) -> Iterable[int]:
        """List as many numbers as there are workers, such that each worker gets one."""
        parts: dict[int, int] = {}
        part = 0
        while len(parts) < self._workers:
            parts.setdefault(rendezvous_select(part, range(self._workers)), part)
            part += 1
        return parts.values()

    def build_part(self, part: int, state: int | None) -> NumbersPartition:
        """Go on at a position; parts begin at different places."""
        return NumbersPartition(scattered(self._keys), part * self._keys // 7 if state is None else state)


class NumbersPartition(StatefulSourcePartition[int, int, int]):
    """Slices of a list."""

    def __init__(self, numbers: list[int], position: int) -> None:
        self._numbers = numbers
        self._position = position

    def poll_batch(self, limit: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the next slice; a shorter one where the list restarts."""
        start = self._position % len(self._numbers)
        values = self._numbers[start : start + limit]
        self._position += len(values)
        return values, range(self._position - len(values), self._position)

    def poll(self) -> tuple[int, int] | None:
        """Return one number."""
        values, timestamps = self.poll_batch(1)
        return values[0], timestamps[0]

    def is_finished(self) -> bool:
        """Return False: there are always more numbers."""
        return False

    def snapshot(self) -> int:
        """Return how many numbers were emitted."""
        return self._position


class ColumnNumbers(Numbers):
    """The same numbers as columns: a key, a value that is an integer or a float, and a time in milliseconds."""

    def __init__(self, keys: int, workers: int, *, floats: bool) -> None:
        super().__init__(keys, workers)
        self._floats = floats

    def build_part(self, part: int, state: int | None) -> ColumnNumbersPartition:
        """Go on at a position; parts begin at different places."""
        position = part * self._keys // 7 if state is None else state
        return ColumnNumbersPartition(scattered(self._keys), position, self._workers, floats=self._floats)


class ColumnNumbersPartition(NumbersPartition):
    """Slices of a list, as frames."""

    def __init__(self, numbers: list[int], position: int, workers: int, *, floats: bool) -> None:
        import numpy as np  # noqa: PLC0415 - only columns need it
        import pyarrow as pa  # noqa: PLC0415 - as above

        times = 1 + _REPEATED // len(numbers)  # slices of a short list would be short
        super().__init__(numbers * times, position)
        self._workers = workers
        keys = pa.array(self._numbers, pa.int64())
        self._columns = [keys, keys.cast(pa.float64()) if floats else keys]
        self._made = pa, np

    def poll_batch(self, limit: int) -> tuple[Any, Sequence[int]]:
        """Return the next slice; a shorter one where the list restarts."""
        from malflow.columns import Frame  # noqa: PLC0415 - only columns need it

        pa, np = self._made
        start = self._position % len(self._numbers)
        keys, values = (column.slice(start, limit) for column in self._columns)
        numbers = range(self._position, self._position + len(keys))
        self._position = numbers.stop
        at = pa.array(np.arange(numbers.start, numbers.stop) * self._workers)
        return Frame(pa.record_batch([keys, values, at], names=["key", "value", "at"])), numbers


_REPEATED = 1 << 19
"""The least length of a list of columns: a poll takes up to 65,536."""


class Forget(StatelessSinkImpl[Any, Any, Any]):
    """A sink that costs nothing; on the executors, where there is one for each process."""

    def sink(self, msg: Any) -> None:
        """Do nothing."""

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Do nothing."""

    def sink_columns(self, keys: Any, batch: Any, timestamps: Any) -> None:
        """Do nothing."""


def key_of(msg: DataMessage[Any, int, Any]) -> int:
    return msg.value


def add(key: int, value: int, state: int) -> tuple[int, int]:
    return state + value, state + value


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where a run is at the end of a tick."""

    at: float
    cpu: float
    tick: int
    records: int
    snapshots: int


def measure_sum(
    session: Any, keys: int, workers: int, warm_up: float, seconds: float, *, trigger: float = 0.0
) -> Measured:
    """Run a running sum with a snapshot each second, and measure a window of whole ticks."""
    return measure_dataflow(_running_sum(keys, workers), session, keys, workers, warm_up, seconds, trigger=trigger)


def measure_windows(session: Any, keys: int, workers: int, warm_up: float, seconds: float) -> Measured:
    """Run sums in windows with a snapshot each second, and measure a window of whole ticks."""
    return measure_dataflow(_window_sums(keys, workers), session, keys, workers, warm_up, seconds)


def measure_column_windows(
    session: Any, keys: int, workers: int, warm_up: float, seconds: float, *, floats: bool
) -> Measured:
    """Do the same with columns, of integers or floats."""
    build = _column_window_sums(keys, workers, floats=floats)
    return measure_dataflow(build, session, keys, workers, warm_up, seconds)


def measure_dataflow(
    build: Any, session: Any, keys: int, workers: int, warm_up: float, seconds: float, *, trigger: float = 0.0
) -> Measured:
    """Run a dataflow, and count the records of its operator 'sum'.

    There are as many records as there are keys, at least: so that new bases of snapshots have their share in it.
    """
    with tempfile.TemporaryDirectory() as folder:
        runtime = SparkRuntime(
            build,
            FsspecBackend(folder),
            snapshots=timedelta(seconds=1),
            parallelism=workers,
            spark=session,
            trigger=timedelta(seconds=trigger),
        )
        handle = runtime.start()
        deadline = time.monotonic() + warm_up
        known = workers * keys  # records after which each part has given about every key
        while time.monotonic() < deadline or handle.progress.records.get("sum", 0) < known:
            handle.await_termination(_LOOK_SECONDS)
        first = last = _next_mark(handle)
        while last.at < first.at + seconds or last.records < first.records + keys:
            last = _next_mark(handle)
        handle.stop()
        handle.await_termination()
    records, elapsed, ticks = last.records - first.records, last.at - first.at, last.tick - first.tick
    return Measured(
        records / elapsed, last.cpu - first.cpu, records, ticks, elapsed / ticks, last.snapshots - first.snapshots
    )


def measure_trickle(session: Any, workers: int, warm_up: float, seconds: float) -> list[float]:
    """Run a running sum that gets a few records a tick, and return the seconds from tick to tick."""
    runtime = SparkRuntime(_running_sum(1_000, workers), parallelism=workers, spark=session, max_records_per_tick=_FEW)
    handle = runtime.start()
    first = _wait_for_ticks(handle, 0, warm_up)
    last = _wait_for_ticks(handle, first, seconds)
    query = handle.query
    took = [] if query is None else from_start_to_start(query.recentProgress[first - last :])
    handle.stop()
    handle.await_termination()
    return took


def from_start_to_start(batches: Sequence[Any]) -> list[float]:
    """Return the seconds from the start of each of Spark's batches to that of the next one."""
    return [end - begin for begin, end in pairwise(map(start_of, batches))]


def start_of(batch: Any) -> float:
    """Return when a Spark batch started."""
    return datetime.fromisoformat(batch["timestamp"]).timestamp()


def _running_sum(keys: int, workers: int) -> Any:
    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(Numbers(keys, workers)))
        sums = numbers.key_distribute("key", key_of).stateful_map("sum", add, default=int)
        sums.sink("forget", StatelessSink(Forget()))

    return build_dataflow


def _window_sums(keys: int, workers: int) -> Any:
    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(Numbers(keys, workers)))
        timed = numbers.assign_timestamps("at", lambda msg: workers * msg.timestamp)
        on_time, late = timed.generate_epochs("epochs", limit_out_of_orderness(3_000), every=1_000)
        late.filter("none", lambda _: False)
        sums = on_time.key_distribute("key", key_of).window(tumbling(60_000)).aggregate("sum", agg.sum(of=int))
        sums.sink("forget", StatelessSink(Forget()))

    return build_dataflow


def _column_window_sums(keys: int, workers: int, *, floats: bool) -> Any:
    def build_dataflow(provider: StreamProvider) -> None:
        source = StatefulSource(ColumnNumbers(keys, workers, floats=floats))
        numbers = provider.new_stream().source("numbers", source)
        timed = numbers.event_time("at", "at", out_of_orderness=3_000, every=1_000)
        windows = timed.key_distribute("key", "key").window(tumbling(60_000))
        sums = windows.aggregate("sum", agg.sum("value") if floats else agg.sum("value", of=int))
        sums.sink("forget", StatelessSink(Forget()))

    return build_dataflow


def _wait_for_ticks(handle: SparkHandle, first: int, seconds: float) -> int:
    """Wait so many seconds, and until there were some ticks after the first one; return the last one."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or handle.progress.tick < first + FEWEST_TICKS:
        handle.await_termination(_LOOK_SECONDS)
    return handle.progress.tick


def _next_mark(handle: SparkHandle) -> _Mark:
    """Wait for the end of a tick."""
    tick = handle.progress.tick
    while handle.progress.tick == tick:
        handle.await_termination(_LOOK_SECONDS)
    at, cpu = time.monotonic(), cpu_seconds()
    handle.await_termination(_SETTLED_SECONDS)  # until all that was told of the tick is counted
    progress = handle.progress
    return _Mark(at, cpu, progress.tick, progress.records["sum"], progress.snapshot or 0)

"""The running sum in bytewax on two processes, and in a plain loop on one process or more."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from malflow import DataMessage, NoKey
from workloads.measured import Measured, scattered
from workloads.spark_flow import add, key_of

__all__ = ["bytewax_flow", "measure_bytewax", "measure_loop"]

_PROCESSES = 2
_MARGIN_SECONDS = 1.0
_SLICE = 10_000


# bytewax


class _Slices(StatelessSourcePartition[int]):
    """Slices of a list that is read again and again, for some time."""

    def __init__(self, keys: int, batch: int, seconds: float, first: int) -> None:
        self._numbers = scattered(keys)
        self._batch = batch
        self._position = first * keys // 7
        self._end = time.monotonic() + seconds

    def next_batch(self) -> list[int]:
        if time.monotonic() > self._end:
            raise StopIteration
        start = self._position % len(self._numbers)
        values = self._numbers[start : start + self._batch]
        self._position += len(values)
        return values


class _Source(DynamicSource[int]):
    def __init__(self, keys: int, batch: int, seconds: float) -> None:
        self._how = (keys, batch, seconds)

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Slices:
        del step_id, worker_count
        return _Slices(*self._how, worker_index)


class _Counter(StatelessSinkPartition[Any]):
    """Count what comes in a window of time, which begins some seconds after the first of it."""

    def __init__(self, warm_up: float, seconds: float, path: Path) -> None:
        self._warm_up = warm_up
        self._seconds = seconds
        self._path = path
        self._begin = 0.0
        self._records = 0
        self._cpu: list[float] = []

    def write_batch(self, items: list[Any]) -> None:
        now = time.monotonic()
        self._begin = self._begin or now + self._warm_up
        if now < self._begin:
            return
        if now < self._begin + self._seconds:
            self._records += len(items)
        elif len(self._cpu) > 1:
            return
        self._cpu = [*self._cpu[:1], time.process_time()]

    def close(self) -> None:
        cpu = self._cpu[-1] - self._cpu[0]
        self._path.write_text(json.dumps({"rate": self._records / self._seconds, "cpu": cpu, "records": self._records}))


class _Sink(DynamicSink[Any]):
    def __init__(self, warm_up: float, seconds: float, folder: str) -> None:
        self._how = (warm_up, seconds)
        self._folder = Path(folder)

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Counter:
        del step_id, worker_count
        return _Counter(*self._how, self._folder / f"{worker_index}.json")


def bytewax_flow(keys: int, batch: int, warm_up: float, seconds: float, folder: str) -> Dataflow:
    """Build the running sum; keys are text from a table, since bytewax takes nothing else."""
    names = [f"key-{number}" for number in range(keys)]

    def add_to(state: int | None, value: int) -> tuple[int, int]:
        if state is None:
            state = 0
        return state + value, state + value

    flow = Dataflow("flow")
    numbers = op.input("numbers", flow, _Source(keys, batch, warm_up + seconds + _MARGIN_SECONDS))
    sums = op.stateful_map("sum", op.key_on("key", numbers, names.__getitem__), add_to)
    op.output("count", sums, _Sink(warm_up, seconds, folder))
    return flow


def measure_bytewax(keys: int, batch: int, warm_up: float, seconds: float) -> Measured:
    """Run it on two worker processes, without its recovery."""
    with tempfile.TemporaryDirectory() as folder:
        flow = f"workloads.process_peers:bytewax_flow({keys}, {batch}, {warm_up}, {seconds}, '{folder}')"
        command = [sys.executable, "-m", "bytewax.testing", "-p", str(_PROCESSES), flow]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        return _summed([json.loads(path.read_text()) for path in Path(folder).glob("*.json")])


# A plain loop


def measure_loop(keys: int, processes: int, warm_up: float, seconds: float) -> Measured:
    """Run it in each of so many processes at once, each with its share of the keys."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        how = [(keys // processes, warm_up, seconds)] * processes
        return _summed(pool.starmap(_loop, how, chunksize=1))


def _loop(keys: int, warm_up: float, seconds: float) -> dict[str, Any]:
    numbers, states = scattered(keys), defaultdict(int)
    slices = [numbers[start : start + _SLICE] for start in range(0, len(numbers), _SLICE)]
    _loop_for(warm_up, slices, states)
    begin, cpu = time.monotonic(), time.process_time()
    records = _loop_for(seconds, slices, states)
    elapsed = time.monotonic() - begin
    return {"rate": records / elapsed, "cpu": time.process_time() - cpu, "records": records}


def _loop_for(seconds: float, slices: Sequence[Sequence[int]], states: dict[int, int]) -> int:
    """Loop over the records for some seconds; return how many there were."""
    deadline, records = time.monotonic() + seconds, 0
    while True:
        for values in slices:
            _loop_over(values, states)
            records += len(values)
            if time.monotonic() >= deadline:
                return records


def _loop_over(values: Sequence[int], states: dict[int, int]) -> None:
    for timestamp, value in enumerate(values):
        key = key_of(DataMessage(NoKey, value, timestamp))
        _, states[key] = add(key, value, states[key])


def _summed(parts: Sequence[dict[str, Any]]) -> Measured:
    rate, cpu, records = (sum(part[name] for part in parts) for name in ("rate", "cpu", "records"))
    return Measured(rate, cpu, records)

"""Parquet into sums, beside a plain loop over the columns that pyarrow makes lists of."""

from __future__ import annotations

import gc
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tables import print_table

from malflow import DataMessage, NoKey, SingleThreadRuntime, agg, limit_out_of_orderness
from malflow.connectors.parquet import ParquetSource
from malflow.runtime.process_state import rarer_collections
from malflow.sinks import StatelessSinkImpl
from malflow.windows import tumbling

_KEYS = 1_000
_BATCH = 8_192

__all__ = ["measure"]


class Last(StatelessSinkImpl[Any, Any, Any]):
    """Keeps the last value of each key."""

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}

    def sink(self, msg: Any) -> None:
        """Keep one value."""
        self.values[msg.key] = msg.value

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Keep the last values of a batch."""
        self.values.update(zip(keys, values, strict=True))


class Counted(StatelessSinkImpl[Any, Any, Any]):
    """Counts records."""

    def __init__(self) -> None:
        self.count = 0

    def sink(self, msg: Any) -> None:
        """Count one record."""
        self.count += 1

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Count the records of a batch."""
        self.count += len(values)


def measure(records: int, rounds: int) -> None:
    """Run each peer once a round, and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = _written(Path(folder), records)
        rows = _measure(_peers(path), records, rounds)
    print("Parquet to sums of 1,000 keys, CPU ns a row, medians; 'of the loop': rows a second, against the loop's\n")
    print_table(("peer", "ns a row", "of the loop"), rows)


def _written(folder: Path, records: int) -> Path:
    numbers = range(records)
    table = pa.table({"town": [f"town-{n * 7919 % _KEYS}" for n in numbers], "people": list(numbers)})
    pq.write_table(table, folder / "towns.parquet", row_group_size=100_000)
    return folder / "towns.parquet"


def _peers(path: Path) -> Mapping[str, Callable[[], Mapping[str, int]]]:
    return {
        "loop over to_pylist of columns": lambda: _loop(path),
        "loop over to_pylist of batches (dicts)": lambda: _loop_of_dicts(path),
        "loop that calls malflow's functions": lambda: _loop_of_functions(path, _town, _people),
        "batches by hand, tuples and functions": lambda: _by_hand_of_tuples(path, _town, _people),
        "batches by hand, dicts and fields": lambda: _by_hand_of_dicts(path),
        "malflow, the source alone": lambda: _read(path),
        "malflow, row=tuple": lambda: _malflow(path, tuple, _town, _people),
        "malflow, row=dict": lambda: _malflow(path, dict, lambda msg: msg.value["town"], lambda row: row["people"]),
        "malflow, row=dict, names of fields": lambda: _malflow(path, dict, "town", "people"),
        "malflow, names, one sum a key": lambda: _in_a_window(path),
    }


def _batches(path: Path) -> Any:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        yield from file.iter_batches(_BATCH, use_threads=False)


def _loop(path: Path) -> Mapping[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for batch in _batches(path):
        for town, people in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            sums[town] += people
    return sums


def _loop_of_dicts(path: Path) -> Mapping[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for batch in _batches(path):
        for row in batch.to_pylist():
            sums[row["town"]] += row["people"]
    return sums


def _town(msg: DataMessage[Any, Any, Any]) -> str:
    town: str = msg.value[0]
    return town


def _people(value: tuple[str, int]) -> int:
    return value[1]


def _loop_of_functions(path: Path, key: Callable[[Any], str], field: Callable[[Any], int]) -> Mapping[str, int]:
    sums: dict[str, int] = defaultdict(int)
    view: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)
    for batch in _batches(path):
        for view.value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            sums[key(view)] += field(view.value)
    return sums


def _by_hand_of_tuples(path: Path, key: Callable[[Any], str], field: Callable[[Any], int]) -> Mapping[str, int]:
    sums: dict[str, int] = defaultdict(int)
    last: dict[str, int] = {}
    view: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)
    with rarer_collections():
        for batch in _batches(path):
            rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            keys = [key(view) for view.value in rows]
            results = [
                total
                for town, row in zip(keys, rows, strict=True)
                for total in (sums[town] + field(row),)
                for sums[town] in (total,)
            ]
            last.update(zip(keys, results, strict=True))
    return last


def _by_hand_of_dicts(path: Path) -> Mapping[str, int]:
    sums: dict[str, int] = defaultdict(int)
    last: dict[str, int] = {}
    with rarer_collections():
        for batch in _batches(path):
            columns = [column.to_pylist() for column in batch.columns]
            rows = [{"town": town, "people": people} for town, people in zip(*columns, strict=True)]
            keys = [row["town"] for row in rows]
            results = [
                total
                for town, row in zip(keys, rows, strict=True)
                for total in (sums[town] + row["people"],)
                for sums[town] in (total,)
            ]
            last.update(zip(keys, results, strict=True))
    return last


def _malflow(path: Path, row: Any, key: Any, field: Any) -> Mapping[str, int]:
    last = Last()
    SingleThreadRuntime(
        lambda provider: (
            provider.new_stream()
            .source("towns", ParquetSource(path, row=row))
            .key_distribute("town", key)
            .aggregate("people", agg.sum(field))
            .sink("sums", last)
        )
    ).execute()
    return last.values


def _in_a_window(path: Path) -> Mapping[str, int]:
    """Sum by a window in which all rows are, whose results come at the end of the file."""
    last = Last()
    SingleThreadRuntime(
        lambda provider: (
            provider.new_stream()
            .source("towns", ParquetSource(path))
            .generate_epochs("epochs", limit_out_of_orderness(0), every=1 << 40)
            .on_time.key_distribute("town", "town")
            .window(tumbling(1 << 40))
            .aggregate("people", agg.sum("people"))
            .sink("sums", last)
        )
    ).execute()
    return {town: result.value for town, result in last.values.items()}


def _read(path: Path) -> Mapping[str, int]:
    counted = Counted()
    SingleThreadRuntime(
        lambda provider: provider.new_stream().source("towns", ParquetSource(path, row=tuple)).sink("none", counted)
    ).execute()
    return {"all": _sum(counted.count)}


def _measure(
    peers: Mapping[str, Callable[[], Mapping[str, int]]], records: int, rounds: int
) -> Sequence[Sequence[str]]:
    """Run each peer once a round, and make the rows of the table."""
    times: dict[str, list[float]] = {name: [] for name in peers}
    expected = _sum(records)
    for _ in range(rounds):
        for name, run in peers.items():
            gc.collect()
            start = time.process_time()
            sums = run()
            times[name].append((time.process_time() - start) / records * 1e9)
            if sum(sums.values()) != expected:
                raise AssertionError(f"{name}: the sums are wrong")
    loops = times["loop over to_pylist of columns"]
    return [
        (name, f"{median(taken):,.0f}", f"{median(map(_ratio, loops, taken)):.2f}") for name, taken in times.items()
    ]


def _sum(records: int) -> int:
    return records * (records - 1) // 2


def _ratio(loop: float, taken: float) -> float:
    return loop / taken

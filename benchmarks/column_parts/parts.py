"""Windows of exact aggregates over four parts in memory, on one thread or in two processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from column_parts.child import BOUND, PARTS, SIZE, STEP
from column_parts.dataflows import Count
from malflow import MultiProcessRuntime, SingleThreadRuntime, agg, limit_out_of_orderness, rendezvous_select
from malflow.columns import Column, Frame
from malflow.sinks import StatelessSink
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from malflow.windows import tumbling


def program(name: str, folder: str, records: int) -> Callable[[], object]:
    """Return a function that runs the program in one process or, if it is ``sent``, in two."""
    build = partial(_build, folder=folder, records=records)
    if name == "sent":
        return MultiProcessRuntime(build, processes=2).execute
    return SingleThreadRuntime(build).execute


def _build(provider: Any, folder: str, records: int) -> None:
    trades = provider.new_stream().source("trades", StatefulSource(_Memory(folder, records // PARTS)))
    timed = trades.generate_epochs("times", limit_out_of_orderness(BOUND), every=STEP).on_time
    four = agg.count(), agg.sum("qty", of=int), agg.min("price"), agg.max("price")
    bars = timed.key_distribute("symbol", "symbol").window(tumbling(SIZE)).aggregate("bars", *four)
    bars.to_columns("rows", key="symbol").sink("out", StatelessSink(Count()))


class _Memory(StatefulSourceImpl[int, Any, Any, int]):
    """Rows of a file for each part, again and again at later times."""

    def __init__(self, folder: str, records: int) -> None:
        self.folder, self.records = folder, records

    def list_parts(self) -> list[int]:
        """Return parts that belong to two workers in turn."""
        found: list[int] = []
        for part in range(100):
            if len(found) < PARTS and rendezvous_select(part, range(2)) == len(found) % 2:
                found.append(part)
        return found

    def build_part(self, part: int, state: int | None) -> _Reader:
        """Return a reader from a position on."""
        path = f"{self.folder}/{self.list_parts().index(part)}.parquet"
        rows = pq.read_table(path, read_dictionary=["symbol"]).unify_dictionaries().combine_chunks()
        return _Reader(rows.to_batches()[0], self.records, state or 0)


class _Reader(StatefulSourcePartition[Any, Any, int]):
    def __init__(self, rows: pa.RecordBatch, records: int, position: int) -> None:
        self._rows, self._records, self._position = rows, records, position
        self._stamps = rows.column("ts").to_numpy()
        self._span = int(self._stamps.max()) + BOUND

    def poll(self) -> Any:
        """Never called, since there is `poll_batch`."""
        raise NotImplementedError

    def poll_batch(self, limit: int) -> tuple[Any, Any]:
        """Return the next rows, eight times as many as objects would be."""
        turn, at = divmod(self._position, len(self._rows))
        count = min(8 * limit, len(self._rows) - at, self._records - self._position)
        self._position += count
        return Frame(self._rows.slice(at, count)), Column(self._stamps[at : at + count] + turn * self._span)

    def is_finished(self) -> bool:
        """Whether all records were read."""
        return self._position == self._records

    def snapshot(self) -> int:
        """Return the number of records."""
        return self._position

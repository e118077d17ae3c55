"""Read Parquet files as columns, and write totals exactly once, despite a crash in the middle.

Needs `pip install 'malflow[parquet]'`. The first run fails on purpose; the second continues from its last snapshot.
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.parquet import ParquetSink, ParquetSource
from malflow.errors import OperatorError
from malflow.snapshot import FsspecBackend

import pyarrow as pa
import pyarrow.parquet as pq

TOWNS = ("Ulm", "Bonn", "Jena")
ORDERS = 30_000


def write_orders(folder: Path) -> None:
    folder.mkdir()
    for month in range(3):
        numbers = range(month, ORDERS, 3)
        table = pa.table({"town": [TOWNS[n % 7 % 3] for n in numbers], "cents": [n % 1000 for n in numbers]})
        pq.write_table(table, folder / f"orders-{month}.parquet", row_group_size=1_000)


def main(directory: Path | None = None) -> None:
    folder = directory or Path(tempfile.mkdtemp(prefix="parquet-totals-"))
    write_orders(folder / "in")
    left = [ORDERS // 2]

    def fail_once(order: tuple[str, int]) -> tuple[str, int]:
        left[0] -= 1
        if left[0] == 0:
            raise RuntimeError("the machine breaks down")
        return order

    def add(town: str, order: tuple[str, int], total: int) -> tuple[dict[str, Any], int]:
        total += order[1]
        return {"town": town, "cents": order[1], "total": total}, total

    def build_dataflow(provider: StreamProvider) -> None:
        orders = provider.new_stream().source("orders", ParquetSource(folder / "in" / "*.parquet", row=tuple))
        by_town = orders.map("fail", fail_once).key_distribute("town", lambda msg: msg.value[0])
        by_town.stateful_map("total", add, default=int).sink("totals", ParquetSink(folder / "out"))

    jobs = FsspecBackend(str(folder / "job"))
    for _ in range(2):
        try:
            SingleThreadRuntime(build_dataflow, jobs, timedelta(milliseconds=10)).execute()
        except OperatorError as error:
            print(f"failed: {error.__cause__}")

    totals = pq.read_table(folder / "out").to_pylist()
    print(f"{len(totals)} orders")
    for town in TOWNS:
        rows = [row for row in totals if row["town"] == town]
        print(f"{town}: {sum(row['cents'] for row in rows)} = {max(row['total'] for row in rows)}")


if __name__ == "__main__":
    main()

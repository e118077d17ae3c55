"""Sales by day of a rollup, read from a snapshot, and totals as a Parquet file: the run itself sends nothing.

Needs `pip install 'malflow[parquet]'`. Closed days are kept in the state; the day that is open has its orders so far.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from malflow import SingleThreadRuntime, StreamProvider, agg
from malflow.reading import export_state, read_windows
from malflow.snapshot import FsspecBackend, read_state
from malflow.sources import SingleIteratorSource

import pyarrow.parquet as pq


class Order(NamedTuple):
    """An order of a shop."""

    shop: str
    time: datetime
    amount: int


START = datetime(2026, 3, 28, tzinfo=UTC)

ORDERS = [Order(("books", "tea")[number % 3 == 0], START + timedelta(hours=5 * number), number) for number in range(12)]


def build_dataflow(provider: StreamProvider) -> None:
    timed = (
        provider.new_stream()
        .source("orders", SingleIteratorSource(ORDERS))
        .event_time("time", "time", out_of_orderness=timedelta(minutes=1))
    )
    by_shop = timed.key_distribute("shop", "shop")
    by_shop.rollup("sales", ["hour", "day"], agg.sum("amount"), keep={"day": timedelta(days=30)})
    by_shop.stateful_map("total", lambda _shop, order, total: (None, total + order.amount), default=int)


def total(shop: str, amount: int) -> dict[str, Any]:
    """Return the row of a shop."""
    return {"shop": shop, "total": amount}


def main() -> None:
    with TemporaryDirectory() as folder:
        backend = FsspecBackend(f"{folder}/state", job="sales")
        SingleThreadRuntime(build_dataflow, backend, parallelism=2, at_end="keep").execute()

        for shop, sales in sorted(read_windows(build_dataflow, backend, "sales", unit="day")):
            print(f"{shop}, {sales.start:%d %B}: {sales.value} {sales.timing.name}")
        print("tea in all:", read_state(backend, "total", key="tea"))

        path = Path(folder, "totals.parquet")
        export_state(backend, "total", path, row=total)
        print(sorted(pq.read_table(path).to_pylist(), key=lambda row: row["shop"]))


if __name__ == "__main__":
    main()

"""Sales by day of a rollup, asked from the running job and read from its snapshot: the run itself sends nothing.

Needs `pip install 'malflow[parquet]'`, for the totals as a Parquet file. Closed days are kept in the state; the day
that is open has its orders so far.
"""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from malflow import SingleThreadRuntime, StreamProvider, agg
from malflow.reading import export_state, read_windows
from malflow.snapshot import FsspecBackend, read_state
from malflow.testing import PAUSE, ScriptedSource

import pyarrow.parquet as pq


class Order(NamedTuple):
    """An order of a shop."""

    shop: str
    time: datetime
    amount: int


START = datetime(2026, 3, 28, tzinfo=UTC)

ORDERS = [Order(("books", "tea")[number % 3 == 0], START + timedelta(hours=5 * number), number) for number in range(12)]


def sales_by_shop(provider: StreamProvider) -> None:
    timed = (
        provider.new_stream()
        .source("orders", ScriptedSource([*ORDERS, *[PAUSE] * 100_000]))
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
        job = SingleThreadRuntime(sales_by_shop, backend, parallelism=2).start()
        try:
            while job.progress.records.get("sales", 0) < len(ORDERS):
                time.sleep(0.01)
            sales = job.windows("sales")
            live = [(shop, day) for shop in ("books", "tea") for day in sales.get(shop, unit="day").result(timeout=10)]
        finally:
            job.stop()
            job.await_termination()

        for shop, day in live:
            print(f"{shop}, {day.start:%d %B}: {day.value} {day.timing.name}")
        stored = sorted(read_windows(sales_by_shop, backend, "sales", unit="day"))
        print("the same in the snapshot:", stored == live)
        print("tea in all:", read_state(backend, "total", key="tea"))

        path = Path(folder, "totals.parquet")
        export_state(backend, "total", path, row=total)
        print(sorted(pq.read_table(path).to_pylist(), key=lambda row: row["shop"]))


if __name__ == "__main__":
    main()

"""Bars of trades, from Parquet to Parquet, without making a Python object of a trade.

Needs `pip install 'malflow[parquet]'`. Whatever is named by a field stays a column: the price, the time, the symbol.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from malflow import SingleThreadRuntime, StreamProvider, agg
from malflow.connectors.parquet import ParquetSink, ParquetSource
from malflow.snapshot import FsspecBackend
from malflow.windows import tumbling

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SECOND = timedelta(seconds=1)
SYMBOLS = ("ADA", "BABBAGE", "CANTOR")
START = datetime(2026, 1, 5, 9, tzinfo=UTC)


@dataclass
class Bar:
    """Trades of one symbol in one minute."""

    trades: int
    low: float
    high: float
    value: float


def write_trades(path: Path) -> None:
    numbers = range(30_000)
    trades = {
        "symbol": [SYMBOLS[n * n % 7 % 3] for n in numbers],
        "at": pa.array([START + timedelta(milliseconds=10 * n) for n in numbers], pa.timestamp("us", "UTC")),
        "price": [100 + n % 50 / 10 for n in numbers],
        "count": [1 + n % 9 for n in numbers],
    }
    pq.write_table(pa.table(trades), path)


def is_large(batch: pa.RecordBatch) -> pa.Array:
    return pc.greater(batch["count"], 2)


def with_value(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("value", pc.multiply(batch["price"], batch["count"]))


def main(directory: Path | None = None) -> None:
    folder = directory or Path(tempfile.mkdtemp(prefix="column-bars-"))
    write_trades(folder / "trades.parquet")

    def build_dataflow(provider: StreamProvider) -> None:
        trades = provider.new_stream().source("trades", ParquetSource(folder / "trades.parquet"))
        valued = trades.filter_batches("large", is_large).map_batches("value", with_value)
        timed = valued.event_time("time", "at", out_of_orderness="5s", every=SECOND)
        windows = timed.key_distribute("symbol", "symbol").window(tumbling(timedelta(minutes=1)))
        bar = agg.into(Bar, trades=agg.count(), low=agg.min("price"), high=agg.max("price"), value=agg.sum("value"))
        bars = windows.aggregate("bars", bar)
        bars.to_columns("rows", key="symbol").sink("lake", ParquetSink(folder / "bars"))

    runtime = SingleThreadRuntime(build_dataflow, FsspecBackend(str(folder / "job")), at_end="finish")
    runtime.execute()

    bars = pq.read_table(folder / "bars").sort_by([("start", "ascending"), ("symbol", "ascending")]).to_pylist()
    for bar in bars[:3]:
        print(f"{bar['start']:%H:%M} {bar['symbol']:8} {bar['trades']:5} {bar['low']} {bar['high']} {bar['value']:.0f}")
    print(f"{len(bars)} bars, {sum(runtime.progress.rows_made.values())} rows made")


if __name__ == "__main__":
    main()

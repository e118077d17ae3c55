"""The programs as dataflows of malflow: by columns, by fields of dicts, and by functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from column_parts.child import BOUND, SIZE, STEP
from malflow import SingleThreadRuntime, agg
from malflow.connectors.parquet import ArrowSource, ParquetSource
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.windows import tumbling


class Count(StatelessSinkImpl[Any, Any, Any]):
    """Counts records, without reading them."""

    def __init__(self) -> None:
        self.records = 0

    def sink(self, message: Any) -> None:
        """Count a record."""
        self.records += 1

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Count records."""
        del keys, timestamps
        self.records += len(values)

    def sink_columns(self, keys: Any, batch: Any, timestamps: Any) -> None:
        """Count records."""
        del keys, timestamps
        self.records += batch.num_rows


def program(name: str, peer: str, path: str, table: Any) -> Callable[[], object] | None:
    """Return a function that runs a program; None if there is no such one."""
    source = ParquetSource(path) if table is None else ArrowSource(table)
    by_functions = peer == "functions"

    def build(provider: Any) -> None:
        trades = provider.new_stream().source("trades", source)
        if name == "derive":
            trades = _derived(trades, by_functions=by_functions)
        elif name != "read":
            trades = _aggregated(name, trades, by_functions=by_functions)
            if peer == "columns":
                trades = trades.to_columns("rows", key="symbol")
        trades.sink("out", StatelessSink(Count()))

    if name == "derive" and peer == "fields":
        return None
    return SingleThreadRuntime(build).execute


def _derived(trades: Any, *, by_functions: bool) -> Any:
    if by_functions:
        dear = trades.filter("dear", lambda row: row["price"] > 10)  # noqa: PLR2004 - of the program
        return dear.map("value", lambda row: {**row, "value": row["price"] * row["qty"]})
    import pyarrow.compute as pc  # noqa: PLC0415 - of this peer

    dear = trades.filter_batches("dear", lambda batch: pc.greater(batch["price"], 10))
    return dear.map_batches(
        "value", lambda batch: batch.append_column("value", pc.multiply(batch["price"], batch["qty"]))
    )


def _aggregated(name: str, trades: Any, *, by_functions: bool) -> Any:
    if by_functions:
        read: Any = {it: (lambda row, it=it: row[it]) for it in ("qty", "price")}
        times, keys = (lambda msg: msg.value["ts"]), (lambda msg: msg.value["symbol"])
    else:
        read, times, keys = {"qty": "qty", "price": "price"}, "ts", "symbol"
    if name.startswith("running"):
        total = agg.sum(read["price"]) if name == "runningf" else agg.sum(read["qty"], of=int)
        return trades.key_distribute("symbol", keys).aggregate("sums", total)
    timed = trades.event_time("times", times, out_of_orderness=BOUND, every=STEP)
    four = agg.count(), agg.sum(read["qty"], of=int), agg.min(read["price"]), agg.max(read["price"])
    return timed.key_distribute("symbol", keys).window(tumbling(SIZE)).aggregate("bars", *four)

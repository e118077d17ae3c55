"""The programs in polars, DuckDB and a plain loop. The first two see the whole input at once, and keep no state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from column_parts.child import SIZE


def program(name: str, peer: str, path: str, table: Any) -> Callable[[], object] | None:
    """Return a function that runs a program; None if the peer has no such one."""
    made: Any = {"polars": _polars, "duckdb": _duckdb, "loop": _loop}[peer]
    run: Callable[[], object] | None = made(name, path, table)
    return run


def _polars(name: str, path: str, table: Any) -> Callable[[], object] | None:
    import polars as pl  # noqa: PLC0415 - a peer

    frame: Any = pl.scan_parquet(path) if table is None else pl.from_arrow(table).lazy()  # type: ignore[union-attr]
    if name == "read":
        plan = frame
    elif name == "derive":
        plan = frame.filter(pl.col("price") > 10).with_columns(value=pl.col("price") * pl.col("qty"))  # noqa: PLR2004
    elif name.startswith("running"):
        field = "price" if name == "runningf" else "qty"
        return lambda: frame.with_columns(total=pl.col(field).cum_sum().over("symbol")).collect()
    else:
        four = pl.len(), pl.col("qty").sum(), pl.col("price").min().alias("low"), pl.col("price").max().alias("high")
        plan = frame.group_by("symbol", pl.col("ts") // SIZE).agg(*four)
    return lambda: plan.collect(engine="streaming")


def _duckdb(name: str, path: str, table: Any) -> Callable[[], object] | None:
    import duckdb  # noqa: PLC0415 - a peer

    connection = duckdb.connect(config={"threads": 1})
    if table is not None:
        connection.register("trades", table)
    field = "price" if name == "runningf" else "qty"
    relation = connection.read_parquet(path) if table is None else connection.table("trades")
    if name == "derive":
        relation = relation.filter("price > 10").project("*, price * qty AS value")
    elif name.startswith("running"):
        relation = relation.project(f"sum({field}) OVER (PARTITION BY symbol ROWS UNBOUNDED PRECEDING)")
    elif name != "read":
        four = f"symbol, ts // {SIZE} AS pane, count(*), sum(qty), min(price), max(price)"
        relation = relation.aggregate(four, "symbol, pane")
    return relation.to_arrow_table


def _loop(name: str, path: str, table: Any) -> Callable[[], object] | None:
    if table is None or name == "derive":
        return None
    field = "price" if name == "runningf" else "qty"

    def running() -> None:
        sums: dict[str, Any] = {}
        for batch in table.to_batches(max_chunksize=65_536):
            symbols, numbers = batch["symbol"].to_pylist(), batch[field].to_pylist()
            totals = []
            for symbol, number in zip(symbols, numbers, strict=True):
                sums[symbol] = total = sums.get(symbol, 0) + number
                totals.append(total)

    def windows() -> None:
        held: dict[tuple[int, str], list[Any]] = {}
        for batch in table.to_batches(max_chunksize=65_536):
            columns = (batch[it].to_pylist() for it in ("symbol", "ts", "qty", "price"))
            for symbol, stamp, qty, price in zip(*columns, strict=True):
                place = stamp // SIZE, symbol
                acc = held.get(place)
                if acc is None:
                    held[place] = [1, qty, price, price]
                    continue
                acc[0] += 1
                acc[1] += qty
                acc[2] = min(acc[2], price)
                acc[3] = max(acc[3], price)

    return running if name.startswith("running") else windows

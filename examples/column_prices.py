"""Orders with the price of their product, by a join of polars in the middle of a dataflow.

Needs `pip install 'malflow[columns]' polars`. The function gets a data frame of each batch, and returns as many rows; a
left join that keeps the order does. Orders of an unknown product become dead letters, one by one.
"""

from __future__ import annotations

from malflow import SingleThreadRuntime, StreamProvider, agg
from malflow.connectors.parquet import ArrowSource
from malflow.sinks import StdOutSink

import polars as pl
import pyarrow as pa

PRICES = pl.DataFrame({"product": ["tea", "coffee"], "cents": [320, 450]})

ORDERS = pa.table(
    {
        "town": ["Ulm", "Bonn", "Ulm", "Kiel", "Bonn"],
        "product": ["tea", "coffee", "tee", "tea", "tea"],
        "count": [2, 1, 7, 1, 3],
    }
)


def priced(orders: pl.DataFrame) -> pl.DataFrame:
    found = orders.join(PRICES, on="product", how="left", maintain_order="left")
    if found["cents"].null_count():
        raise LookupError("there is a product without a price")
    return found.with_columns(total=pl.col("cents") * pl.col("count"))


def main() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        orders = provider.new_stream().source("orders", ArrowSource(ORDERS))
        valued = orders.map_batches("price", priced, frame=pl.DataFrame, on_error="dead_letter")
        valued.key_distribute("town", "town").aggregate("total", agg.sum("total")).sink("totals", StdOutSink())
        provider.on_dead_letters(
            lambda letters: letters.map("unknown", lambda it: it.value["product"]).sink("letters", StdOutSink())
        )

    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()

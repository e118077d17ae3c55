"""PySpark as a peer: what of Nexmark its SQL can say over a stream, on one core.

python -m nexmark_parts.spark_queries FOLDER QUERY ROUNDS   # from the folder of the benchmarks; prints JSON

Each round reads the events from Parquet files, once, in one batch, and writes the rows nowhere. The first round is not
measured, as Java compiles in it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from processor_time import cpu_seconds
from pyspark.sql import SparkSession

__all__ = ["QUERIES", "write_events"]

QUERIES = {
    "events alone": "SELECT kind FROM events WHERE kind < 0",
    "q0": "SELECT auction, bidder, price, ts, extra FROM bids",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, ts, extra FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0",
    "q5": """
        SELECT c.auction, c.num FROM counts c JOIN (SELECT MAX(num) AS most, window FROM counts GROUP BY window) m
        ON c.window = m.window AND c.num >= m.most""",
    "q7": """
        SELECT b.auction, b.price, b.bidder, b.ts, b.extra FROM bids b
        JOIN (SELECT price, window_time(window) AS last FROM
          (SELECT MAX(price) AS price, window(ts, '10 seconds') AS window FROM bids
           GROUP BY window(ts, '10 seconds'))) h
        ON b.price = h.price
          AND b.ts BETWEEN h.last - INTERVAL '10' SECOND AND h.last + INTERVAL '0.000001' SECOND""",
    "q8": """
        SELECT p.id, p.name, p.window.start FROM
          (SELECT id, name, window(ts, '10 seconds') AS window FROM persons
           GROUP BY id, name, window(ts, '10 seconds')) p
          JOIN (SELECT seller, window(ts, '10 seconds') AS window FROM auctions
           GROUP BY seller, window(ts, '10 seconds')) a
          ON p.id = a.seller AND p.window = a.window""",
    "q11": """
        SELECT bidder, COUNT(*) AS num, session_window.start, session_window.end
        FROM bids GROUP BY bidder, session_window(ts, '10 seconds')""",
}
"""The queries in the words of Spark, by name. The last instant of a window is a microsecond before its end."""

_VIEWS = {
    "persons": "SELECT person.id, person.name, ts FROM events WHERE kind = 0",
    "auctions": "SELECT auction.seller, ts FROM events WHERE kind = 1",
    "bids": "SELECT bid.auction, bid.bidder, bid.price, bid.extra, ts FROM events WHERE kind = 2",
    "counts": """
        SELECT auction, COUNT(*) AS num, window(ts, '10 seconds', '2 seconds') AS window FROM bids
        GROUP BY auction, window(ts, '10 seconds', '2 seconds')""",
}
_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


_COLUMNS = {
    "person": "id name email card city state ts extra",
    "auction": "id item description first_bid reserve ts expires seller category extra",
    "bid": "auction bidder price channel url ts extra",
}


def write_events(made: Sequence[Any], laps: int, span: int, folder: Path) -> None:
    """Write events to Parquet files, one for each lap; in each they are later by a span of milliseconds."""
    columns: dict[str, Any] = {"kind": [it[0] for it in made]}
    for place, (name, text) in enumerate(_COLUMNS.items(), 1):
        columns[name] = [it[place] and dict(zip(text.split(), it[place], strict=True)) for it in made]
    places = [text.split().index("ts") for text in _COLUMNS.values()]
    times = [it[it[0] + 1][places[it[0]]] for it in made]
    for lap in range(laps):
        own = pa.array([it + lap * span for it in times], pa.timestamp("ms", "UTC"))
        pq.write_table(pa.table({**columns, "ts": own}), folder / f"{lap:04}.parquet")


def main() -> None:
    folder, name, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    builder: Any = SparkSession.builder.master("local[1]").appName("nexmark")
    for key, value in _CONF.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    schema = spark.read.parquet(str(folder)).schema
    stream = spark.readStream.schema(schema).parquet(str(folder))
    stream.withWatermark("ts", "4 seconds").createOrReplaceTempView("events")
    for view, text in _VIEWS.items():
        spark.sql(text).createOrReplaceTempView(view)
    seconds = []
    for _ in range(rounds + 1):
        start = cpu_seconds()
        writer = spark.sql(QUERIES[name]).writeStream.format("noop").outputMode("append")
        writer.trigger(availableNow=True).start().awaitTermination()
        seconds.append(cpu_seconds() - start)
    print(json.dumps(seconds[1:]))


if __name__ == "__main__":
    main()

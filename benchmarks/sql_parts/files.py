"""A file of SQL from files to a file, and the same in Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sql_parts.jobs import bids

from malflow import SingleThreadRuntime, agg
from malflow.connectors.parquet import ParquetSource
from malflow.sinks import JsonLinesSink
from malflow.sources import JsonLinesSource
from malflow.sql.api import sql_flow
from malflow.windows import tumbling

__all__ = ["files"]

_TEXT = """
CREATE TABLE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts {time} {watermark})
  WITH ('url' = '{folder}/bids.{kind}');
CREATE TABLE made ({columns}) WITH ('url' = '{folder}/{name}.jsonl');
INSERT INTO made {query};
"""
_CHAIN = """SELECT auction, price * 2, channel FROM bids
  WHERE price > 5000000 AND channel <> 'channel-3' AND bidder > 30000"""
_WINDOWS = """SELECT auction, COUNT(*), SUM(price) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end, auction"""
_FLOOR, _LEAST = 5_000_000, 30_000


def files(folder: Path, count: int) -> dict[str, dict[str, Callable[[], object]]]:
    """Write bids, and return the jobs: each by SQL and by hand returns the lines that it has written."""
    rows = bids(count, nulls=False)
    (folder / "bids.jsonl").write_text("".join(f"{json.dumps(it)}\n" for it in rows))
    pq.write_table(pa.Table.from_pylist(rows), folder / "bids.parquet")
    parts = {"folder": folder, "time": "TIMESTAMP(3)", "watermark": ", WATERMARK FOR ts AS ts - INTERVAL '3' SECOND"}
    made = {}
    for kind, source in (("jsonl", JsonLinesSource), ("parquet", ParquetSource)):
        opened = partial(source, str(folder / f"bids.{kind}"))
        for name, query, columns, by_hand in (
            ("chain", _CHAIN, "auction BIGINT, price BIGINT, channel STRING", _chain),
            ("windows", _WINDOWS, "auction BIGINT, n BIGINT, total BIGINT", _windows),
        ):
            own = {"watermark": "", "time": "BIGINT"} if name == "chain" else {}
            if kind == "parquet" and name == "windows":
                continue  # its times are numbers, and a door takes these as they are: as in JSON
            stem = f"{kind}_{name}"
            text = _TEXT.format(**{**parts, **own}, kind=kind, columns=columns, name=stem, query=query)
            (folder / f"{stem}.sql").write_text(text)
            made[f"{name}, from {kind}"] = {
                "SQL": partial(_by_sql, folder, stem),
                "by hand": partial(_by_hand, folder, stem, opened, by_hand),
            }
    return made


def _by_sql(folder: Path, stem: str) -> object:
    SingleThreadRuntime(sql_flow(folder / f"{stem}.sql"), at_end="finish").execute()
    return _lines(folder / f"{stem}.jsonl")


def _by_hand(folder: Path, stem: str, source: Callable[[], Any], job: Callable[[Any], Any]) -> object:
    out = folder / f"{stem}_by_hand.jsonl"

    def build(provider: Any) -> None:
        job(provider.new_stream().source("bids", source())).sink("made", JsonLinesSink(str(out)))

    SingleThreadRuntime(build, at_end="finish").execute()
    return _lines(out)


def _lines(path: Path) -> int:
    found = path.read_text().count("\n")
    path.unlink()
    return found


def _chain(bids_: Any) -> Any:
    dear = bids_.filter(
        "dear", lambda it: it["price"] > _FLOOR and it["channel"] != "channel-3" and it["bidder"] > _LEAST
    )
    return dear.map("row", lambda it: {"auction": it["auction"], "price": it["price"] * 2, "channel": it["channel"]})


def _windows(bids_: Any) -> Any:
    timed = bids_.event_time("times", "ts", out_of_orderness=3_000).key_distribute("key", "auction")
    totals = timed.window(tumbling(10_000)).aggregate("totals", agg.count(), agg.sum("price"))
    return totals.map_with_key("row", lambda key, it: {"auction": key, "n": it.value[0], "total": it.value[1]})

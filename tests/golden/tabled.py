"""The dataflow of the golden files with tables, a kind of state that is newer than its format.

It must not change: its results are in the golden files. After the first 40 hours, the rows of "early" stay as they are,
so that no result depends on the order of arrival between two streams.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from malflow import StreamProvider, limit_out_of_orderness
from malflow.sinks import VecSink

__all__ = ["build_tables"]


def build_tables(provider: StreamProvider, source: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> None:
    """Keep the readings of each sensor as tables, and join with them."""
    on_time, _ = (
        provider.new_stream()
        .source("readings", source)
        .generate_epochs("epochs", limit_out_of_orderness(timedelta(hours=2)))
    )
    keyed: Any = on_time.key_distribute("sensor", lambda msg: msg.value["sensor"])
    latest = keyed.to_table("latest", row=_row)
    early = keyed.filter("before", lambda value: value["value"] < 40).to_table("early", row="value")
    rare = keyed.filter("rarely", lambda value: int(value["value"]) % 12 == 0).to_table("rare", ttl=timedelta(hours=5))
    made = {
        "changes": latest.changes().map("plain", tuple),
        "last change": latest.changes().stateful_map("last", lambda _, change, last: (str(last), change)),
        "expiring": rare.rows(),
        "in time": keyed.join_table("in time", latest, lambda value, row: (value["value"], row)),
        "known": keyed.join_table("known", early, lambda value, row: (value["value"], row), at="arrival"),
        "both": latest.join("both", early, lambda one, other: (one["value"], other), how="left").rows(),
    }
    for name, stream in made.items():
        stream.sink(f"{name} results", sinks.setdefault(name, VecSink()))


def _row(value: Any) -> Any:
    """Return the row of a reading; every ninth one deletes it."""
    return None if int(value["value"]) % 9 == 0 else {**value, "half": value["value"] / 2}

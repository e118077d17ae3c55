"""The dataflow of the golden files with rows that all workers have, a kind of state that is newer than its format.

It must not change: its results are in the golden files. Its rows are those of the first 40 hours, and only later
records are joined with them, so that no result depends on the order of arrival between two streams.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from malflow import StreamProvider, limit_out_of_orderness
from malflow.sinks import VecSink

__all__ = ["build_broadcasts"]


def build_broadcasts(provider: StreamProvider, source: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> None:
    """Keep the early readings of each sensor on all workers, and join later ones with them."""
    on_time, _ = (
        provider.new_stream()
        .source("readings", source)
        .generate_epochs("epochs", limit_out_of_orderness(timedelta(hours=2)))
    )
    keyed: Any = on_time.key_distribute("sensor", lambda msg: msg.value["sensor"])
    early = keyed.filter("before", lambda value: value["value"] < 40)
    later = on_time.filter("after", lambda value: value["value"] > 42)
    joined = later.join_broadcast("everywhere", early, _with_all)
    joined.sink("joined results", sinks.setdefault("joined", VecSink()))


def _with_all(value: Any, rows: Any) -> Any:
    return value["value"], sorted((str(key), row["value"]) for key, row in rows.items())

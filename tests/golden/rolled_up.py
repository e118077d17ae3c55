"""The dataflow of the golden files with rollups, a kind of state that is newer than its format.

It must not change: its results are in the golden files.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from malflow import StreamProvider, agg, limit_out_of_orderness
from malflow.sinks import VecSink

__all__ = ["build_rollups"]


def build_rollups(provider: StreamProvider, source: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> None:
    """Roll up the readings of each sensor from hours to months, with closed hours that are kept."""
    on_time, _ = (
        provider.new_stream()
        .source("readings", source)
        .generate_epochs("epochs", limit_out_of_orderness(timedelta(hours=2)))
    )
    keyed: Any = on_time.key_distribute("sensor", lambda msg: msg.value["sensor"])
    levels = keyed.rollup(
        "levels",
        ["hour", "day", "month"],
        agg.sum("value"),
        agg.count(),
        zone="Europe/Berlin",
        keep={"hour": timedelta(hours=5)},
    )
    for unit, stream in levels.items():
        stream.sink(f"{unit} results", sinks.setdefault(unit, VecSink()))

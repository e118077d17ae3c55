"""The dataflow of the golden files with sliding limits, a kind of state that is newer than its format.

It must not change: its results are in the golden files.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from malflow import StreamProvider, limit_out_of_orderness
from malflow.sinks import VecSink

__all__ = ["build_limits"]


def build_limits(provider: StreamProvider, source: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> None:
    """Limit the readings of each sensor to three in any seven hours."""
    on_time, _ = (
        provider.new_stream()
        .source("readings", source)
        .generate_epochs("epochs", limit_out_of_orderness(timedelta(hours=2)))
    )
    keyed: Any = on_time.key_distribute("sensor", lambda msg: msg.value["sensor"])
    passed, held_back = keyed.throttle("limit", 3, per=timedelta(hours=7), kind="sliding")
    passed.sink("passed results", sinks.setdefault("passed", VecSink()))
    held_back.sink("held back results", sinks.setdefault("held back", VecSink()))

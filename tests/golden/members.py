"""The dataflow of the golden files whose keys are members of enums, placed by their module too, as they were at first.

It must not change: its results are in the golden files.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from malflow import StreamProvider
from malflow.sinks import VecSink

__all__ = ["Hour", "build_members"]

Hour = Enum("Hour", [f"AT_{number}" for number in range(24)], module=__name__)


def build_members(provider: StreamProvider, source: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> None:
    """Count the readings of each of 24 hours, every other one of them in a tuple."""
    keyed: Any = provider.new_stream().source("readings", source).key_distribute("hour", _hour)
    counted = keyed.stateful_map("count", lambda key, value, count: ((str(key), count + 1), count + 1), default=int)
    counted.sink("counts", sinks.setdefault("counts", VecSink()))


def _hour(msg: Any) -> Any:
    number = round(msg.value["value"] * 10) % 24
    hour = list(Hour)[number]
    return hour if number % 2 else (hour, number)

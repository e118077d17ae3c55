"""The dataflow of the golden files whose keys are moments of pandas and numpy, placed as they were at first.

It must not change: its results are in the golden files.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from malflow import StreamProvider
from malflow.sinks import VecSink

__all__ = ["build_moments", "build_plain_moments"]

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def build_moments(provider: StreamProvider, source: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> None:
    """Count the readings of each of 24 moments, half of them of pandas and half of numpy."""
    _build(provider, source, sinks, _of_a_library)


def build_plain_moments(provider: StreamProvider, source: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> None:
    """Count them by the datetimes that they equal."""
    _build(provider, source, sinks, _plain)


def _build(provider: StreamProvider, source: Any, sinks: dict[str, VecSink[Any, Any, Any]], key_fn: Any) -> None:
    keyed: Any = provider.new_stream().source("readings", source).key_distribute("moment", key_fn)
    counted = keyed.stateful_map(
        "count", lambda key, value, count: ((str(key)[:13], count + 1), count + 1), default=int
    )
    counted.sink("counts", sinks.setdefault("counts", VecSink()))


def _plain(msg: Any) -> datetime:
    number = round(msg.value["value"] * 10) % 24
    moment = FIRST + timedelta(hours=number)
    return moment if number % 2 else moment.replace(tzinfo=None)


def _of_a_library(msg: Any) -> Any:
    import numpy as np  # noqa: PLC0415 - the plain moments do without it
    import pandas as pd  # noqa: PLC0415 - as above

    moment = _plain(msg)
    return np.datetime64(moment, "s") if moment.tzinfo is None else pd.Timestamp(moment)

"""Sums in tumbling windows in PySpark's own ways; the time of a record is its number, in milliseconds."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.functions import timestamp_millis, window
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

__all__ = ["SPARK_WINDOWS", "WINDOW"]

WINDOW = 60_000
"""The length of a window in milliseconds."""

_DELAY = "3 seconds"
_SUMS = "key long, start long, total long"
_STATE = "totals binary"


def _natively(numbers: DataFrame) -> DataFrame:
    timed = numbers.withColumn("at", timestamp_millis("value")).withWatermark("at", _DELAY)
    return timed.groupBy(window("at", "60 seconds"), "key").sum("value")


def _by_state(numbers: DataFrame) -> DataFrame:
    timed = numbers.withColumn("at", timestamp_millis("value")).withWatermark("at", _DELAY)
    return timed.groupBy("key").applyInPandasWithState(
        _add_frames, _SUMS, _STATE, "append", GroupStateTimeout.EventTimeTimeout
    )


def _add_frames(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Add whole columns to the sums of a key's windows; return the sums of those that are over."""
    totals: dict[int, int] = pickle.loads(state.get[0]) if state.exists else {}  # noqa: S301 - as written here
    if not state.hasTimedOut:
        for frame in frames:
            values = frame["value"]
            for start, total in values.groupby(values // WINDOW * WINDOW).sum().items():
                totals[int(start)] = totals.get(start, 0) + int(total)
    now = state.getCurrentWatermarkMs()
    over = [start for start in sorted(totals) if start + WINDOW <= now]
    made = [totals.pop(start) for start in over]
    if totals:
        state.update((pickle.dumps(totals),))
        state.setTimeoutTimestamp(min(totals) + WINDOW)
    elif state.exists:
        state.remove()
    yield pd.DataFrame({"key": [key[0]] * len(over), "start": over, "total": made})


SPARK_WINDOWS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "window()": _natively,
    "applyInPandasWithState, windows": _by_state,
}
"""PySpark's ways to sum in windows."""

"""The dataflow of the golden files with windows: it has every kind of state that came with format 3.

It must not change: its results are in the golden files. Its limit names the kind that was the only one then.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from malflow import DataMessage, StatefulLogic, StreamProvider, agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource, Timed
from malflow.windows import calendar, counting, session, sliding, tumbling

__all__ = ["build_windows", "readings"]

START = datetime(2026, 3, 28, tzinfo=UTC)


def readings() -> StatefulSource[Any, Any, Any, Any]:
    """Return three days of readings, with an end behind the second and a pause in each hour."""
    script: list[Any] = []
    for hour in range(72):
        script += [Timed({"sensor": f"s{n}", "value": hour + n / 10}, START + timedelta(hours=hour)) for n in range(5)]
        script.append(END if hour == 50 else PAUSE)
    return StatefulSource(ScriptedSource(script))


def _sensor_of(msg: Any) -> Any:
    return msg.value["sensor"]


def build_windows(
    provider: StreamProvider, source: Any, sinks: dict[str, VecSink[Any, Any, Any]], sensor: Any = _sensor_of
) -> None:
    """Send the readings through each operator that has state since format 3.

    Args:
        provider: makes streams.
        source: emits the readings.
        sinks: where the sinks are put, by name.
        sensor: returns the key of a message, or names the field that is the key; the results are the same.
    """
    on_time, late = (
        provider.new_stream()
        .source("readings", source)
        .generate_epochs("epochs", limit_out_of_orderness(timedelta(hours=2)))
    )
    keyed: Any = on_time.key_distribute("sensor", sensor)
    late_ones = late.key_distribute("late sensor", sensor)
    made = {**_aggregated(keyed, late_ones), **_selected(keyed)}
    for name, stream in made.items():
        stream.sink(f"{name} results", sinks.setdefault(name, VecSink()))


class Woken(StatefulLogic[Any, Any, Any, int, int]):
    """Sends how many readings a sensor has had, seven hours after one that found it asleep."""

    def on_data(self, msg: Any, count: Any, output: Any) -> int:
        if not count:
            output.wake(msg.timestamp + timedelta(hours=7))
        return (count or 0) + 1

    def on_timer(self, key: Any, at: Any, count: int, output: Any) -> None:
        output.send(DataMessage(key, count, at))


def _aggregated(keyed: Any, late: Any) -> dict[str, Any]:
    """Aggregate the readings of each sensor in windows of all kinds, and without."""
    value = agg.sum("value"), agg.count(), agg.mean("value")
    halves, slides = tumbling(timedelta(hours=12)), sliding(timedelta(hours=6), timedelta(hours=2))
    revised = keyed.window(halves).allow_late(late, timedelta(hours=9)).aggregate("revised", *value)
    return {
        "days": keyed.window(calendar("day", "Europe/Berlin")).aggregate("days", *value),
        "halves": keyed.window(halves).aggregate("halves", agg.max("value")),
        "slides": keyed.window(slides, early=timedelta(hours=1)).aggregate("slides", *value),
        "stays": keyed.window(session(timedelta(hours=1, minutes=30))).aggregate("stays", *value),
        "groups": keyed.window(counting(7, 3)).aggregate("groups", *value),
        "revised": revised[0],
        "so far": keyed.aggregate("so far", agg.sum("value")),
    }


def _selected(keyed: Any) -> dict[str, Any]:
    """Drop, hold back, order and join readings."""
    passed, held_back = keyed.throttle("throttled", 2, per=timedelta(hours=5), kind="bucket")
    hour = timedelta(hours=1)
    return {
        "distinct": keyed.distinct("distinct", lambda it: int(it["value"]) // 3, within=timedelta(hours=4)),
        "changes": keyed.changes("changes", lambda it: int(it["value"]) // 4),
        "passed": passed,
        "held back": held_back,
        "sorted": keyed.sort("sorted"),
        "batches": keyed.batch("batches", 4, within=timedelta(hours=3)),
        "woken": keyed.stateful_op("woken", Woken()),
        "pairs": keyed.interval_join("pairs", held_back, before=hour, after=hour, how="outer"),
        "newest": keyed.asof_join("newest", held_back, tolerance=timedelta(hours=9)),
        "grouped": keyed.window(tumbling(timedelta(hours=12))).cogroup("grouped", held_back),
    }

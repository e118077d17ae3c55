"""The dataflow of the golden files with windows: it has every kind of state that came with format 3.

It has to stay as it is: what it did is in the golden files.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from malflow import StreamProvider, agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource, Timed
from malflow.windows import calendar, sliding, tumbling

__all__ = ["build_windows", "readings"]

START = datetime(2026, 3, 28, tzinfo=UTC)


def readings() -> StatefulSource[Any, Any, Any, Any]:
    """Return three days of readings, with an end behind the second and a pause in each hour."""
    script: list[Any] = []
    for hour in range(72):
        script += [Timed({"sensor": f"s{n}", "value": hour + n / 10}, START + timedelta(hours=hour)) for n in range(5)]
        script.append(END if hour == 50 else PAUSE)
    return StatefulSource(ScriptedSource(script))


def build_windows(provider: StreamProvider, source: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> None:
    """Aggregate the readings of each sensor in windows of all kinds, and without."""
    epochs = (
        provider.new_stream()
        .source("readings", source)
        .generate_epochs("epochs", limit_out_of_orderness(timedelta(hours=2)))
    )
    epochs[1].sink("late", VecSink())
    keyed: Any = epochs[0].key_distribute("sensor", lambda msg: msg.value["sensor"])
    value = agg.sum("value"), agg.count(), agg.mean("value")
    days = keyed.window(calendar("day", "Europe/Berlin")).aggregate("days", *value)
    days.sink("day results", sinks.setdefault("days", VecSink()))
    halves = keyed.window(tumbling(timedelta(hours=12))).aggregate("halves", agg.max("value"))
    halves.sink("half results", sinks.setdefault("halves", VecSink()))
    slides = keyed.window(sliding(timedelta(hours=6), timedelta(hours=2))).aggregate("slides", *value)
    slides.sink("slide results", sinks.setdefault("slides", VecSink()))
    keyed.aggregate("so far", agg.sum("value")).sink("totals", sinks.setdefault("so far", VecSink()))

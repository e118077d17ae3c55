"""The dataflow of the golden files whose states have parts of the source as keys, placed by their hash as at first.

It must not change: its results are in the golden files.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from malflow import StreamProvider, agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource, Timed
from malflow.windows import tumbling
from tests.golden.windowed import START

__all__ = ["ROWS", "build_parts"]

ROWS = {f"row {number}": 21 + number for number in range(7)}
"""How many readings each part has. Of three workers, one had six of these parts by their hash, and one had none."""


def build_parts(provider: StreamProvider, _readings: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> None:
    """Count the readings of each part, right after the source and in windows, each part at its own pace."""
    source = StatefulSource(ScriptedSource({part: _script(number) for number, part in enumerate(ROWS)}))
    stream = provider.new_stream().source("parts", source)
    counted = stream.stateful_map("count", lambda _key, _value, count: (count + 1, count + 1), int)
    counted.sink("counts", sinks.setdefault("counts", VecSink()))
    on_time, late = stream.generate_epochs("epochs", limit_out_of_orderness(timedelta(hours=2)))
    windows: Any = on_time.window(tumbling(timedelta(hours=6))).aggregate("sums", agg.sum())
    windows.sink("window sums", sinks.setdefault("windows", VecSink()))
    late.sink("late", sinks.setdefault("late", VecSink()))


def _script(number: int) -> list[Any]:
    script: list[Any] = []
    for row in range(20 + number):
        at = START + timedelta(minutes=(row + 1) * (30 + 7 * number))
        script += [Timed(row, at), Timed(row, at - timedelta(hours=5)) if row == 15 else PAUSE]
        if row == 11:
            script.append(END)
    return script

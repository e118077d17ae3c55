"""The dataflow of the golden files with patterns, a kind of state that is newer than its format.

It must not change: its results are in the golden files.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from malflow import StreamProvider, limit_out_of_orderness
from malflow.patterns import absent, step
from malflow.sinks import VecSink

__all__ = ["build_patterns"]

HOUR = timedelta(hours=1)

_low = step("low", lambda reading: int(reading["value"]) % 9 < 3)
_high = step("high", lambda reading: int(reading["value"]) % 9 > 6)
_middle = step("middle", lambda reading: int(reading["value"]) % 9 == 4)
_rise = step("rise", given=lambda reading, so_far: not so_far["rise"] or reading["value"] > so_far["rise"][-1]["value"])

_PATTERNS: dict[str, Any] = {
    "climb": (_low.then(_high, within=8 * HOUR), "end"),
    "each": (_low.at_least(2).then(_high).within(9 * HOUR), "all"),
    "silence": (_high.then_not(_middle, during=4 * HOUR), "start"),
    "first": (absent(_low, during=3 * HOUR).then(_high), "end"),
    "rising": (_rise.times(4, by="next"), "end"),
}


def build_patterns(provider: StreamProvider, source: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> None:
    """Match each pattern in the readings of each sensor, with partial matches and records that wait at the end."""
    on_time, _ = (
        provider.new_stream()
        .source("readings", source)
        .generate_epochs("epochs", limit_out_of_orderness(timedelta(hours=2)))
    )
    keyed: Any = on_time.key_distribute("sensor", lambda msg: msg.value["sensor"])
    for name, (pattern, after) in _PATTERNS.items():
        found = keyed.match(name, pattern, after=after)
        found.matches.sink(f"{name} matches", sinks.setdefault(name, VecSink()))
        if name == "each":
            found.timeouts.sink("timeouts", sinks.setdefault("timeouts", VecSink()))

"""Run a windowed dataflow over records that come in ticks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from malflow import SingleThreadRuntime, limit_out_of_orderness
from malflow.message import DataMessage
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource, Timed

Item = Any
"""``(key, timestamp, value)``, or `PAUSE` to begin a new tick."""


def source_of(items: Sequence[Item]) -> StatefulSource[Any, Any, Any, Any]:
    """Return a source of the items, whose values are ``(key, value)``."""
    script = [item if item is PAUSE else Timed((item[0], item[2]), item[1]) for item in items]
    return StatefulSource(ScriptedSource(script))


def windowed_flow(source: Any, bound: Any, add: Callable[[Any], Any], sink: Any) -> Callable[[Any], None]:
    """Return a dataflow that keys the source's records, and adds operators behind their epochs."""

    def build(provider: Any) -> None:
        stamped = provider.new_stream().source("source", source)
        on_time, late = stamped.generate_epochs("epochs", limit_out_of_orderness(bound))
        late.sink("late", VecSink())
        keyed = on_time.key_distribute("key", lambda msg: msg.value[0]).map("value", lambda value: value[1])
        add(keyed).sink("results", sink)

    return build


def results_of(
    items: Sequence[Item], bound: Any, add: Callable[[Any], Any], **options: Any
) -> list[DataMessage[Any, Any, Any]]:
    """Return the messages that a dataflow sends for the items."""
    sink = VecSink()
    SingleThreadRuntime(windowed_flow(source_of(items), bound, add, sink), **options).execute()
    return list(sink)

"""Run a pattern over records that arrive in ticks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from malflow import SingleThreadRuntime, limit_out_of_orderness
from malflow.patterns import Pattern
from malflow.sinks import VecSink
from tests.windows.running import Item, source_of

__all__ = ["Outputs", "events_of", "match_flow", "outputs_of"]


class Outputs(NamedTuple):
    """What a match operator has sent.

    Attributes:
        matches: its matches.
        timeouts: its timeouts.
        late: its late records.
    """

    matches: VecSink[Any, Any, Any]
    timeouts: VecSink[Any, Any, Any]
    late: VecSink[Any, Any, Any]


def match_flow(
    source: Any, bound: Any, pattern: Pattern[Any], outputs: Outputs, **options: Any
) -> Callable[[Any], None]:
    """Return a dataflow that keys the source's records, whose values are ``(key, value)``, and matches a pattern."""

    def build(provider: Any) -> None:
        stamped = provider.new_stream().source("source", source)
        on_time, late = stamped.generate_epochs("epochs", limit_out_of_orderness(bound))
        late.sink("late", VecSink())
        keyed = on_time.key_distribute("key", lambda msg: msg.value[0]).map("value", lambda value: value[1])
        found = keyed.match("match", pattern, **options)
        for stream, name, sink in zip(found, Outputs._fields, outputs, strict=True):
            stream.sink(f"{name} sink", sink)

    return build


def outputs_of(
    items: Sequence[Item], bound: Any, pattern: Pattern[Any], *, runtime: dict[str, Any] | None = None, **options: Any
) -> Outputs:
    """Return what a match operator sends for ``(key, timestamp, value)`` items."""
    outputs = Outputs(VecSink(), VecSink(), VecSink())
    build = match_flow(source_of(items), bound, pattern, outputs, **options)
    SingleThreadRuntime(build, **(runtime or {})).execute()
    return outputs


def events_of(messages: VecSink[Any, Any, Any]) -> list[Any]:
    """Return key, time of emission and value of messages, or its events."""
    return [(msg.key, msg.timestamp, getattr(msg.value, "events", msg.value)) for msg in messages]

"""A dataflow that groups two streams with their late records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from malflow import limit_out_of_orderness
from malflow.sinks import VecSink

__all__ = ["Sinks", "late_groups", "new_sinks"]

Sinks = tuple[VecSink[Any, Any, Any], VecSink[Any, Any, Any], VecSink[Any, Any, Any]]
"""The results, and the records of each side that were too late."""


def new_sinks() -> Sinks:
    """Return empty sinks."""
    return VecSink(), VecSink(), VecSink()


def late_groups(
    source: Any, bound: int, windows: Any, sinks: Sinks, *, both: bool = True, until: Any = 0
) -> Callable[..., None]:
    """Return a dataflow that groups two sides, with late records of the first or of both."""

    def side(stream: Any, number: int) -> list[Any]:
        mine = stream.filter(f"side {number}", lambda value: value[0] == number)
        outputs = mine.generate_epochs(f"epochs {number}", limit_out_of_orderness(bound))
        names = f"on time {number}", f"late {number}"
        keyed = [it.key_distribute(name, lambda msg: msg.value[1]) for name, it in zip(names, outputs, strict=True)]
        return [it.map(f"value {name}", lambda value: value[2]) for name, it in zip(names, keyed, strict=True)]

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", source)
        (left, late_left), (right, late_right) = side(stream, 0), side(stream, 1)
        windowed = left.window(windows).allow_late(late_left, until)
        results, too_late = windowed.cogroup("groups", right, late=[late_right] if both else [])
        for name, stream, sink in zip(("results", "left", "right"), [results, *too_late], sinks, strict=True):
            stream.sink(name, sink)

    return build

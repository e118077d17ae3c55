"""Run operators on tables over rows that arrive in ticks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from malflow import SingleThreadRuntime, limit_out_of_orderness
from malflow.message import DataMessage
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource, Timed

__all__ = ["Add", "changes_of", "flow_of", "items", "messages_of", "rows_of", "script_of", "two_sides"]

Item = Any
"""``(side, key, timestamp, row)``, or `PAUSE` to begin a new tick."""

Add = Callable[[Any, Any], Any]
"""Adds operators after two keyed streams of rows."""

_rows: st.SearchStrategy[Any] = st.one_of(st.none(), st.integers(0, 2))


def items(sides: int = 1, at: Any = None) -> st.SearchStrategy[list[Item]]:
    """Return lists of rows that arrive on some sides, few enough for keys to be repeated, and pauses between them."""
    times = st.integers(-3, 12) if at is None else at
    item = st.tuples(st.integers(0, sides - 1), st.sampled_from("abc"), times, _rows)
    either = st.one_of(item, item, item, st.just(PAUSE))
    return st.one_of(st.lists(either, max_size=8), st.lists(either, min_size=15, max_size=30))


def script_of(given: Iterable[Item]) -> list[Any]:
    """Return a script of the items."""
    return [item if item is PAUSE else Timed((item[0], item[1], item[3]), item[2]) for item in given]


def rows_of(given: Iterable[Item], side: int = 0) -> list[tuple[Any, Any, Any]]:
    """Return the records of a side."""
    return [item[1:] for item in given if item is not PAUSE and item[0] == side]


def two_sides(given: Iterable[Item]) -> tuple[list[tuple[Any, Any, Any]], list[tuple[Any, Any, Any]]]:
    """Return the records of both sides."""
    kept = list(given)
    return rows_of(kept, 0), rows_of(kept, 1)


def flow_of(source: Any, add: Add, sink: Any, bound: Any = 100) -> Callable[[Any], None]:
    """Return a dataflow that splits a source into two keyed streams of rows, with epochs of their own."""

    def side(stream: Any, number: int) -> Any:
        mine = stream.filter(f"side {number}", lambda value: value[0] == number)
        on_time, late = mine.generate_epochs(f"epochs {number}", limit_out_of_orderness(bound))
        late.sink(f"late {number}", VecSink())
        keyed = on_time.key_distribute(f"key {number}", lambda msg: msg.value[1])
        return keyed.map(f"row {number}", lambda value: value[2])

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", source)
        add(side(stream, 0), side(stream, 1)).sink("results", sink)

    return build


def messages_of(given: Sequence[Item], add: Add, bound: Any = 100, **options: Any) -> list[DataMessage[Any, Any, Any]]:
    """Return the messages that the operators send for the items."""
    sink: VecSink[Any, Any, Any] = VecSink()
    source = StatefulSource(ScriptedSource(script_of(given)))
    SingleThreadRuntime(flow_of(source, add, sink, bound), **options).execute()
    return list(sink)


def changes_of(messages: Iterable[DataMessage[Any, Any, Any]]) -> list[tuple[Any, Any, Any, Any]]:
    """Return changes as the model has them."""
    return [(it.key, it.timestamp, it.value.before, it.value.after) for it in messages]

"""Run a join of two streams over records that arrive in ticks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from malflow import SingleThreadRuntime, StatelessLogic, limit_out_of_orderness
from malflow.message import MIN, DataMessage
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource, Timed
from tests.joins.model import Record

__all__ = [
    "Add",
    "asof",
    "counted",
    "interval",
    "joined_flow",
    "late_results_of",
    "results_of",
    "script_of",
    "sides_of",
    "source_of",
    "streams",
    "swapped",
    "with_itself",
]

Item = Any
"""``(side, key, timestamp, value)``, or `PAUSE` to begin a new tick."""

Add = Callable[[Any, Any], Any]
"""Adds operators behind a left and a right stream."""

_records: st.SearchStrategy[Item] = st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.integers(-10, 30))


def _with_values(items: list[Item]) -> list[Item]:
    return [item if item is PAUSE else (*item, at) for at, item in enumerate(items)]


streams = st.lists(st.one_of(_records, st.just(PAUSE)), max_size=40).map(_with_values)
"""Records of both sides, whose values are different."""


def script_of(items: Iterable[Item]) -> list[Any]:
    """Return a script of the items, whose values are ``(side, key, value)``."""
    return [item if item is PAUSE else Timed((item[0], item[1], item[3]), item[2]) for item in items]


def interval(before: Any, after: Any, how: Any = "inner", **options: Any) -> Add:
    """Return a function that adds an interval join."""
    return lambda left, right: left.interval_join("join", right, before=before, after=after, how=how, **options)


def asof(tolerance: Any = None, how: Any = "left", **options: Any) -> Add:
    """Return a function that adds an as-of join."""
    return lambda left, right: left.asof_join("join", right, tolerance=tolerance, how=how, **options)


def swapped(add: Add) -> Add:
    """Return a function that adds a join with its sides swapped."""
    return lambda left, right: add(right, left)


def with_itself(add: Add) -> Add:
    """Return a function that joins the left stream with itself."""
    return lambda left, _: add(left, left)


def source_of(items: Iterable[Item]) -> StatefulSource[Any, Any, Any, Any]:
    """Return a source of the items."""
    return StatefulSource(ScriptedSource(script_of(items)))


def sides_of(items: Iterable[Item]) -> tuple[list[Record], list[Record]]:
    """Return the records of both sides."""
    left, right = ([item[1:] for item in items if item is not PAUSE and item[0] == side] for side in (0, 1))
    return left, right


def joined_flow(source: Any, bound: Any, add: Add, sink: Any) -> Callable[[Any], None]:
    """Return a dataflow that splits a source into two sides with epochs of their own, keys them and joins them."""

    def side(stream: Any, number: int) -> Any:
        mine = stream.filter(f"side {number}", lambda value: value[0] == number)
        on_time, late = mine.generate_epochs(f"epochs {number}", limit_out_of_orderness(bound))
        late.sink(f"late {number}", VecSink())
        keyed = on_time.key_distribute(f"key {number}", lambda msg: msg.value[1])
        return keyed.map(f"value {number}", lambda value: value[2])

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", source)
        add(side(stream, 0), side(stream, 1)).sink("results", sink)

    return build


def results_of(items: Sequence[Item], bound: Any, add: Add, **options: Any) -> list[DataMessage[Any, Any, Any]]:
    """Return the messages that a join sends for the items."""
    sink: VecSink[Any, Any, Any] = VecSink()
    SingleThreadRuntime(joined_flow(source_of(items), bound, add, sink), **options).execute()
    return list(sink)


class _Watch(StatelessLogic[Any, Any, Any, Any]):
    """Notes the timestamps of records that are late."""

    def __init__(self, late: list[Any]) -> None:
        self._late = late
        self._epoch: Any = MIN

    def on_data(self, msg: Any, output: Any) -> None:
        if not msg.timestamp > self._epoch:
            self._late.append(msg.timestamp)

    def on_epoch(self, epoch: Any, output: Any) -> None:
        assert epoch > self._epoch
        self._epoch = epoch


def late_results_of(items: Sequence[Item], bound: Any, add: Add) -> list[Any]:
    """Return the timestamps of a join's results that are not above the epoch before."""
    late: list[Any] = []
    results_of(items, bound, lambda left, right: add(left, right).stateless_op("watch", _Watch(late)))
    return late


def counted(messages: Iterable[DataMessage[Any, Any, Any]]) -> Counter[Any]:
    """Return messages as the model has them."""
    return Counter((it.key, it.value, it.timestamp) for it in messages)

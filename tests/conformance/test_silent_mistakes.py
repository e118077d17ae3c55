"""Mistakes that lose or mix records are refused: one state for all keys, flags that are returned, merged branches."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from malflow import GraphError, OperatorError, SingleThreadRuntime, StatefulLogic, agg
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from tests.conformance.dataflow import values_of

EMPTY: list[int] = []


@dataclass
class Basket:
    """A state of a class, which can change."""

    items: int = 0


BASKET = Basket()


class Logic(StatefulLogic[Any, Any, Any, Any, Any]):
    """Adds to a list, with a timer."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        output.wake_after(DAY)
        return state

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> Any:
        return state


DAY = datetime(2026, 1, 2, tzinfo=UTC) - datetime(2026, 1, 1, tzinfo=UTC)


def same(_key: Any, value: Any, state: Any) -> Any:
    return value, state


STATEFUL: dict[str, Callable[[Any, Any], Any]] = {
    "stateful_map": lambda keyed, default: keyed.stateful_map("op", same, default),
    "stateful_map with a policy": lambda keyed, default: keyed.stateful_map("op", same, default, on_error=refused),
    "stateful_op": lambda keyed, default: keyed.stateful_op("op", lambda msg, state, output: state, default),
    "stateful_op with timers": lambda keyed, default: keyed.stateful_op("op", Logic(), default),
    "connect": lambda keyed, default: keyed.connect("op", keyed, held, held, default=default),
    "fold": lambda keyed, default: keyed.aggregate("op", agg.fold(default, lambda acc, value: acc)),
}


def refused(failure: Any) -> Any:
    return "fail"


def held(msg: Any, state: Any, output: Any) -> Any:
    return state


def by_parity(stream: Any) -> Any:
    return stream.key_distribute("parity", lambda msg: msg.value % 2)


@pytest.mark.parametrize("shared", [EMPTY, BASKET, ([],), {}], ids=["list", "object", "tuple", "dict"])
@pytest.mark.parametrize("name", STATEFUL)
def test_a_default_that_all_keys_would_share_is_refused(name: str, shared: Any) -> None:
    with pytest.raises(OperatorError, match="returned one object twice") as failure:
        values_of(SingleThreadRuntime, range(4), lambda s: STATEFUL[name](by_parity(s), lambda: shared))
    assert failure.value.operator == "op"
    assert failure.value.key in (0, 1)


@pytest.mark.parametrize("made", [0, "text", (1, "a"), frozenset({1}), datetime(2026, 1, 1, tzinfo=UTC), None])
@pytest.mark.parametrize("name", STATEFUL)
def test_a_default_that_cannot_change_is_shared(name: str, made: Any) -> None:
    values_of(SingleThreadRuntime, range(4), lambda s: STATEFUL[name](by_parity(s), lambda: made))


def test_a_default_is_called_once_for_each_new_key() -> None:
    made: list[Any] = []

    def default() -> Any:
        made.append([])
        return made[-1]

    values_of(SingleThreadRuntime, range(6), lambda s: by_parity(s).stateful_map("op", same, default))
    assert len(made) == 2


PARTITIONERS: list[Callable[[Any, Any], Any]] = [
    lambda msg, outputs: [msg.value % 2],
    lambda msg, outputs: [msg.value == 0, msg.value == 1],
    lambda msg, outputs: [],
    lambda msg, outputs: (True, False),
    lambda msg, outputs: msg.value % 2,
    lambda msg, outputs: msg.value < 1,
    lambda msg, outputs: {"left": True},
]


@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=range(len(PARTITIONERS)))
def test_an_answer_of_a_partitioner_is_refused(partitioner: Any, on_error: Any) -> None:
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        left, right = provider.new_stream().source("in", SingleIteratorSource([0])).split("split", partitioner, 2)
        left.union(right).sink("out", out)

    with pytest.raises(OperatorError, match="the partitioner returned"):
        SingleThreadRuntime(build).execute()


@pytest.mark.parametrize(
    "partitioner",
    [
        lambda msg, outputs: msg.value == 0 and outputs.__setitem__(0, True),
        lambda msg, outputs: (outputs.__setitem__(0, msg.value == 0), None),
        lambda msg, outputs: None if msg.value else outputs.__setitem__(0, True),
    ],
)
def test_a_partitioner_may_be_an_expression_that_sets_flags(partitioner: Any) -> None:
    assert values_of(SingleThreadRuntime, [0, 1], lambda s: s.split("split", partitioner, 2)[0]) == [0]


def halves(stream: Any) -> Any:
    return [stream.filter("even", lambda value: value % 2 == 0), stream.filter("odd", lambda value: value % 2)]


def test_branches_that_meet_again_before_event_time_are_refused() -> None:
    def build(provider: Any) -> None:
        even, odd = halves(provider.new_stream().source("in", SingleIteratorSource(range(9))))
        even.union(odd).event_time("time", lambda msg: msg.value, out_of_orderness=1).sink("out", VecSink())

    with pytest.raises(GraphError, match="merges branches of one stream") as failure:
        SingleThreadRuntime(build).execute()
    assert failure.value.operator == "time"
    assert "per_part=False" in str(failure.value)


def test_branches_that_meet_again_after_event_time_are_on_time() -> None:
    def build(stream: Any) -> Any:
        even, odd = halves(stream.event_time("time", lambda msg: msg.value, out_of_orderness=1))
        return even.union(odd)

    assert sorted(values_of(SingleThreadRuntime, range(9), build)) == [*range(9)]


def test_branches_in_any_order_are_accepted_where_it_is_said() -> None:
    def build(stream: Any) -> Any:
        even, odd = halves(stream)
        return even.union(odd).event_time("time", lambda msg: msg.value, out_of_orderness=99, per_part=False)

    assert sorted(values_of(SingleThreadRuntime, range(9), build)) == [*range(9)]


def told(caplog: pytest.LogCaptureFixture, build: Any) -> list[str]:
    """Return the warnings of a run."""
    with caplog.at_level(logging.WARNING, "malflow.runtime"):
        SingleThreadRuntime(build).execute()
    return [it.getMessage() for it in caplog.records]


def test_a_predicate_that_returns_a_function_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def build(provider: Any) -> None:
        texts = provider.new_stream().source("in", SingleIteratorSource(["1", "a", "2"]))
        texts.filter("digits", lambda text: text.isdigit).filter("all", str.isalnum).sink("out", VecSink())

    (warning,) = told(caplog, build)
    assert "operator 'digits': its predicate returned <built-in method isdigit" in warning
    assert "value.isdigit()" in warning


@pytest.mark.parametrize(
    ("end", "count"),
    [
        (lambda stream: stream.map("m", str), 1),
        (lambda stream: stream.inspect("i", lambda msg, ctx: None), 0),
        (lambda stream: stream.key_distribute("k", lambda msg: 1).aggregate("n", agg.count()), 0),
        (lambda stream: stream.sink("out", VecSink()), 0),
    ],
    ids=["map", "inspect", "state", "sink"],
)
def test_a_dataflow_whose_results_are_lost_is_told(end: Any, count: int, caplog: pytest.LogCaptureFixture) -> None:
    found = told(caplog, lambda provider: end(provider.new_stream().source("in", SingleIteratorSource([1]))))
    assert sum("has no sink" in it for it in found) == count

"""Joins that are malformed are refused when they are added."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from malflow import GraphError, OperatorError, StreamProvider, index_select
from malflow.nodes import EpochsNode
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import ScriptedSource
from malflow.windows import counting, tumbling
from tests.joins.running import asof, interval, results_of
from tests.kit.driving import compiled


def build(add: Callable[[Any, Any], object], *, keyed: bool = True, **right: Any) -> None:
    """Build a dataflow with a join of two keyed streams."""

    def build_dataflow(provider: StreamProvider) -> None:
        one, two = (provider.new_stream().source(name, SingleIteratorSource([1])) for name in ("one", "two"))
        left = one.key_distribute("left", lambda msg: msg.value)
        add(left, two.key_distribute("right", lambda msg: msg.value, **right) if keyed else two)

    compiled(build_dataflow)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"before": "1", "after": 1}, "before must be a number or timedelta, .*; got '1'"),
        ({"before": 1, "after": None}, "after must be a number or timedelta, .*; got None"),
        ({"before": float("inf"), "after": 1}, "before must be a number or timedelta, .*; got inf"),
        ({"before": timedelta(1), "after": 1}, "needs two numbers or two timedeltas"),
        ({"before": 1, "after": -2}, "has before=1 and after=-2, whose sum is negative"),
        ({"before": 1, "after": 1, "how": "full"}, "how must be 'inner', 'left', 'right' or 'outer';"),
        ({"before": 1, "after": 1, "version": 0}, "version must be a whole number, at least 1"),
    ],
)
def test_arguments_of_interval_joins_are_checked(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(GraphError, match=f"operator 'join' {problem}"):
        build(lambda left, right: left.interval_join("join", right, **options))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tolerance": "1"}, "tolerance must be a number or timedelta of zero or more, .*; got '1'"),
        ({"tolerance": -1}, "tolerance must be a number or timedelta of zero or more, .*; got -1"),
        ({"how": "outer"}, "how must be 'left' or 'inner'; got 'outer'"),
        ({"tie": 3}, "tie must be a plain function; got 3"),
    ],
)
def test_arguments_of_asof_joins_are_checked(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(GraphError, match=f"operator 'join' {problem}"):
        build(asof(**options))


def test_a_failing_tie_names_the_record() -> None:
    items = [(1, "a", 5, 1), (1, "a", 5, 0), (0, "a", 6, 7)]
    with pytest.raises(OperatorError, match=r"operator 'join' failed at key 'a', value 0, .*ZeroDivisionError"):
        results_of(items, 1, asof(tie=lambda value: 1 / value))


def test_arguments_of_cogroups_are_checked() -> None:
    with pytest.raises(GraphError, match="operator 'groups' needs at least one other stream"):
        build(lambda left, _: left.window(tumbling(1)).cogroup("groups"))
    with pytest.raises(GraphError, match="operator 'groups' has count windows, which need an order of records"):
        build(lambda left, right: left.window(counting(5)).cogroup("groups", right))
    with pytest.raises(GraphError, match="operator 'groups' needs keyed streams"):
        build(lambda left, right: left.window(tumbling(1)).cogroup("groups", right), keyed=False)


def test_sides_need_one_partitioner() -> None:
    with pytest.raises(GraphError, match=r"its inputs are placed by .*index_select.* and .*rendezvous_select.*; call"):
        build(interval(1, 1), partitioner=index_select)


def test_both_sides_must_be_keyed_streams() -> None:
    with pytest.raises(GraphError, match="needs keyed streams; one has no key"):
        build(interval(1, 1), keyed=False)
    with pytest.raises(GraphError, match="takes streams as separate arguments; got 7"):
        build(lambda left, _: left.interval_join("join", 7, before=1, after=1))


@pytest.mark.parametrize(
    ("timestamp", "bound"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), 1),
        (datetime(2026, 1, 1, tzinfo=UTC), 0),
        (date(2026, 1, 1), timedelta(hours=12)),
        (1, timedelta(1)),
        (0, timedelta(0)),
    ],
)
def test_bounds_that_do_not_fit_timestamps_are_named(timestamp: Any, bound: Any) -> None:
    with pytest.raises(OperatorError, match=r"operator 'join' failed at key 'a', value 0, .* doesn't fit the bounds"):
        results_of([(0, "a", timestamp, 0)], timestamp - timestamp, interval(bound, bound))


def test_timestamps_of_different_types_are_named() -> None:
    aware = datetime(2026, 1, 1, tzinfo=UTC)
    items = [(0, "a", aware, 0), (1, "a", aware.replace(tzinfo=None), 1)]
    with pytest.raises(OperatorError, match="operator 'join' failed: epochs of its inputs can't be compared"):
        results_of(items, timedelta(0), interval(timedelta(1), timedelta(1)))


def test_a_join_of_parts_has_no_epochs_of_parts() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        left, right = (
            provider.new_stream()
            .source(name, ScriptedSource({"a": [1]}))
            .generate_epochs(f"epochs of {name}", lambda msg, epoch: msg.timestamp)[0]
            for name in ("one", "two")
        )
        joined = left.interval_join("join", right, before=1, after=1)
        joined.generate_epochs("epochs", lambda msg, epoch: msg.timestamp)[0].sink("out", VecSink())

    nodes = [vertex.node for vertex in compiled(build_dataflow).vertices]
    assert [node.source for node in nodes if isinstance(node, EpochsNode)] == ["one", "two", None]


def test_dates_are_joined() -> None:
    items = [(0, "a", date(2026, 1, 2), 0), (1, "a", date(2026, 1, 1), 1), (1, "a", date(2026, 1, 2), 2)]
    assert [it.value for it in results_of(items, timedelta(1), interval(timedelta(0), timedelta(0)))] == [(0, 2)]


def test_floats_are_joined_across_panes() -> None:
    items = [(n % 2, "a", n / 10, n) for n in range(20)]
    pairs = {it.value for it in results_of(items, 3.0, interval(0.35, 0.25))}
    assert pairs == {(n, m) for n in range(0, 20, 2) for m in range(1, 20, 2) if -3 <= m - n <= 2}

"""Joins behave the same on every runtime, in snapshots too."""

from __future__ import annotations

from typing import Any

import pytest

from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import END, ScriptedSource
from malflow.windows import tumbling
from tests.joins.late_groups import late_groups, new_sinks
from tests.joins.model import asof_joined, interval_joined
from tests.joins.running import asof, counted, interval, joined_flow, script_of, sides_of

RECORDS = [(n * 5 % 2, "abc"[n % 3], n * 7 % 11 + n, n) for n in range(60)]


def results_of(runtime: Any, add: Any) -> Any:
    """Return the results of a join of the records."""
    sink: VecSink[Any, Any, Any] = VecSink()
    runtime(joined_flow(ScriptedSource(script_of(RECORDS)), 11, add, sink)).execute()
    return counted(sink)


@pytest.mark.parametrize("how", ["inner", "outer"])
def test_interval_joins(any_parallelism: Any, how: Any) -> None:
    assert results_of(any_parallelism, interval(2, 5, how)) == interval_joined(*sides_of(RECORDS), 2, 5, how)


def test_asof_joins(any_parallelism: Any) -> None:
    assert results_of(any_parallelism, asof(4)) == asof_joined(*sides_of(RECORDS), 4, "left")


def test_cogroups_of_windows(any_parallelism: Any) -> None:
    def add(left: Any, right: Any) -> Any:
        groups = left.window(tumbling(10)).cogroup("groups", right, right)
        return groups.map("sorted", lambda it: (it.start, *(tuple(sorted(group)) for group in it.value)))

    expected: dict[Any, tuple[list[int], list[int]]] = {}
    for side, key, at, value in RECORDS:
        groups = expected.setdefault((key, at // 10 * 10), ([], []))
        groups[side].append(value)
    assert results_of(any_parallelism, add) == {
        (key, (start, tuple(sorted(left)), tuple(sorted(right)), tuple(sorted(right))), start + 9): 1
        for (key, start), (left, right) in expected.items()
    }


def test_late_records_of_groups_are_in_open_windows_or_too_late(any_parallelism: Any) -> None:
    sinks = new_sinks()
    any_parallelism(late_groups(ScriptedSource(script_of(RECORDS)), 1, tumbling(5), sinks)).execute()
    results, *too_late = sinks
    assert any(len(sink) for sink in too_late)
    for side in (0, 1):
        inside = [value for it in results for value in it.value.value[side]]
        assert sorted([*inside, *too_late[side].values]) == [it[3] for it in RECORDS if it[0] == side]


def test_ties_of_asof_joins(runtime: Any) -> None:
    crowded = asof_joined(*sides_of(RECORDS), 4, "left", lambda value: -value)
    assert results_of(runtime, asof(4, tie=lambda value: -value)) == crowded


def test_joins_continue_from_snapshots(runtime: Any, store: FsspecBackend) -> None:
    items = script_of([(0, "a", 1, "left"), (0, "b", 1, "alone")])
    source = ScriptedSource([*items, END, *script_of([(1, "a", 2, "right")])])
    sinks: list[VecSink[Any, Any, Any]] = [VecSink(), VecSink()]
    for sink in sinks:
        runtime(joined_flow(source, 5, interval(3, 3, "left"), sink), store, at_end="finish").execute()
    assert sorted(sinks[0].values) == [("alone", None), ("left", None)]  # the end of input is not recorded
    assert sorted(sinks[1].values) == [("alone", None), ("left", "right")]

"""Interval joins find the same pairs as a nested loop over all records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.sinks import VecSink
from malflow.testing import PAUSE, assert_exactly_once
from tests.joins.model import interval_joined, on_time
from tests.joins.running import (
    counted,
    interval,
    joined_flow,
    late_results_of,
    results_of,
    script_of,
    sides_of,
    source_of,
    streams,
    swapped,
    with_itself,
)
from tests.kit.driving import Store, compiled, finish, run_of

pytestmark = pytest.mark.slow

hows = st.sampled_from(["inner", "left", "right", "outer"])
bounds = st.tuples(st.integers(-6, 6), st.integers(0, 8)).map(lambda it: (it[0], it[1] - it[0]))
"""A bound before and one after, of which one may be negative."""


def values_of(items: list[Any], bound: int, before: int, after: int, how: str = "inner") -> list[Any]:
    """Return the pairs of a join."""
    return [it.value for it in results_of(items, bound, interval(before, after, how))]


def test_a_record_whose_partner_was_dropped_is_no_outer_result() -> None:
    right = [(1, "a", 1, "right"), (1, "a", 2, "lone")]
    items = [*right, (0, "a", 4, "left"), (0, "b", 40, "l"), (1, "b", 40, "r"), (0, "b", 90, "l"), (1, "b", 90, "r")]
    values = values_of(items, 0, 3, 20, "left")  # the right record is dropped long before the left one
    assert ("left", None) not in values
    assert ("left", "right") in values


def test_records_are_kept_until_the_epoch_and_not_the_newest_record() -> None:
    items = [(0, "a", 1, "left"), (0, "a", 30, "new"), (1, "a", 30, "new"), (1, "a", 2, "old")]
    assert ("left", "old") in values_of(items, 40, 0, 5)


@pytest.mark.parametrize(
    ("before", "after", "partners"),
    [(2, 0, {8, 9, 10}), (0, 2, {10, 11, 12}), (-1, 2, {11, 12}), (2, -1, {8, 9}), (0, 0, {10})],
)
def test_bounds_of_both_sides_differ(before: int, after: int, partners: set[int]) -> None:
    right = [(1, "a", at, at) for at in range(5, 16)]
    for items in ([*right, (0, "a", 10, "left")], [(0, "a", 10, "left"), *right]):
        assert {partner for _, partner in values_of(items, 20, before, after)} == partners


def test_records_without_a_partner_are_emitted_at_their_last_chance() -> None:
    items = [(0, "a", 10, "left"), (1, "b", 10, "right"), (0, "c", 50, "l"), (1, "c", 50, "r")]
    add = interval(2, 5, "outer")
    found = {it.value: it.timestamp for it in results_of(items, 0, add)}
    assert found == {("left", None): 15, (None, "right"): 12, ("l", "r"): 50}


@given(items=streams, bound=st.integers(0, 6), limits=bounds, how=hows, workers=st.integers(1, 3), debug=st.booleans())
def test_pairs_are_those_of_a_nested_loop(
    items: list[Any], bound: int, limits: tuple[int, int], how: str, workers: int, debug: bool
) -> None:
    left, right = (on_time(side, bound) for side in sides_of(items))
    results = results_of(items, bound, interval(*limits, how), parallelism=workers, debug=debug)
    assert counted(results) == interval_joined(left, right, *limits, how)


@given(items=streams, bound=st.integers(0, 6), limits=bounds)
def test_swapped_sides_and_bounds_give_swapped_pairs(items: list[Any], bound: int, limits: tuple[int, int]) -> None:
    before, after = limits
    found = counted(results_of(items, bound, interval(before, after, "outer")))
    assert {(key, pair[::-1], at): count for (key, pair, at), count in found.items()} == counted(
        results_of(items, bound, swapped(interval(after, before, "outer")))
    )


@given(items=streams, bound=st.integers(0, 6), limits=bounds)
def test_an_outer_join_is_an_inner_one_and_both_rests(items: list[Any], bound: int, limits: tuple[int, int]) -> None:
    inner, left, right, outer = (
        counted(results_of(items, bound, interval(*limits, how))) for how in ("inner", "left", "right", "outer")
    )
    assert outer == inner + (left - inner) + (right - inner)
    assert all(pair[1] is None for _, pair, _ in left - inner)
    assert all(pair[0] is None for _, pair, _ in right - inner)


@given(items=streams, bound=st.integers(0, 6), limits=bounds, how=hows)
def test_a_stream_can_be_joined_with_itself(items: list[Any], bound: int, limits: tuple[int, int], how: str) -> None:
    left, _ = sides_of(items)
    records = on_time(left, bound)
    assert counted(results_of(items, bound, with_itself(interval(*limits, how)))) == interval_joined(
        records, records, *limits, how
    )


@given(items=streams, bound=st.integers(0, 6), limits=bounds, how=hows, stop=st.integers(1, 30), data=st.data())
def test_a_restart_changes_nothing(
    items: list[Any], bound: int, limits: tuple[int, int], how: str, stop: int, data: Any
) -> None:
    before, after = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)), label="workers")
    spread = [part for item in items for part in (item, PAUSE)]  # a tick for each record
    sink: VecSink[Any, Any, Any] = VecSink()
    build = joined_flow(source_of(spread), bound, interval(*limits, how), sink)
    store, program = Store(), compiled(build)
    run = store.restore(program, before)
    for _ in range(stop):
        if not run.is_finished:
            run.tick()
            store.commit(run, program)
    run.close()
    finish(store.restore(program, after))
    assert counted(sink) == counted(results_of(spread, bound, interval(*limits, how)))


def test_a_snapshot_knows_which_records_have_a_partner() -> None:
    items = [(0, "a", 1, "left"), PAUSE, (1, "a", 2, "right"), PAUSE, (0, "b", 50, "l"), (1, "b", 50, "r")]
    sink: VecSink[Any, Any, Any] = VecSink()
    store, program = Store(), compiled(joined_flow(source_of(items), 0, interval(3, 3, "outer"), sink))
    run = store.restore(program, 1)
    for _ in range(4):
        run.tick()
        store.commit(run, program)
    run.close()
    finish(store.restore(program, 1))
    assert sorted(it.value for it in sink) == [("l", "r"), ("left", "right")]


@given(items=streams, bound=st.integers(0, 6), limits=bounds, how=hows)
def test_batching_is_invisible(items: list[Any], bound: int, limits: tuple[int, int], how: str) -> None:
    at_once = [item for item in items if item is not PAUSE]
    add = interval(*limits, how)
    assert counted(results_of(items, bound, add)) == counted(results_of(at_once, bound, add))


@given(items=streams, limits=bounds, how=hows, data=st.data())
def test_the_order_of_arrival_does_not_matter(
    items: list[Any], limits: tuple[int, int], how: str, data: st.DataObject
) -> None:
    moved = data.draw(st.permutations(items))
    assert counted(results_of(items, 100, interval(*limits, how))) == counted(
        results_of(moved, 100, interval(*limits, how))
    )


@given(items=streams, bound=st.integers(0, 6), limits=bounds, how=hows)
def test_results_are_never_late(items: list[Any], bound: int, limits: tuple[int, int], how: str) -> None:
    assert late_results_of(items, bound, interval(*limits, how)) == []


@pytest.mark.parametrize("how", ["inner", "outer"])
@pytest.mark.parametrize("limits", [(2, 5), (0, 0), (-1, 4)])
def test_joins_are_exactly_once(how: str, limits: tuple[int, int]) -> None:
    records = [(n * 5 % 2, "ab"[n % 3 % 2], n * 7 % 11 + n, n) for n in range(20)]
    sink: VecSink[Any, Any, Any] = VecSink()
    build = joined_flow(source_of([]), 6, interval(*limits, how), sink)
    assert_exactly_once(build, {"source": script_of(records)}, max_examples=20)


@given(limits=bounds, how=hows)
def test_no_state_is_left_behind_the_last_epoch(limits: tuple[int, int], how: str) -> None:
    items = [(side, key, at, at) for at in range(50) for key in "ab" for side in (0, 1)]
    items += [(0, "c", 1000, 0), (1, "c", 1000, 0)]
    with run_of(joined_flow(source_of(items), 3, interval(*limits, how), VecSink())) as run:
        while not run.is_finished:
            run.tick()
        (state,) = [state for (_, name), state in run.states().items() if name == "join"]
        assert {key for _, key in state} == {"c"}

"""As-of joins find the newest right record up to each left one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.sinks import VecSink
from malflow.testing import PAUSE, assert_exactly_once
from tests.joins.model import asof_joined, on_time
from tests.joins.running import (
    asof,
    counted,
    joined_flow,
    late_results_of,
    results_of,
    script_of,
    sides_of,
    source_of,
    streams,
    with_itself,
)
from tests.kit.driving import Store, compiled, finish, run_of

pytestmark = pytest.mark.slow

hows = st.sampled_from(["left", "inner"])
tolerances = st.one_of(st.none(), st.integers(0, 10))


@given(
    items=streams,
    bound=st.integers(0, 6),
    tolerance=tolerances,
    how=hows,
    workers=st.integers(1, 3),
    debug=st.booleans(),
)
def test_each_left_record_finds_the_newest_right_one(
    items: list[Any], bound: int, tolerance: int | None, how: str, workers: int, debug: bool
) -> None:
    left, right = (on_time(side, bound) for side in sides_of(items))
    results = results_of(items, bound, asof(tolerance, how), parallelism=workers, debug=debug)
    assert counted(results) == asof_joined(left, right, tolerance, how)


crowded = st.lists(st.tuples(st.integers(0, 1), st.just("a"), st.integers(0, 3)), max_size=15)


@given(items=crowded, bound=st.integers(0, 4), tolerance=tolerances, how=hows, modulus=st.integers(1, 5))
def test_a_tie_orders_right_records_of_one_timestamp(
    items: list[Any], bound: int, tolerance: int | None, how: str, modulus: int
) -> None:
    items = [(*item, number) for number, item in enumerate(items)]
    left, right = (on_time(side, bound) for side in sides_of(items))
    add = asof(tolerance, how, tie=lambda value: -value % modulus)
    expected = asof_joined(left, right, tolerance, how, lambda value: -value % modulus)
    assert counted(results_of(items, bound, add)) == expected


@given(items=streams, bound=st.integers(0, 6), tolerance=tolerances)
def test_results_of_a_key_are_in_the_order_of_time(items: list[Any], bound: int, tolerance: int | None) -> None:
    results = results_of(items, bound, asof(tolerance), parallelism=2)
    for key in "ab":
        timestamps = [it.timestamp for it in results if it.key == key]
        assert timestamps == sorted(timestamps)


@given(items=streams, bound=st.integers(0, 6), tolerance=tolerances)
def test_a_stream_can_be_joined_with_itself(items: list[Any], bound: int, tolerance: int | None) -> None:
    left, _ = sides_of(items)
    records = on_time(left, bound)
    found = counted(results_of(items, bound, with_itself(asof(tolerance))))
    assert found == asof_joined(records, records, tolerance, "left")


@given(items=streams, bound=st.integers(0, 6), tolerance=tolerances, stop=st.integers(1, 30), data=st.data())
def test_a_restart_changes_nothing(
    items: list[Any], bound: int, tolerance: int | None, stop: int, data: st.DataObject
) -> None:
    before, after = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)), label="workers")
    spread = [part for item in items for part in (item, PAUSE)]  # a tick for each record
    sink: VecSink[Any, Any, Any] = VecSink()
    build = joined_flow(source_of(spread), bound, asof(tolerance), sink)
    store, program = Store(), compiled(build)
    run = store.restore(program, before)
    for _ in range(stop):
        if not run.is_finished:
            run.tick()
            store.commit(run, program)
    run.close()
    finish(store.restore(program, after))
    assert counted(sink) == counted(results_of(spread, bound, asof(tolerance)))


@given(items=streams, bound=st.integers(0, 6), tolerance=tolerances)
def test_batching_is_invisible(items: list[Any], bound: int, tolerance: int | None) -> None:
    at_once = [item for item in items if item is not PAUSE]
    assert counted(results_of(items, bound, asof(tolerance))) == counted(results_of(at_once, bound, asof(tolerance)))


@given(items=streams, tolerance=tolerances, data=st.data())
def test_the_order_of_arrival_does_not_matter(items: list[Any], tolerance: int | None, data: st.DataObject) -> None:
    """Except between right records of one key with equal timestamps, of which the last one counts."""
    distinct = [*{item if item is PAUSE else item[:3]: item for item in items}.values()]
    one, other = (results_of(it, 100, asof(tolerance)) for it in (distinct, data.draw(st.permutations(distinct))))
    assert counted(one) == counted(other)


@given(items=streams, bound=st.integers(0, 6), tolerance=tolerances)
def test_results_are_never_late(items: list[Any], bound: int, tolerance: int | None) -> None:
    assert late_results_of(items, bound, asof(tolerance)) == []


@pytest.mark.parametrize("tolerance", [None, 0, 4])
def test_joins_are_exactly_once(tolerance: int | None) -> None:
    records = [(n * 5 % 2, "ab"[n % 3 % 2], n * 7 % 11 + n, n) for n in range(20)]
    sink: VecSink[Any, Any, Any] = VecSink()
    build = joined_flow(source_of([]), 6, asof(tolerance), sink)
    assert_exactly_once(build, {"source": script_of(records)}, max_examples=20)


@pytest.mark.parametrize("sides", [(0, 1), (1,)])
@pytest.mark.parametrize(("tolerance", "kept"), [(None, {(1, "a"): [[49], [49]]}), (0, {}), (5, {})])
def test_only_needed_records_are_kept_behind_the_last_epoch(
    tolerance: int | None, kept: Any, sides: tuple[int, ...]
) -> None:
    items = [(side, "a", at, at) for at in range(50) for side in sides]
    items += [(0, "c", 1000, 0), (1, "c", 1000, 0)]
    with run_of(joined_flow(source_of(items), 3, asof(tolerance), VecSink())) as run:
        while not run.is_finished:
            run.tick()
        (state,) = [state for (_, name), state in run.states().items() if name == "join"]
        assert {slot: rows for slot, rows in state.items() if slot[1] != "c"} == kept


def test_the_version_of_an_epoch_outlives_it() -> None:
    """Left records behind the epoch, and before the next version, still need it."""
    items = [(1, "a", 1, "old"), (1, "a", 9, "new"), (0, "a", 2, "x"), (0, "b", 7, "y"), (0, "a", 5, "z")]
    values = {it.value for it in results_of(items, 4, asof())}
    assert values == {("x", "old"), ("y", None), ("z", "old")}


def test_versions_of_a_key_that_falls_silent_are_dropped() -> None:
    items = [(1, "a", at, at) for at in (10, 11, 12)] + [(0, "c", 15, 0), (1, "c", 15, 0)]
    items += [(0, "c", 1000, 0), (1, "c", 1000, 0)]
    with run_of(joined_flow(source_of(items), 5, asof(), VecSink())) as run:
        while not run.is_finished:
            run.tick()
        (state,) = [state for (_, name), state in run.states().items() if name == "join"]
        assert state[1, "a"] == [[12], [12]]

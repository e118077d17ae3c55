"""Cogroups have the records of all streams in each window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.sinks import VecSink
from malflow.testing import PAUSE, assert_exactly_once
from malflow.windows import Timing, session, sliding, tumbling
from tests.joins.running import (
    Add,
    joined_flow,
    late_results_of,
    results_of,
    script_of,
    sides_of,
    source_of,
    streams,
)
from tests.kit.driving import Store, compiled, finish, run_of
from tests.windows.model import parted, sessions, sliding_windows, windowed

pytestmark = pytest.mark.slow

WINDOWS = {
    "tumbling": (tumbling(5), partial(windowed, windows_of=partial(sliding_windows, 5, 5, 0))),
    "sliding": (sliding(6, 2), partial(windowed, windows_of=partial(sliding_windows, 6, 2, 0))),
    "gaps": (sliding(2, 3), partial(windowed, windows_of=partial(sliding_windows, 2, 3, 0))),
    "session": (session(3), partial(sessions, gap=3)),
}
kinds = st.sampled_from(sorted(WINDOWS))


def grouped(kind: str) -> Add:
    """Return a function that groups three streams, of which the third is a part of the first."""

    def add(left: Any, right: Any) -> Any:
        third = left.filter("third", lambda value: value % 3 == 0)
        return left.window(WINDOWS[kind][0]).cogroup("groups", right, third)

    return add


def found(results: Any) -> Counter[Any]:
    """Return results as the model has them."""
    return Counter(
        (it.key, it.value.start, it.value.end, tuple(map(tuple, map(sorted, it.value.value))), it.value.timing)
        for it in results
    )


def expected(items: list[Any], bound: int, kind: str) -> Counter[Any]:
    """Return the groups of a model that has all records at once."""
    (left, _, one), (right, _, other) = (parted(side, bound) for side in sides_of(items))
    tagged = [(key, at, (0, value)) for key, at, value in left] + [(key, at, (1, value)) for key, at, value in right]
    tagged += [(key, at, (2, value)) for key, at, value in left if value % 3 == 0]
    model: Callable[[Any], dict[tuple[Any, Any, Any], list[Any]]] = WINDOWS[kind][1]
    groups: Counter[Any] = Counter()
    for (key, start, end), values in model(tagged).items():
        lists = tuple(tuple(sorted(value for side, value in values if side == it)) for it in range(3))
        is_final = one is not None and other is not None and min(one, other) >= end - 1
        groups[key, start, end, lists, Timing.FINAL if is_final else Timing.END] += 1
    return groups


@given(items=streams, bound=st.integers(0, 6), kind=kinds, workers=st.integers(1, 3), debug=st.booleans())
def test_windows_have_the_records_of_all_streams(
    items: list[Any], bound: int, kind: str, workers: int, debug: bool
) -> None:
    results = results_of(items, bound, grouped(kind), parallelism=workers, debug=debug)
    assert found(results) == expected(items, bound, kind)


@given(items=streams, bound=st.integers(0, 6), kind=kinds, stop=st.integers(1, 30), data=st.data())
def test_a_restart_changes_nothing(items: list[Any], bound: int, kind: str, stop: int, data: st.DataObject) -> None:
    before, after = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)), label="workers")
    spread = [part for item in items for part in (item, PAUSE)]  # a tick for each record
    sink: VecSink[Any, Any, Any] = VecSink()
    build = joined_flow(source_of(spread), bound, grouped(kind), sink)
    store, program = Store(), compiled(build)
    run = store.restore(program, before)
    for _ in range(stop):
        if not run.is_finished:
            run.tick()
            store.commit(run, program)
    run.close()
    finish(store.restore(program, after))
    assert found(sink) == found(results_of(spread, bound, grouped(kind)))


@given(items=streams, bound=st.integers(0, 6), kind=kinds)
def test_batching_is_invisible(items: list[Any], bound: int, kind: str) -> None:
    at_once = [item for item in items if item is not PAUSE]
    assert found(results_of(items, bound, grouped(kind))) == found(results_of(at_once, bound, grouped(kind)))


@given(items=streams, kind=kinds, data=st.data())
def test_the_order_of_arrival_does_not_matter(items: list[Any], kind: str, data: st.DataObject) -> None:
    moved = data.draw(st.permutations(items))
    assert found(results_of(items, 100, grouped(kind))) == found(results_of(moved, 100, grouped(kind)))


@given(items=streams, bound=st.integers(0, 6), kind=kinds)
def test_results_are_never_late(items: list[Any], bound: int, kind: str) -> None:
    assert late_results_of(items, bound, grouped(kind)) == []


@pytest.mark.parametrize("kind", sorted(WINDOWS))
def test_cogroups_are_exactly_once(kind: str) -> None:
    records = [(n * 5 % 2, "ab"[n % 3 % 2], n * 7 % 11 + n, n) for n in range(20)]
    sink: VecSink[Any, Any, Any] = VecSink()
    build = joined_flow(source_of([]), 6, grouped(kind), sink)
    assert_exactly_once(build, {"source": script_of(records)}, max_examples=15)


@pytest.mark.parametrize("kind", sorted(WINDOWS))
def test_no_state_is_left_behind_the_last_epoch(kind: str) -> None:
    items = [(side, key, at, at) for at in range(50) for key in "ab" for side in (0, 1)]
    items += [(0, "c", 1000, 0), (1, "c", 1000, 0)]
    with run_of(joined_flow(source_of(items), 3, grouped(kind), VecSink())) as run:
        while not run.is_finished:
            run.tick()
        (state,) = [state for (_, name), state in run.states().items() if name == "groups"]
        assert len(state) <= 1


@pytest.mark.parametrize("kind", sorted(WINDOWS))
def test_changed_results_change_no_other_result(kind: str) -> None:
    def spoil(result: Any) -> Any:
        for group in result.value:
            group.append("spoilt")
        return result

    items = [(n % 2, "a", 4 * n, n) for n in range(20)]  # most panes have one record, and windows share them
    spoilt = results_of(items, 3, lambda left, right: grouped(kind)(left, right).map("spoil", spoil))
    assert all(group.count("spoilt") == 1 for it in spoilt for group in it.value.value)

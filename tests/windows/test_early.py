"""Early results of windows that are still open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, agg
from malflow.sinks import VecSink
from malflow.testing import PAUSE, Timed, assert_exactly_once
from malflow.windows import Timing, WindowResult, calendar, counting, session, sliding, tumbling
from tests.windows.model import early_results
from tests.windows.running import Item, Watch, restarted, results_of, source_of, windowed_flow

pytestmark = pytest.mark.slow

Shape = tuple[int, int, int]
"""The size of windows, the distance of their starts, and that of early results."""

keys = st.sampled_from(["a", "b", "c"])
records = st.tuples(keys, st.integers(-30, 60), st.integers(0, 9))
streams = st.lists(st.one_of(records, st.just(PAUSE)), max_size=40)
bounds = st.integers(0, 6)
shapes = st.one_of(
    st.tuples(st.integers(1, 20), st.integers(1, 6)).map(lambda it: (it[0], it[0], it[1])),
    st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 6)),
)


def aggregated(shape: Shape, *aggregators: Any) -> Callable[[Any], Any]:
    """Return a function that adds windows with early results to a keyed stream."""
    size, every, early = shape
    windows = tumbling(size) if size == every else sliding(size, every)
    return lambda keyed: keyed.window(windows, early=early).aggregate("windows", *aggregators)


def early(messages: Sequence[Any]) -> list[Any]:
    """Return the early results."""
    return [it for it in messages if it.value.timing is Timing.EARLY]


@given(items=streams, bound=bounds, shape=shapes)
def test_windows_that_changed_have_early_results(items: list[Item], bound: int, shape: Shape) -> None:
    arrived = [item for item in items if item is not PAUSE]
    found = Counter(
        (it.key, it.value.start, it.value.end, it.timestamp, tuple(sorted(it.value.value)))
        for it in early(results_of(items, bound, aggregated(shape, agg.collect())))
    )
    assert found == Counter((*it[:4], tuple(sorted(it[4]))) for it in early_results(arrived, bound, *shape))


@given(items=streams, bound=bounds, shape=shapes, workers=st.integers(1, 3), debug=st.booleans())
def test_final_results_do_not_change(items: list[Item], bound: int, shape: Shape, workers: int, debug: bool) -> None:
    messages = results_of(items, bound, aggregated(shape, agg.sum()), parallelism=workers, debug=debug)
    final = [it for it in messages if it.value.timing is not Timing.EARLY]
    size, every, _ = shape
    plain = results_of(items, bound, aggregated((size, every, 1000), agg.sum()), parallelism=workers)
    assert Counter(map(repr, final)) == Counter(map(repr, plain))


@given(items=streams, bound=bounds, shape=shapes, data=st.data())
def test_batching_is_invisible(items: list[Item], bound: int, shape: Shape, data: st.DataObject) -> None:
    arrived = [item for item in items if item is not PAUSE]
    cut = list(arrived)
    for at in sorted(data.draw(st.lists(st.integers(0, len(arrived)), max_size=5)), reverse=True):
        cut.insert(at, PAUSE)
    add = aggregated(shape, agg.sum())
    assert list(map(repr, results_of(cut, bound, add))) == list(map(repr, results_of(arrived, bound, add)))


@given(items=streams, bound=bounds, shape=shapes, stop=st.integers(1, 30))
def test_a_restart_changes_nothing(items: list[Item], bound: int, shape: Shape, stop: int) -> None:
    """Otherwise the windows that had early results before would have the same again, or none for what is new."""
    spread = [part for item in items for part in (item, PAUSE)]  # a tick for each record
    add = aggregated(shape, agg.sum())
    undisturbed = results_of(spread, bound, add)
    sink: VecSink[Any, Any, Any] = VecSink()
    restarted(windowed_flow(source_of(spread), bound, add, sink), stop)
    assert list(map(repr, sink)) == list(map(repr, undisturbed))


@given(items=streams, bound=bounds, shape=shapes)
def test_time_only_moves_forward(items: list[Item], bound: int, shape: Shape) -> None:
    watch = Watch()
    results_of(items, bound, lambda keyed: aggregated(shape, agg.count())(keyed).stateless_op("see", watch))
    watch.assert_forward()


def test_final_results_are_exactly_once() -> None:
    items = [Timed(("ab"[n % 2], n), n * 7 % 23 + n) for n in range(20)]
    build = windowed_flow(source_of([]), 9, aggregated((8, 4, 2), agg.sum(), agg.count()), VecSink())
    assert_exactly_once(build, {"source": items}, max_examples=10)


def test_an_epoch_that_passes_several_multiples_gives_one_result() -> None:
    found = results_of([("a", 0, 1), ("b", 17, 1)], 0, aggregated((100, 100, 5), agg.count()))
    assert [(it.value, it.timestamp) for it in early(found)] == [
        (WindowResult(0, 100, 1, Timing.EARLY), 14),
        (WindowResult(0, 100, 1, Timing.EARLY), 14),
    ]


def test_early_results_hold_records_ahead_of_the_epoch() -> None:
    found = results_of([("a", 9, 1), ("a", 12, 1), ("a", 15, 1)], 10, aggregated((100, 100, 5), agg.count()))
    assert [(it.value.value, it.timestamp) for it in early(found)] == [(3, 4)]


@pytest.mark.parametrize(
    ("windows", "distance", "why"),
    [
        (session(5), 1, "has sessions, .* grow"),
        (counting(5), 1, "no early results"),
        (tumbling(5), timedelta(1), "use a number"),
        (calendar("day"), 5, "use a timedelta"),
        (tumbling(5), 0, "positive"),
    ],
)
def test_early_results_that_make_no_sense_are_refused(windows: Any, distance: Any, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        results_of([], 0, lambda keyed: keyed.window(windows, early=distance).aggregate("windows", agg.count()))

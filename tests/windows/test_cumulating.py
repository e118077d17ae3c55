"""Windows that grow agree with an interpreter that searches all records for each window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, agg
from malflow.sinks import VecSink
from malflow.testing import PAUSE, Timed, assert_exactly_once
from malflow.windows import WindowResult, cumulating
from tests.windows.model import Record, late_windows, parted, windowed
from tests.windows.running import Item, collected, restarted, results_of, source_of, windowed_flow
from tests.windows.test_late import expected as expected_with_late
from tests.windows.test_late import found_in, run

pytestmark = pytest.mark.slow

Shape = tuple[int, int, int]
"""How many panes a window grows to, the length of a pane, and the offset."""

keys = st.sampled_from(["a", "b", "c"])
records = st.tuples(keys, st.integers(-30, 60), st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1.0]))
streams = st.lists(st.one_of(records, st.just(PAUSE)), max_size=40)
shapes = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 20))


def growing(shape: Shape) -> Any:
    """Return the windows of a shape."""
    count, every, offset = shape
    return cumulating(count * every, every, offset=offset)


def growing_windows(shape: Shape, timestamp: int) -> list[tuple[int, int]]:
    """Return the start and the end of each window that contains a timestamp."""
    count, every, offset = shape
    start = (timestamp - offset) // (count * every) * count * every + offset
    ends = range(start + every, start + count * every + 1, every)
    return [(start, end) for end in ends if end > timestamp]


def expected(items: Sequence[Item], bound: int, shape: Shape) -> Counter[Any]:
    """Return the results of the interpreter: the values of each key and window, in no order."""
    arrived: list[Record] = [item for item in items if item is not PAUSE]
    on_time, _, _ = parted(arrived, bound)
    found = windowed(on_time, partial(growing_windows, shape)).items()
    return Counter((key, start, end, end - 1, repr(sorted(values))) for (key, start, end), values in found)


def aggregated(shape: Shape, *aggregators: Any) -> Callable[[Any], Any]:
    """Return a function that adds the windows to a keyed stream."""
    return lambda keyed: keyed.window(growing(shape)).aggregate("windows", *aggregators)


@given(items=streams, bound=st.integers(0, 6), shape=shapes, workers=st.integers(1, 3), debug=st.booleans())
def test_each_window_has_exactly_its_records(
    items: list[Item], bound: int, shape: Shape, workers: int, debug: bool
) -> None:
    messages = results_of(items, bound, aggregated(shape, collected()), parallelism=workers, debug=debug)
    found = [(it.key, it.value.start, it.value.end, it.timestamp, repr(sorted(it.value.value))) for it in messages]
    assert Counter(found) == expected(items, bound, shape)


@given(items=streams, bound=st.integers(0, 15), shape=shapes, data=st.data())
def test_batching_is_invisible(items: list[Item], bound: int, shape: Shape, data: st.DataObject) -> None:
    arrived = [item for item in items if item is not PAUSE]
    cut = list(arrived)
    for at in sorted(data.draw(st.lists(st.integers(0, len(arrived)), max_size=5)), reverse=True):
        cut.insert(at, PAUSE)
    add = aggregated(shape, agg.sum(), agg.count(), agg.mean())
    assert list(map(repr, results_of(cut, bound, add))) == list(map(repr, results_of(arrived, bound, add)))


@given(items=streams, bound=st.integers(0, 15), shape=shapes, debug=st.booleans())
def test_late_records_are_added_to_windows_that_are_open(
    items: list[Item], bound: int, shape: Shape, debug: bool
) -> None:
    arrived = [item for item in items if item is not PAUSE]
    windows, _, late = late_windows(arrived, bound, partial(growing_windows, shape))
    assert found_in(run(items, bound, growing(shape), agg.collect(), debug=debug)) == expected_with_late(windows, late)


@given(items=streams, bound=st.integers(0, 15), shape=shapes, stop=st.integers(1, 60))
def test_a_restart_changes_nothing(items: list[Item], bound: int, shape: Shape, stop: int) -> None:
    """Compare floats to the last bit, and the order."""
    spread = [part for item in items for part in (item, PAUSE)]
    add, sink = aggregated(shape, agg.sum()), VecSink[Any, Any, Any]()
    restarted(windowed_flow(source_of(spread), bound, add, sink), stop)
    assert list(map(repr, sink)) == list(map(repr, results_of(spread, bound, add)))


@pytest.mark.parametrize("shape", [(3, 2, 0), (4, 1, 1)])
def test_windows_are_exactly_once(shape: Shape) -> None:
    items = [Timed(("ab"[n % 2], n), n * 7 % 23 + n) for n in range(20)]
    sink: VecSink[Any, Any, Any] = VecSink()
    build = windowed_flow(source_of([]), 9, aggregated(shape, agg.sum(), agg.count(), agg.max()), sink)
    assert_exactly_once(build, {"source": items}, max_examples=20)


def test_a_size_that_is_no_multiple_is_refused() -> None:
    with pytest.raises(GraphError, match="need a size that is a multiple of every; got 10 and 4"):
        cumulating(10, 4)


def test_early_results_are_refused() -> None:
    with pytest.raises(GraphError, match="are results so far already: leave out early="):
        results_of([], 0, lambda keyed: keyed.window(cumulating(4, 2), early=1).aggregate("windows", agg.count()))


def test_a_question_has_the_results_so_far() -> None:
    results = results_of([("a", 1, 1.0), ("a", 2, 1.0)], 0, aggregated((3, 2, 0), agg.count()))
    assert [it.value[:3] for it in results] == [
        WindowResult(0, end, n, None)[:3] for end, n in ((2, 1), (4, 2), (6, 2))
    ]

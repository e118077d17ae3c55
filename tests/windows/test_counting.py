"""Count windows agree with an interpreter that keeps all records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import OperatorError, agg
from malflow.message import DataMessage
from malflow.sinks import VecSink
from malflow.testing import PAUSE, Timed, assert_exactly_once
from malflow.windows import Timing, WindowResult, counting, tumbling
from tests.kit.driving import run_of
from tests.windows.model import counted, parted
from tests.windows.running import Item, Watch, collected, restarted, results_of, source_of, windowed_flow

pytestmark = pytest.mark.slow

keys = st.sampled_from(["a", "b", "c"])
records = st.tuples(keys, st.integers(-30, 60), st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1.0]))
streams = st.lists(st.one_of(records, st.just(PAUSE)), max_size=40)
bounds = st.integers(0, 15)
shapes = st.tuples(st.integers(1, 6), st.integers(1, 6))


def aggregated(shape: tuple[int, int], *aggregators: Any) -> Callable[[Any], Any]:
    """Return a function that adds windows of a number of records to a keyed stream."""
    return lambda keyed: keyed.window(counting(*shape)).aggregate("counts", *aggregators)


@given(items=streams, bound=bounds, shape=shapes, workers=st.integers(1, 3), debug=st.booleans())
def test_each_window_has_exactly_its_records(
    items: list[Item], bound: int, shape: tuple[int, int], workers: int, debug: bool
) -> None:
    arrived = [item for item in items if item is not PAUSE]
    expected: Counter[str] = Counter()
    for key, found in counted(parted(arrived, bound)[0], *shape).items():
        for window in found:
            timing = Timing.FINAL if len(window) == shape[0] else Timing.END
            values = tuple(value for _, value in window)
            expected[repr((key, WindowResult(window[0][0], window[-1][0] + 1, values, timing)))] += 1
    messages = results_of(items, bound, aggregated(shape, collected()), parallelism=workers, debug=debug)
    assert Counter(repr((it.key, it.value)) for it in messages) == expected


@given(items=streams, bound=bounds, shape=shapes, data=st.data())
def test_batching_is_invisible(items: list[Item], bound: int, shape: tuple[int, int], data: st.DataObject) -> None:
    arrived = [item for item in items if item is not PAUSE]
    cut = list(arrived)
    for at in sorted(data.draw(st.lists(st.integers(0, len(arrived)), max_size=5)), reverse=True):
        cut.insert(at, PAUSE)
    add = aggregated(shape, agg.sum(), agg.count(), agg.mean())
    assert list(map(repr, results_of(cut, bound, add))) == list(map(repr, results_of(arrived, bound, add)))


@given(items=streams, bound=bounds, shape=shapes, stop=st.integers(1, 30), rescale=st.integers(1, 3))
def test_a_restart_changes_nothing(
    items: list[Item], bound: int, shape: tuple[int, int], stop: int, rescale: int
) -> None:
    """Compare floats to the last bit, and the order too where the number of workers stays the same."""
    spread = [part for item in items for part in (item, PAUSE)]  # a tick for each record
    add = aggregated(shape, agg.sum())
    undisturbed = results_of(spread, bound, add)
    sink: VecSink[Any, Any, Any] = VecSink()
    build = windowed_flow(source_of(spread), bound, add, sink)
    restarted(build, stop, rescale)
    if rescale == 1:
        assert list(map(repr, sink)) == list(map(repr, undisturbed))
    else:
        assert Counter(map(repr, sink)) == Counter(map(repr, undisturbed))


@given(items=streams, bound=bounds, shape=shapes)
def test_time_only_moves_forward(items: list[Item], bound: int, shape: tuple[int, int]) -> None:
    watch = Watch()
    results_of(items, bound, lambda keyed: aggregated(shape, agg.count())(keyed).stateless_op("see", watch))
    watch.assert_forward(at_epochs=False)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 5)])
def test_windows_of_records_are_exactly_once(shape: tuple[int, int]) -> None:
    items = [Timed(("ab"[n % 2], n), n * 7 % 23 + n) for n in range(20)]
    build = windowed_flow(source_of([]), 9, aggregated(shape, agg.sum(), agg.count(), agg.max()), VecSink())
    assert_exactly_once(build, {"source": items}, max_examples=20)


@pytest.mark.parametrize("shape", [(2, 2), (1, 2)])
def test_keys_whose_windows_are_full_have_no_state(shape: tuple[int, int]) -> None:
    items = [(n % 50, n, 1) for n in range(100)]
    with run_of(windowed_flow(source_of(items), 10, aggregated(shape, agg.count()), VecSink())) as run:
        while not run.is_finished:
            run.tick()
        (state,) = [state for (_, name), state in run.states().items() if name == "counts"]
        assert not state


def results(records: Sequence[Any], shape: tuple[int, ...], bound: Any = 100) -> list[Any]:
    """Return the messages of windows in which values are collected."""
    return results_of(records, bound, lambda it: it.window(counting(*shape)).aggregate("counts", agg.collect()))


def test_bounds_are_those_of_the_first_and_the_last_record_to_arrive() -> None:
    assert results([("a", 8, 1), ("a", 3, 2)], (2,)) == [DataMessage("a", WindowResult(8, 4, (1, 2), Timing.FINAL), 3)]


def test_an_end_is_the_instant_after_the_last_record() -> None:
    day = date(2026, 3, 1)
    (found,) = results([("a", day, 1)], (1,), timedelta(days=1))
    assert (found.value.end, found.timestamp) == (date(2026, 3, 2), day)


def test_a_window_that_is_not_full_at_the_end_is_in_time() -> None:
    """Its last record may be far behind the epoch, and its result would be late for windows further on."""

    def add(keyed: Any) -> Any:
        pairs = keyed.window(counting(2)).aggregate("pairs", agg.count())
        return pairs.window(tumbling(10)).aggregate("tens", agg.sum("value"))

    found = results_of([("a", 0, 1), ("b", 100, 1), ("b", 101, 1)], 0, add)
    assert [(it.key, it.value[:3]) for it in found] == [("b", (100, 110, 2)), ("a", (100, 110, 1))]


def test_records_between_windows_are_in_none() -> None:
    found = results([("a", at, at) for at in range(5)], (1, 3))
    assert [it.value.value for it in found] == [(0,), (3,)]


def test_windows_overlap() -> None:
    found = results([("a", at, at) for at in range(6)], (3, 2))
    assert [(it.value.value, it.value.timing) for it in found] == [
        ((0, 1, 2), Timing.FINAL),
        ((2, 3, 4), Timing.FINAL),
        ((4, 5), Timing.END),
    ]


def test_windows_of_records_need_no_merge() -> None:
    add = aggregated((2, 1), agg.fold(int, lambda acc, value: acc + value))
    assert [it.value.value for it in results_of([("a", at, at) for at in range(3)], 0, add)] == [1, 3, 2]


def test_a_failing_aggregator_names_its_record() -> None:
    with pytest.raises(OperatorError, match=r"'counts' .*key 'b'.*'x'"):
        results_of([("a", 1, 1), ("b", 2, 1), ("b", 3, "x")], 0, aggregated((2, 1), agg.mean()))

"""Windows of event time agree with an interpreter that keeps all records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malflow import OperatorError, agg
from malflow.message import DataMessage
from malflow.sinks import VecSink
from malflow.testing import PAUSE, Timed, assert_exactly_once
from malflow.windows import TimeWindows, Timing, WindowResult, sliding, tumbling
from tests.kit.driving import Store, compiled, finish, run_of
from tests.windows.model import Record, parted, sliding_windows, windowed
from tests.windows.running import Item, Watch, collected, results_of, source_of, windowed_flow

pytestmark = pytest.mark.slow

Shape = tuple[int, int, int]
"""The size of windows, the distance of their starts, and their offset."""

keys = st.sampled_from(["a", "b", "c"])
records = st.tuples(keys, st.integers(-30, 60), st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1.0]))
streams = st.lists(st.one_of(records, st.just(PAUSE)), max_size=40)
crowded_records = st.tuples(st.just("a"), st.integers(0, 15), st.sampled_from([0.1, 0.2, 0.3, 0.7]))


def _moving_on(items: list[Item]) -> list[Item]:
    return [it if it is PAUSE else (it[0], it[1] + n // 2, it[2]) for n, it in enumerate(items)]


crowded = st.lists(st.one_of(crowded_records, st.just(PAUSE)), min_size=10, max_size=40).map(_moving_on)
"""Records of one key, so that windows have many and the order of their sums shows."""
shapes = st.one_of(
    st.tuples(st.integers(1, 12), st.integers(0, 20)).map(lambda it: (it[0], it[0], it[1])),
    st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 20)),
)


def windows_of(shape: Shape) -> TimeWindows:
    """Return the windows of a shape."""
    size, every, offset = shape
    return tumbling(size, offset=offset) if size == every else sliding(size, every, offset=offset)


def aggregated(shape: Shape, *aggregators: Any) -> Callable[[Any], Any]:
    """Return a function that adds the windows to a keyed stream."""
    return lambda keyed: keyed.window(windows_of(shape)).aggregate("windows", *aggregators)


def expected(items: Sequence[Item], bound: int, shape: Shape) -> Counter[Any]:
    """Return the results of the interpreter, with the values in order of arrival."""
    arrived: list[Record] = [item for item in items if item is not PAUSE]
    on_time, _, epoch = parted(arrived, bound)
    size, every, offset = shape
    found: Counter[Any] = Counter()
    for (key, start, end), values in windowed(on_time, partial(sliding_windows, size, every, offset)).items():
        timing = Timing.FINAL if epoch >= end - 1 else Timing.END
        found[repr(DataMessage(key, WindowResult(start, end, tuple(values), timing), end - 1))] += 1
    return found


@given(items=streams, bound=st.integers(0, 6), shape=shapes, workers=st.integers(1, 3), debug=st.booleans())
def test_each_window_has_exactly_its_records(
    items: list[Item], bound: int, shape: Shape, workers: int, debug: bool
) -> None:
    messages = results_of(items, bound, aggregated(shape, collected()), parallelism=workers, debug=debug)
    exact = Counter(map(_sorted, map(repr, messages))), Counter(map(_sorted, expected(items, bound, shape).elements()))
    assert exact[0] == exact[1]
    if shape[0] == shape[1]:  # overlapping windows have their panes' records one after the other
        assert Counter(map(repr, messages)) == expected(items, bound, shape)


def _sorted(text: str) -> str:
    """Return a representation with its letters sorted: the order in overlapping windows is that of their panes."""
    return "".join(sorted(text))


@given(items=st.one_of(streams, crowded), bound=st.integers(0, 20), shape=shapes, data=st.data())
def test_batching_is_invisible(items: list[Item], bound: int, shape: Shape, data: st.DataObject) -> None:
    arrived = [item for item in items if item is not PAUSE]
    cuts = data.draw(st.lists(st.integers(0, len(arrived)), max_size=5))
    cut = list(arrived)
    for at in sorted(cuts, reverse=True):
        cut.insert(at, PAUSE)
    add = aggregated(shape, agg.sum(), agg.count(), agg.mean())
    assert list(map(repr, results_of(cut, bound, add))) == list(map(repr, results_of(arrived, bound, add)))


deep = st.tuples(st.integers(4, 12), st.sampled_from([1, 2]), st.just(0))
"""Windows of many panes, where it shows in which order these are combined."""


@given(
    items=st.one_of(streams, crowded),
    bound=st.integers(0, 15),
    shape=st.one_of(shapes, deep),
    stop=st.integers(1, 60),
    rescale=st.integers(1, 3),
)
@example(items=[("a", n // 2, 0.1) for n in range(10)], bound=0, shape=(4, 1, 0), stop=17, rescale=1).via(
    "sums that are rounded otherwise if the panes are combined in another order after the restart"
)
def test_a_restart_changes_nothing(items: list[Item], bound: int, shape: Shape, stop: int, rescale: int) -> None:
    """Compare floats to the last bit, and the order too where the number of workers stays the same."""
    spread = [part for item in items for part in (item, PAUSE)]  # a tick for each record
    add = aggregated(shape, agg.sum())
    undisturbed = results_of(spread, bound, add)
    sink: VecSink[Any, Any, Any] = VecSink()
    build = windowed_flow(source_of(spread), bound, add, sink)
    store, program = Store(), compiled(build)
    run = store.restore(program, 1)
    for _ in range(stop):
        if not run.is_finished:
            run.tick()
            store.commit(run, program)
    run.close()
    finish(store.restore(program, rescale))
    if rescale == 1:
        assert list(map(repr, sink)) == list(map(repr, undisturbed))
    else:
        assert Counter(map(repr, sink)) == Counter(map(repr, undisturbed))


@pytest.mark.parametrize("shape", [(4, 4, 1), (6, 2, 0), (5, 3, 0), (2, 5, 0)])
def test_windows_are_exactly_once(shape: Shape) -> None:
    items = [Timed(("ab"[n % 2], n), n * 7 % 23 + n) for n in range(20)]
    sink: VecSink[Any, Any, Any] = VecSink()
    build = windowed_flow(source_of([]), 9, aggregated(shape, agg.sum(), agg.count(), agg.max()), sink)
    assert_exactly_once(build, {"source": items}, max_examples=20)


@given(items=streams, bound=st.integers(0, 6), shape=shapes)
def test_time_only_moves_forward(items: list[Item], bound: int, shape: Shape) -> None:
    watch = Watch()
    results_of(items, bound, lambda keyed: aggregated(shape, agg.count())(keyed).stateless_op("see", watch))
    watch.assert_forward()


@given(shape=shapes)
def test_no_state_is_left_behind_the_last_epoch(shape: Shape) -> None:
    items = [(key, at, 1) for at in range(50) for key in "ab"] + [("c", 1000, 1)]
    build = windowed_flow(source_of(items), 3, aggregated(shape, agg.count()), VecSink())
    with run_of(build) as run:
        while not run.is_finished:
            run.tick()
        (state,) = [state for (_, name), state in run.states().items() if name == "windows"]
        assert len(state) <= 1


def test_a_failing_merge_names_the_operator_and_the_key() -> None:
    def merge(one: int, other: int) -> int:
        raise ValueError("no way")

    failing = agg.fold(int, lambda acc, value: acc + int(value), merge=merge)
    items = [(key, at, 1.0) for at in range(5) for key in "ab"]
    with pytest.raises(OperatorError, match=r"'windows' failed at merging accumulators of key 'a': ValueError: no way"):
        results_of(items, 1, aggregated((4, 1, 0), failing))

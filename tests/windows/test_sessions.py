"""Sessions agree with an interpreter that keeps all records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, OperatorError, agg
from malflow.message import DataMessage
from malflow.sinks import VecSink
from malflow.testing import PAUSE, Timed, assert_exactly_once
from malflow.windows import Timing, WindowResult, session, tumbling
from tests.kit.driving import run_of
from tests.windows.model import Record, parted, sessions
from tests.windows.running import Item, Watch, collected, restarted, results_of, source_of, windowed_flow

pytestmark = pytest.mark.slow

keys = st.sampled_from(["a", "b", "c"])
records = st.tuples(keys, st.integers(-30, 60), st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1.0]))
streams = st.lists(st.one_of(records, st.just(PAUSE)), max_size=40)
bounds = st.integers(0, 15)
gaps = st.integers(1, 12)


def aggregated(gap: Any, *aggregators: Any) -> Callable[[Any], Any]:
    """Return a function that adds sessions to a keyed stream."""
    return lambda keyed: keyed.window(session(gap)).aggregate("sessions", *aggregators)


def expected(items: Sequence[Item], bound: int, gap: int) -> Counter[Any]:
    """Return the results of the interpreter."""
    arrived: list[Record] = [item for item in items if item is not PAUSE]
    on_time, _, epoch = parted(arrived, bound)
    found: Counter[Any] = Counter()
    for (key, start, end), values in sessions(on_time, gap).items():
        timing = Timing.FINAL if epoch >= end - 1 else Timing.END
        found[repr(DataMessage(key, WindowResult(start, end, tuple(values), timing), end - 1))] += 1
    return found


@given(items=streams, bound=bounds, gap=gaps, workers=st.integers(1, 3), debug=st.booleans())
def test_each_session_has_exactly_its_records(
    items: list[Item], bound: int, gap: int, workers: int, debug: bool
) -> None:
    messages = results_of(items, bound, aggregated(gap, collected()), parallelism=workers, debug=debug)
    assert Counter(map(repr, messages)) == expected(items, bound, gap)


@given(items=streams, gap=gaps, workers=st.integers(1, 3))
def test_sessions_that_touch_are_those_of_a_longer_gap_that_end_earlier(
    items: list[Item], gap: int, workers: int
) -> None:
    """Without late records: then a session that closes a unit later has the same records."""
    ordered = sorted((it for it in items if it is not PAUSE), key=lambda it: it[1])

    def found(windows: Any, shift: int) -> Counter[str]:
        flow = lambda keyed: keyed.window(windows).aggregate("sessions", collected())  # noqa: E731
        results = results_of(ordered, 60, flow, parallelism=workers)
        return Counter(repr((it.key, it.value.start, it.value.end - shift, it.value.value)) for it in results)

    assert found(session(gap, touch=True), 0) == found(session(gap + 1), 1)


def test_sessions_that_touch_close_as_if_they_did_not() -> None:
    """The record exactly the gap later comes after its session has closed, at its last instant."""
    items: list[Item] = [("a", 0, 1.0), ("b", 9, 1.0), ("a", 10, 1.0)]
    results = results_of(items, 0, lambda keyed: keyed.window(session(10, touch=True)).aggregate("it", collected()))
    assert [(it.value.start, it.value.end) for it in results if it.key == "a"] == [(0, 10), (10, 20)]


@given(items=streams, bound=bounds, gap=gaps)
def test_sessions_are_maximal(items: list[Item], bound: int, gap: int) -> None:
    """No two sessions of a key are closer than the gap, and no two neighbours in one are farther apart."""
    stamped = [item if item is PAUSE else (item[0], item[1], item[1]) for item in items]
    by_key: dict[Any, list[Any]] = {}
    for message in results_of(stamped, bound, aggregated(gap, agg.collect())):
        by_key.setdefault(message.key, []).append(message.value)
    for found in by_key.values():
        found.sort(key=lambda it: it.start)
        assert all(later.start >= earlier.end for earlier, later in pairwise(found))
        for it in found:
            inside = sorted(it.value)
            assert (inside[0], inside[-1] + gap) == (it.start, it.end)
            assert all(later - earlier < gap for earlier, later in pairwise(inside))


@given(records=st.lists(st.tuples(keys, st.integers(0, 40), st.integers()), max_size=20), gap=gaps, data=st.data())
def test_the_order_of_arrival_does_not_matter(records: list[Record], gap: int, data: st.DataObject) -> None:
    add = aggregated(gap, agg.sum(), agg.count(), agg.min())
    other = data.draw(st.permutations(records))
    assert Counter(map(repr, results_of(records, 100, add))) == Counter(map(repr, results_of(other, 100, add)))


@given(items=streams, bound=bounds, gap=gaps, data=st.data())
def test_batching_is_invisible(items: list[Item], bound: int, gap: int, data: st.DataObject) -> None:
    arrived = [item for item in items if item is not PAUSE]
    cut = list(arrived)
    for at in sorted(data.draw(st.lists(st.integers(0, len(arrived)), max_size=5)), reverse=True):
        cut.insert(at, PAUSE)
    add = aggregated(gap, agg.sum(), agg.count(), agg.mean())
    assert list(map(repr, results_of(cut, bound, add))) == list(map(repr, results_of(arrived, bound, add)))


@given(items=streams, bound=bounds, gap=gaps, stop=st.integers(1, 30), rescale=st.integers(1, 3))
def test_a_restart_changes_nothing(items: list[Item], bound: int, gap: int, stop: int, rescale: int) -> None:
    """Compare floats to the last bit, and the order too where the number of workers stays the same."""
    spread = [part for item in items for part in (item, PAUSE)]  # a tick for each record
    add = aggregated(gap, agg.sum())
    undisturbed = results_of(spread, bound, add)
    sink: VecSink[Any, Any, Any] = VecSink()
    build = windowed_flow(source_of(spread), bound, add, sink)
    restarted(build, stop, rescale)
    if rescale == 1:
        assert list(map(repr, sink)) == list(map(repr, undisturbed))
    else:
        assert Counter(map(repr, sink)) == Counter(map(repr, undisturbed))


@given(items=streams, bound=bounds, gap=gaps)
def test_time_only_moves_forward(items: list[Item], bound: int, gap: int) -> None:
    watch = Watch()
    results_of(items, bound, lambda keyed: aggregated(gap, agg.count())(keyed).stateless_op("see", watch))
    watch.assert_forward()


def test_sessions_are_exactly_once() -> None:
    items = [Timed(("ab"[n % 2], n), n * 7 % 23 + n) for n in range(20)]
    add = aggregated(3, agg.sum(), agg.count(), agg.max())
    build = windowed_flow(source_of([]), 9, add, VecSink())
    assert_exactly_once(build, {"source": items}, max_examples=20)


def test_no_state_is_left_behind_the_last_epoch() -> None:
    items = [(n, n % 7, 1) for n in range(300)] + [("last", 1000, 1)]
    with run_of(windowed_flow(source_of(items), 10, aggregated(5, agg.count()), VecSink())) as run:
        while not run.is_finished:
            run.tick()
        (state,) = [state for (_, name), state in run.states().items() if name == "sessions"]
        assert list(state) == ["last"]


def results(records: Sequence[Record], bound: Any, gap: Any) -> list[Any]:
    """Return the numbers of records in sessions."""
    return [message.value for message in results_of(records, bound, aggregated(gap, agg.count()))]


def test_records_exactly_the_gap_apart_are_in_two_sessions() -> None:
    records = [("a", 0, 1), ("a", 9, 1), ("a", 19, 1)]
    assert results(records, 0, 10) == [WindowResult(0, 19, 2, Timing.FINAL), WindowResult(19, 29, 1, Timing.END)]


def test_an_epoch_at_the_last_instant_closes_a_session() -> None:
    """Waiting for its end would delay the result by a record."""
    messages = results_of([("a", 0, 1), ("b", 9, 1)], 0, aggregated(10, agg.count()))
    assert messages[0] == DataMessage("a", WindowResult(0, 10, 1, Timing.FINAL), 9)
    assert results([("a", 0, 1), ("b", 8, 1)], 0, 10)[0].timing is Timing.END


def test_an_epoch_closes_a_session_that_began_in_the_same_batch() -> None:
    """The open session of another key ends later, so its timer alone would let that epoch pass."""
    watch = Watch()
    items = [("a", 20, 1), ("b", 11, 1), ("c", 27, 1), ("c", 60, 1)]
    results_of(items, 10, lambda keyed: aggregated(5, agg.count())(keyed).stateless_op("see", watch))
    watch.assert_forward()


def test_epochs_between_two_timestamps_close_sessions() -> None:
    """The last instant of a session that begins after such an epoch is before that epoch plus the gap."""
    watch = Watch()
    epochs = iter([9.5, None, 14.2, 16.0])
    items = [("x", 20, 1), ("a", 10, 1), ("x", 21, 1), ("x", 22, 1)]
    add = lambda keyed: aggregated(5, agg.count())(keyed).stateless_op("see", watch)  # noqa: E731 - short
    results_of(items, 0, add, generator=lambda msg, epoch: next(epochs))
    watch.assert_forward()


def test_a_session_that_begins_before_the_open_one_closes_before_it() -> None:
    """The key's timer is that of its later session until then."""
    watch = Watch()
    items = [("a", 30, 1), ("a", 5, 1), ("b", 50, 1), ("b", 100, 1)]
    results_of(items, 30, lambda keyed: aggregated(10, agg.count())(keyed).stateless_op("see", watch))
    watch.assert_forward()


def test_sessions_that_end_together_are_in_the_order_of_their_keys() -> None:
    """Timers that fired early, and were set again, would be in another order than after a restart."""
    items = [("a", 3, 1), ("b", 1, 1), ("a", 5, 1), ("b", 5, 1), ("c", 20, 1), ("c", 22, 1), ("c", 40, 1)]
    found = results_of(items, 10, aggregated(10, agg.count()))
    assert [it.key for it in found] == ["a", "b", "c", "c"]


def test_a_record_joins_two_sessions() -> None:
    records = [("a", 0, 1), ("a", 12, 1), ("a", 6, 1), ("b", 100, 1)]
    assert results(records, 50, 10) == [WindowResult(0, 22, 3, Timing.FINAL), WindowResult(100, 110, 1, Timing.END)]


@pytest.mark.parametrize(
    ("first", "gap", "last"),
    [
        (0.5, 0.25, 0.7499999999999999),
        (0, 0.5, 0.49999999999999994),
        (date(2026, 3, 1), timedelta(days=2), date(2026, 3, 2)),
        (datetime(2026, 3, 1, tzinfo=UTC), timedelta(hours=1), datetime(2026, 3, 1, 0, 59, 59, 999999, UTC)),
        (timedelta(hours=1), timedelta(hours=1), timedelta(hours=2) - timedelta.resolution),
    ],
)
def test_the_last_instant_follows_the_type_of_timestamps(first: Any, gap: Any, last: Any) -> None:
    messages = results_of([("a", first, 1), ("b", first + 9 * gap, 1)], gap - gap, aggregated(gap, agg.count()))
    assert messages[0] == DataMessage("a", WindowResult(first, first + gap, 1, Timing.FINAL), last)


@pytest.mark.parametrize(("timestamp", "gap"), [(1, timedelta(1)), (date(2026, 3, 1), timedelta(hours=1)), ("x", 1)])
def test_timestamps_that_do_not_fit_are_errors(timestamp: Any, gap: Any) -> None:
    with pytest.raises(OperatorError, match=r"operator 'sessions' .*timestamp"):
        results_of([("a", timestamp, 1)], 0, aggregated(gap, agg.count()), generator=lambda msg, epoch: None)


def test_a_timestamp_that_no_gap_can_follow_is_an_error() -> None:
    with pytest.raises(OperatorError, match=r"'sessions' .*no later; filter such records"):
        results([("a", 1e300, 1)], 0, 1.0)


def test_sessions_need_aggregators_that_merge() -> None:
    with pytest.raises(GraphError, match=r"'sessions' has sessions, .* can't merge agg.fold.*; give it merge="):
        results_of([], 0, aggregated(1, agg.fold(int, lambda acc, value: acc + value)))


def test_sessions_feed_other_windows() -> None:
    def add(keyed: Any) -> Any:
        visits = keyed.window(session(5)).aggregate("visits", agg.count())
        return visits.window(tumbling(20)).aggregate("by start", agg.sum("value"), agg.count())

    found = results_of([("a", at, 1) for at in (0, 3, 10, 17, 30, 31)], 0, add)
    assert [it.value[:3] for it in found] == [(0, 20, (3, 2)), (20, 40, (3, 2))]


def test_a_failing_aggregator_names_its_record() -> None:
    with pytest.raises(OperatorError, match=r"'sessions' .*key 'b'.*'x'"):
        results_of([("a", 1, 1), ("b", 2, 1), ("b", 3, "x")], 0, aggregated(5, agg.mean()))

"""Laws of windows that hold for all kinds alike, and examples of what breaks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, SingleThreadRuntime, agg, limit_out_of_orderness
from malflow.message import DataMessage
from malflow.sinks import VecSink
from malflow.testing import PAUSE
from malflow.windows import TimeWindows, Timing, calendar, counting, session, sliding, tumbling
from tests.kit.driving import Store, compiled, finish, run_of
from tests.windows.model import Record, parted, sliding_windows
from tests.windows.running import Item, Watch, results_of, source_of, windowed_flow

pytestmark = pytest.mark.slow

keys = st.sampled_from(["a", "b", "c"])
records = st.lists(st.tuples(keys, st.integers(-30, 60), st.integers(-5, 5)), max_size=40)
bounds = st.integers(0, 6)
sizes, distances = st.integers(1, 12), st.integers(1, 12)
specs = st.one_of(st.builds(tumbling, sizes), st.builds(sliding, sizes, distances), st.builds(session, sizes))


def aggregated(windows: Any, *aggregators: Any, **options: Any) -> Callable[[Any], Any]:
    """Return a function that adds windows to a keyed stream."""
    return lambda keyed: keyed.window(windows, **options).aggregate("windows", *aggregators)


def plain(messages: Sequence[DataMessage[Any, Any, Any]]) -> Counter[Any]:
    """Return messages without their order."""
    return Counter(map(repr, messages))


@given(items=records, spec=specs, data=st.data())
def test_the_order_of_arrival_within_the_bound_does_not_matter(items: list[Record], spec: Any, data: Any) -> None:
    distinct = [(key, at, Fraction(value, 3)) for at, (key, value) in {it[1]: (it[0], it[2]) for it in items}.items()]
    moved = data.draw(st.permutations(distinct))
    mixed = agg.sum(), agg.count(), agg.min(), agg.first(), agg.last(), agg.fsum(float), agg.count_distinct()
    one, other = (results_of(it, 100, aggregated(spec, *mixed)) for it in (distinct, moved))
    assert plain(one) == plain(other)


@given(items=records, bound=bounds, size=sizes, every=distances, workers=st.integers(1, 3))
def test_each_record_counts_in_each_of_its_windows(
    items: list[Record], bound: int, size: int, every: int, workers: int
) -> None:
    """A record is on time or late; one on time is in as many windows as overlap there."""
    late: VecSink[Any, Any, Any] = VecSink()
    results: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", source_of(items))
        on_time, too_late = stream.generate_epochs("epochs", limit_out_of_orderness(bound))
        too_late.sink("late", late)
        keyed = on_time.key_distribute("key", lambda msg: msg.value[0])
        keyed.window(sliding(size, every)).aggregate("windows", agg.count()).sink("results", results)

    SingleThreadRuntime(build, parallelism=workers).execute()
    in_time, behind, _ = parted(items, bound)
    assert len(late) == len(behind)
    assert sum(it.value.value for it in results) == sum(len(sliding_windows(size, every, 0, it[1])) for it in in_time)
    if size % every == 0:
        assert sum(it.value.value for it in results) == size // every * len(in_time)


@given(items=records, bound=bounds, spec=specs, kept=st.lists(st.booleans(), min_size=40, max_size=40))
def test_fewer_epochs_give_the_same_results(items: list[Record], bound: int, spec: Any, kept: list[bool]) -> None:
    """Of the records that are on time with all epochs; the last epoch stays, since it decides what is final."""
    on_time, _, _ = parted(items, bound)
    newest = max((it[1] for it in on_time), default=0)

    def thinned(msg: Any, epoch: Any) -> Any:
        index = msg.value[1][0]
        return msg.timestamp - bound if kept[index] or msg.timestamp == newest else None

    numbered = [(key, at, (index, value)) for index, (key, at, value) in enumerate(on_time)]
    add = aggregated(spec, agg.collect())
    many = results_of(numbered, bound, add)
    few = results_of(numbered, bound, add, generator=thinned)
    assert plain(many) == plain(few)
    for key in "abc":
        assert [repr(it) for it in many if it.key == key] == [repr(it) for it in few if it.key == key]


@given(items=records, bound=bounds, span=st.integers(1, 8), every=st.integers(1, 6))
def test_a_sliding_window_is_the_union_of_its_panes(items: list[Record], bound: int, span: int, every: int) -> None:
    found = results_of(items, bound, aggregated(sliding(span * every, every), agg.sum(), agg.count()))
    panes = {
        (it.key, it.value.start): it.value.value
        for it in results_of(items, bound, aggregated(tumbling(every), agg.sum(), agg.count()))
    }
    expected: dict[Any, tuple[int, int]] = {}
    for (key, start), (total, count) in panes.items():
        for back in range(span):
            window = key, start - back * every
            before = expected.get(window, (0, 0))
            expected[window] = before[0] + total, before[1] + count
    assert {(it.key, it.value.start): it.value.value for it in found} == expected


@given(items=records, bound=bounds, size=sizes)
def test_sliding_by_the_size_is_tumbling(items: list[Record], bound: int, size: int) -> None:
    one = results_of(items, bound, aggregated(sliding(size, size), agg.collect()))
    assert list(map(repr, one)) == list(map(repr, results_of(items, bound, aggregated(tumbling(size), agg.collect()))))


@given(items=records, bound=bounds)
def test_calendar_days_of_utc_are_tumbling_days(items: list[Record], bound: int) -> None:
    start = datetime(2026, 3, 29, tzinfo=UTC)
    timed = [(key, start + timedelta(hours=at), value) for key, at, value in items]
    one, other = (
        results_of(timed, timedelta(hours=bound), aggregated(it, agg.collect()))
        for it in (calendar("day"), tumbling(timedelta(days=1)))
    )
    assert list(map(repr, one)) == list(map(repr, other))


@given(items=records, bound=bounds, spec=specs, workers=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_other_workers_at_each_restart_change_nothing(
    items: list[Item], bound: int, spec: Any, workers: list[int]
) -> None:
    spread = [part for item in items for part in (item, PAUSE)]  # a tick for each record
    add = aggregated(spec, agg.collect(), agg.count())
    sink: VecSink[Any, Any, Any] = VecSink()
    program, store = compiled(windowed_flow(source_of(spread), bound, add, sink)), Store()
    for turn in range(len(spread)):
        run = store.restore(program, workers[turn % len(workers)])
        if not run.is_finished:
            run.tick()
        store.commit(run, program)
        run.close()
    finish(store.restore(program, workers[0]))
    undisturbed = results_of(spread, bound, add)
    for key in "abc":
        assert [repr(it) for it in sink if it.key == key] == [repr(it) for it in undisturbed if it.key == key]


@given(items=records, bound=bounds, size=sizes, every=distances, early=st.integers(1, 5))
def test_nothing_is_noted_of_windows_that_are_over(
    items: list[Record], bound: int, size: int, every: int, early: int
) -> None:
    last = [("last", 1000, 1)]
    build = windowed_flow(
        source_of([*items, *last]), bound, aggregated(sliding(size, every), agg.count(), early=early), VecSink()
    )
    with run_of(build) as run:
        while not run.is_finished:
            run.tick()
        for (_, name), state in run.states().items():
            if name.startswith("windows") and not name.endswith("/epoch"):
                assert {slot[1] for slot in state} <= {"last"}, name


def results(items: Sequence[Item], bound: Any, windows: Any, *aggregators: Any, **options: Any) -> list[Any]:
    """Return the values of results."""
    return [it.value for it in results_of(items, bound, aggregated(windows, *aggregators), **options)]


def test_the_last_hour_of_a_day_counts_for_that_day() -> None:
    """It would be in the next one, if the timestamp of its result were its end."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    items = [("a", start + timedelta(hours=at, minutes=30), 1) for at in range(49)]

    def add(keyed: Any) -> Any:
        hours = keyed.window(tumbling(timedelta(hours=1))).aggregate("hours", agg.count())
        return hours.window(calendar("day")).aggregate("days", agg.sum("value"))

    found = results_of(items, timedelta(0), add)
    assert [(it.value.start.day, it.value.value) for it in found] == [(1, 24), (2, 24), (3, 1)]


@pytest.mark.parametrize("windows", [tumbling(50), sliding(50, 25), session(9), counting(12), counting(8, 3)], ids=str)
def test_floats_do_not_show_where_batches_are_cut(windows: Any) -> None:
    """They would, if the records of a batch were summed before they are added; as built-in sums do."""
    add = aggregated(windows, agg.sum(), agg.mean(), agg.variance())
    items: list[Item] = [("a", at, 0.1 * (at % 4) + (1e15 if at == 5 else 0.7)) for at in range(12)]
    undisturbed = list(map(repr, results_of(items, 100, add)))
    for cut in range(1, len(items)):
        assert list(map(repr, results_of([*items[:cut], PAUSE, *items[cut:]], 100, add))) == undisturbed


def test_a_large_number_leaves_no_trace_in_later_windows() -> None:
    """It would, if what leaves a window were subtracted."""
    items = [("a", at, 1e16 if at == 0 else 1.0) for at in range(8)]
    found = results(items, 0, sliding(3, 1), agg.sum())
    assert [it.value for it in found if it.start > 0][:5] == [3.0] * 5


@pytest.mark.parametrize("windows", [tumbling(10), sliding(10, 5), session(7)], ids=str)
def test_an_epoch_closes_a_window_that_was_opened_in_its_batch(windows: TimeWindows) -> None:
    """A batch is cut only at epochs that may close something, and the first of these closes no window."""
    watch = Watch()
    items = [("b", 25, 1), ("a", 18, 1), ("b", 29, 1), ("b", 45, 1), ("b", 90, 1)]
    messages = results_of(items, 8, lambda keyed: aggregated(windows, agg.count())(keyed).stateless_op("see", watch))
    watch.assert_forward()
    assert messages == []


@pytest.mark.parametrize("windows", [tumbling(1), sliding(10, 1), sliding(3, 7), session(5)], ids=str)
def test_an_epoch_may_jump_over_thousands_of_millions_of_windows(windows: Any) -> None:
    """A loop over all of them, or over those without records, would not end."""
    items = [("a", 0, 1), ("a", 10**12, 1), ("b", 10**15, 1), ("a", 10**18, 1)]
    found = results(items, 0, windows, agg.count())
    overlapping = len(sliding_windows(10, 1, 0, 0)) if windows == sliding(10, 1) else 1
    in_windows = 4 if windows != sliding(3, 7) else sum(bool(sliding_windows(3, 7, 0, it[1])) for it in items)
    assert sum(it.value for it in found) == in_windows * overlapping
    early = results_of(items, 0, aggregated(tumbling(10), agg.count(), early=1))
    assert sum(it.value.value for it in early if it.value.timing is not Timing.EARLY) == 4


def test_epochs_of_centuries_pass_windows_of_the_calendar() -> None:
    items = [("a", datetime(year, 6, 1, tzinfo=UTC), 1) for year in (2, 1900, 2026, 9000)]
    for unit in ("second", "hour", "day", "week", "month", "year"):
        assert len(results(items, timedelta(0), calendar(unit, "Europe/Berlin"), agg.count())) == 4


def test_half_a_window_at_the_end_is_made_anew_from_more_input() -> None:
    """The end of the input is no part of the history, so a run that continues has the whole window."""
    sink: VecSink[Any, Any, Any] = VecSink()
    store = Store()
    for script in ([("a", 1, 1), ("a", 2, 1)], [("a", 1, 1), ("a", 2, 1), ("a", 3, 1), ("a", 30, 1)]):
        program = compiled(windowed_flow(source_of(script), 0, aggregated(tumbling(10), agg.count()), sink))
        run = store.restore(program, 1)
        while not run.is_finished:
            run.tick()
        store.commit(run, program)
        finish(run)
    assert [(it.start, it.value, it.timing) for it in sink.values] == [
        (0, 2, Timing.END),
        (0, 3, Timing.FINAL),
        (30, 1, Timing.END),
    ]


def test_a_delta_has_only_the_panes_that_changed() -> None:
    """A key of windows that overlap has many of them, of which a second changes one."""
    spread = [part for at in range(120) for part in (*((key, at, 1) for key in "abcd"), PAUSE)]
    build = windowed_flow(source_of(spread), 0, aggregated(sliding(60, 1), agg.count()), VecSink())
    with run_of(build) as run:
        sizes = []
        while not run.is_finished:
            run.tick()
            sizes += [len(it[2].changed) + len(it[2].deleted) for it in run.deltas() if it[1] == "windows"]
    assert max(sizes[70:]) <= 4 * 3  # one pane, a closed one, and the beginning


@pytest.mark.parametrize("windows", [tumbling(100), sliding(100, 50), session(50), counting(100)], ids=str)
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_equal_keys_share_a_window(windows: Any, workers: int) -> None:
    equal = [1, True, 1.0, 0, False, -0.0, 0.0, (1, 0), (True, -0.0)]
    items = [(key, at, 1) for at, key in enumerate(equal)]
    messages = results_of(items, 0, aggregated(windows, agg.count()), parallelism=workers)
    assert len(messages) == 3 * (1 + (windows == sliding(100, 50)))
    assert all(it.value.value == {1: 3, 0: 4, (1, 0): 2}[it.key] for it in messages)


@pytest.mark.parametrize("total", [agg.sum(), agg.sum(of=int)], ids=str)
def test_sums_of_integers_have_no_greatest_one(total: Any) -> None:
    items = [("a", at, 2**63 - 1) for at in range(4)]
    assert [it.value for it in results(items, 0, sliding(4, 2), total)][1] == 4 * (2**63 - 1)


@pytest.mark.parametrize("windows", [sliding(10, 5), sliding(3, 5), calendar("day", span=3), session(5)], ids=str)
def test_windows_that_share_panes_need_aggregators_that_merge(windows: Any) -> None:
    with pytest.raises(GraphError, match=r"operator 'windows' has .* can't merge agg.fold.*; give it merge="):
        results([], 0, windows, agg.fold(int, lambda acc, value: acc + value))


@pytest.mark.parametrize(("size", "every"), [(10, 4), (7, 3), (3, 5), (60, 7)])
def test_the_distance_of_windows_need_not_divide_their_size(size: int, every: int) -> None:
    found = results([("a", at, at) for at in range(40)], 0, sliding(size, every), agg.collect())
    assert all(later.start - earlier.start == every for earlier, later in pairwise(found))
    assert all(it.value == tuple(at for at in range(40) if it.start <= at < it.start + size) for it in found)
    assert all(it.end == it.start + size for it in found)


class Town(tzinfo):
    """A zone whose rules are changed."""

    def __init__(self, hours: int) -> None:
        self._offset = timedelta(hours=hours)

    def utcoffset(self, _moment: datetime | None) -> timedelta:
        return self._offset

    def dst(self, _moment: datetime | None) -> timedelta:
        return timedelta(0)

    def __str__(self) -> str:
        return "Town"


def test_new_rules_of_a_zone_move_the_bounds_of_open_windows() -> None:
    """Panes are kept by their numbers, so that none is lost when the database of time zones is updated."""
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    items = [("a", noon, 1), PAUSE, ("a", noon + timedelta(hours=1), 1), ("a", noon + timedelta(days=2), 1)]
    sink: VecSink[Any, Any, Any] = VecSink()
    old, new = (
        compiled(
            windowed_flow(source_of(items), timedelta(0), aggregated(calendar("day", Town(it)), agg.count()), sink)
        )
        for it in (1, 2)
    )
    store = Store()
    run = store.restore(old, 1)
    run.tick()
    store.commit(run, old)
    run.close()
    finish(store.restore(new, 1))
    assert [(it.start.astimezone(UTC), it.value) for it in sink.values] == [
        (datetime(2026, 2, 28, 22, tzinfo=UTC), 2),
        (datetime(2026, 3, 2, 22, tzinfo=UTC), 1),
    ]

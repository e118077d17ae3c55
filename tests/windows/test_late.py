"""Late records that are added to windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malflow import GraphError, SingleThreadRuntime, StatelessLogic, agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.testing import PAUSE, Timed, assert_exactly_once
from malflow.windows import TimeWindows, Timing, WindowResult, counting, session, sliding, tumbling
from tests.kit.driving import Store, compiled, finish
from tests.windows.model import Record, late_sessions, late_windows, sliding_windows
from tests.windows.running import Item, restarted, source_of

pytestmark = pytest.mark.slow


def index_of_letter(key: str, workers: Sequence[int]) -> int:
    """Place a, c, e, ... on the first of two workers."""
    return workers[(ord(key) - ord("a")) % len(workers)]


keys = st.sampled_from(["a", "b", "c"])
records = st.tuples(keys, st.integers(0, 60), st.integers(0, 9))
streams = st.lists(st.one_of(records, st.just(PAUSE)), max_size=40)
bounds = st.integers(0, 4)
sizes = st.integers(1, 20)


class Sinks(NamedTuple):
    """What the three streams of windows with late records hold."""

    results: VecSink[Any, Any, Any]
    revised: VecSink[Any, Any, Any]
    too_late: VecSink[Any, Any, Any]


def new_sinks() -> Sinks:
    """Return empty sinks."""
    return Sinks(VecSink(), VecSink(), VecSink())


def late_flow(
    source: Any, bound: int, windows: Any, sinks: Sinks, *aggregators: Any, until: Any = 0, early: Any = None
) -> Callable[[Any], None]:
    """Return a dataflow with windows that late records are added to."""

    def keyed(stream: Any, name: str) -> Any:
        return stream.key_distribute(name, lambda msg: msg.value[0]).map(f"{name} value", lambda value: value[1])

    def build(provider: Any) -> None:
        stamped = provider.new_stream().source("source", source)
        on_time, late = stamped.generate_epochs("epochs", limit_out_of_orderness(bound))
        windowed = keyed(on_time, "key").window(windows, early=early).allow_late(keyed(late, "late"), until)
        for name, stream in zip(Sinks._fields, windowed.aggregate("windows", *aggregators), strict=True):
            stream.sink(name, getattr(sinks, name))

    return build


def run(items: Sequence[Item], bound: int, windows: Any, *aggregators: Any, until: Any = 0, **options: Any) -> Sinks:
    """Run windows with late records; return what they send."""
    sinks = new_sinks()
    early = options.pop("early", None)
    build = late_flow(source_of(items), bound, windows, sinks, *aggregators, until=until, early=early)
    SingleThreadRuntime(build, **options).execute()
    return sinks


def found_in(sinks: Sinks) -> tuple[Counter[Any], Counter[Any]]:
    """Return the values in each window, and the records that were too late."""
    results = Counter((it.key, it.value.start, it.value.end, tuple(sorted(it.value.value))) for it in sinks.results)
    return results, Counter((it.key, it.timestamp, it.value) for it in sinks.too_late)


def expected(windows: dict[tuple[Any, Any, Any], list[Any]], late: list[Record]) -> tuple[Counter[Any], Counter[Any]]:
    """Return the same of the interpreter."""
    return Counter((*slot, tuple(sorted(values))) for slot, values in windows.items()), Counter(late)


@given(items=streams, bound=bounds, size=st.integers(1, 8), until=st.integers(1, 30), workers=st.integers(1, 2))
def test_revisions_follow_their_results(items: list[Item], bound: int, size: int, until: int, workers: int) -> None:
    """The last row of each window is that of all records that were not too late."""
    out: VecSink[Any, Any, Any] = VecSink()
    too_late: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        timed = provider.new_stream().source("source", source_of(items))
        timed = timed.event_time("times", lambda msg: msg.timestamp, out_of_orderness=bound)
        windows = timed.key_distribute("key", lambda msg: msg.value[0]).window(tumbling(size))
        late = windows.allow_late(until=until).aggregate("windows", agg.count())
        late.with_revisions().sink("results", out)
        late.too_late.sink("too late", too_late)

    SingleThreadRuntime(build, parallelism=workers).execute()
    rows: Counter[Any] = Counter()
    for it in out:
        assert it.value.value > rows[it.key, it.value.start], "each row counts more than the one that it replaces"
        rows[it.key, it.value.start] = it.value.value
    arrived = Counter((it[0], it[1] // size * size) for it in items if it is not PAUSE)
    lost = Counter((it.key, it.timestamp // size * size) for it in too_late)
    assert rows == arrived - lost


@given(items=streams, bound=bounds, until=st.integers(0, 30))
def test_late_records_are_found_where_only_keys_are_between(items: list[Item], bound: int, until: int) -> None:
    found = []
    for add_late in (lambda late: (), lambda late: (late.key_distribute("late key", lambda msg: msg.value[0]),)):
        sinks = new_sinks()

        def build(provider: Any, add_late: Any = add_late, sinks: Any = sinks) -> None:
            stamped = provider.new_stream().source("source", source_of(items))
            on_time, late = stamped.generate_epochs("epochs", limit_out_of_orderness(bound))
            keyed = on_time.key_local("first", str).key_distribute("key", lambda msg: msg.value[0])
            windows = keyed.window(tumbling(5)).allow_late(*add_late(late), until=until)
            for name, stream in windows.aggregate("windows", agg.count())._asdict().items():
                stream.sink(name, getattr(sinks, name))

        SingleThreadRuntime(build).execute()
        found.append([list(map(repr, sink)) for sink in sinks])
    assert found[0] == found[1]


def test_windows_of_one_stream_share_its_late_records() -> None:
    counts: list[VecSink[Any, Any, Any]] = [VecSink(), VecSink(), VecSink()]
    items = [("a", 1, 1), ("a", 8, 1), ("a", 2, 1), ("a", 30, 1)]

    def build(provider: Any) -> None:
        timed = provider.new_stream().source("source", source_of(items))
        timed = timed.event_time("times", lambda msg: msg.timestamp, out_of_orderness=0)
        keyed = timed.key_distribute("key", lambda msg: msg.value[0])
        for size, sink in zip((5, 10), counts, strict=False):
            late = keyed.window(tumbling(size)).allow_late(until=20).aggregate(f"windows of {size}", agg.count())
            late.with_revisions().sink(f"results of {size}", sink)
        groups = keyed.window(tumbling(10)).allow_late().cogroup("groups", keyed)
        groups.results.map("sizes", lambda it: [len(group) for group in it.value]).sink("groups too", counts[2])

    runtime = SingleThreadRuntime(build)
    runtime.execute()
    found: dict[
        int, list[int]
    ] = {}  # by window: how they follow each other depends on where a busy machine cuts batches
    for it in counts[0]:
        found.setdefault(it.value.start, []).append(it.value.value)
    assert found == {0: [1, 2], 5: [1], 30: [1]}
    assert [it.value.value for it in counts[1]] == [3, 1]
    assert list(counts[2].values) == [[3, 2], [1, 1]]
    records = runtime.progress.records
    assert records["(times[1] by key)"] == 1


@pytest.mark.parametrize("between", ["map", "union", "late", "nothing"])
def test_late_records_that_cannot_be_found_are_asked_for(between: str) -> None:
    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", source_of([]))
        timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=0)
        its: Any = {
            "map": lambda: timed.map("between", str),
            "union": lambda: timed.union(timed, name="between"),
            "late": lambda: timed.late,
            "nothing": lambda: stream,
        }[between]()
        its.key_distribute("key", str).window(tumbling(5)).allow_late().aggregate("windows", agg.count())

    name = {"late": "times", "nothing": "source"}.get(between, "between")
    with pytest.raises(GraphError, match=rf"operator 'windows' can't find .* operator '{name}' \[.*timed.late"):
        SingleThreadRuntime(build).execute()


@given(items=streams, bound=bounds, size=sizes, every=st.integers(1, 6), debug=st.booleans())
def test_late_records_are_added_to_windows_that_are_open(
    items: list[Item], bound: int, size: int, every: int, debug: bool
) -> None:
    """A late record of several windows counts in those that are open."""
    arrived = [item for item in items if item is not PAUSE]
    windows, _, late = late_windows(arrived, bound, partial(sliding_windows, size, every, 0))
    spec = tumbling(size) if size == every else sliding(size, every)
    assert found_in(run(items, bound, spec, agg.collect(), debug=debug)) == expected(windows, late)


@given(items=streams, bound=bounds, gap=st.integers(1, 12), debug=st.booleans())
def test_late_records_are_added_to_sessions_that_are_open(items: list[Item], bound: int, gap: int, debug: bool) -> None:
    arrived = [item for item in items if item is not PAUSE]
    found = found_in(run(items, bound, session(gap), agg.collect(), debug=debug))
    assert found == expected(*late_sessions(arrived, bound, gap))


@given(items=streams, bound=bounds, size=st.integers(1, 8), until=st.integers(1, 30))
def test_late_records_revise_windows_that_are_kept(items: list[Item], bound: int, size: int, until: int) -> None:
    arrived = [item for item in items if item is not PAUSE]
    windows, revised, late = late_windows(arrived, bound, partial(sliding_windows, size, size, 0), until)
    sinks = run(items, bound, tumbling(size), agg.count(), until=until)
    counts = {slot: len(values) for slot, values in windows.items()}
    assert {(it.key, it.value.start, it.value.end): it.value.value for it in sinks.results} == counts
    assert Counter((it.key, *it.value[:3]) for it in sinks.revised) == Counter(revised)
    assert all(it.value.timing is Timing.LATE and it.timestamp == it.value.end - 1 for it in sinks.revised)
    assert Counter((it.key, it.timestamp, it.value) for it in sinks.too_late) == Counter(late)


specs = st.one_of(
    st.builds(tumbling, sizes), st.builds(sliding, sizes, st.integers(1, 6)), st.builds(session, st.integers(1, 12))
)


@given(items=streams, bound=bounds, spec=specs, workers=st.integers(1, 3))
def test_each_record_is_in_windows_or_too_late(items: list[Item], bound: int, spec: Any, workers: int) -> None:
    """Whether a record is late depends on how far workers are; none is lost, and none counts twice in a window."""
    numbered = [item if item is PAUSE else (item[0], item[1], index) for index, item in enumerate(items)]
    sinks = run(numbered, bound, spec, agg.collect(), parallelism=workers)
    for it in sinks.results:
        assert len({*it.value.value}) == len(it.value.value)
    inside = {value for it in sinks.results for value in it.value.value}
    late = list(sinks.too_late.values)
    assert len({*late}) == len(late)
    assert inside.isdisjoint(late)
    step, span = (spec.step, spec.span) if isinstance(spec, TimeWindows) else (1, 1)
    unit = getattr(spec.panes, "size", 1) if isinstance(spec, TimeWindows) else 1
    in_windows = {it[2] for it in numbered if it is not PAUSE and it[1] // unit % step < span}
    assert inside.union(late) == in_windows


@given(items=streams, bound=bounds, spec=specs, data=st.data())
def test_batching_is_invisible(items: list[Item], bound: int, spec: Any, data: st.DataObject) -> None:
    arrived = [item for item in items if item is not PAUSE]
    cut = list(arrived)
    for at in sorted(data.draw(st.lists(st.integers(0, len(arrived)), max_size=5)), reverse=True):
        cut.insert(at, PAUSE)
    one, other = (run(given, bound, spec, agg.sum(), agg.count()) for given in (cut, arrived))
    assert [list(map(repr, sink)) for sink in one] == [list(map(repr, sink)) for sink in other]


class Log(StatelessLogic[Any, Any, Any, Any]):
    """Notes records and epochs in their order."""

    def __init__(self, seen: list[Any]) -> None:
        self._seen = seen

    def on_data(self, msg: Any, output: Any) -> None:
        self._seen.append(repr(msg))

    def on_epoch(self, epoch: Any, output: Any) -> None:
        self._seen.append(epoch)


@given(items=streams, bound=bounds, spec=specs)
@example([("b", 25, 1), ("b", 27, 1), ("a", 5, 1), ("b", 60, 1)], 0, tumbling(10))
def test_epochs_stand_where_they_came_between_late_records(items: list[Item], bound: int, spec: Any) -> None:
    """Even if they close no window, and the batch need not be cut there."""
    arrived = [item for item in items if item is not PAUSE]
    logs = []
    for given_items in ([part for item in arrived for part in (item, PAUSE)], arrived):
        seen: list[list[Any]] = [[], [], []]

        def build(provider: Any, given_items: Any = given_items, seen: Any = seen) -> None:
            stamped = provider.new_stream().source("source", source_of(given_items))
            on_time, late = stamped.generate_epochs("epochs", limit_out_of_orderness(bound))
            keyed, late_ones = (
                it.key_distribute(f"key {n}", lambda msg: msg.value[0]) for n, it in enumerate((on_time, late))
            )
            made = keyed.window(spec).allow_late(late_ones).aggregate("windows", agg.count())
            for n, stream in enumerate(made):
                stream.stateless_op(f"log {n}", Log(seen[n]))

        SingleThreadRuntime(build).execute()
        logs.append(seen)
    assert logs[0] == logs[1]


@given(items=streams, bound=bounds, spec=specs, stop=st.integers(1, 30), until=st.integers(0, 20))
def test_a_restart_changes_nothing(items: list[Item], bound: int, spec: Any, stop: int, until: int) -> None:
    spread = [part for item in items for part in (item, PAUSE)]  # a tick for each record
    until = until if getattr(spec, "is_plain", False) else 0
    undisturbed = run(spread, bound, spec, agg.sum(), until=until)
    sinks = new_sinks()
    restarted(late_flow(source_of(spread), bound, spec, sinks, agg.sum(), until=until), stop)
    assert [list(map(repr, sink)) for sink in sinks] == [list(map(repr, sink)) for sink in undisturbed]


@given(items=streams, bound=bounds, spec=specs, stop=st.integers(1, 30), after=st.integers(1, 3))
def test_no_window_comes_twice_after_a_rescale(items: list[Item], bound: int, spec: Any, stop: int, after: int) -> None:
    """The epoch goes back for some keys, and late records must not open their closed windows again."""
    spread = [part for item in items for part in (item, PAUSE)]
    sinks = new_sinks()
    program, store = compiled(late_flow(source_of(spread), bound, spec, sinks, agg.count())), Store()
    going = store.restore(program, 2)
    for _ in range(stop):
        if not going.is_finished:
            going.tick()
            store.commit(going, program)
    going.close()
    finish(store.restore(program, after))
    slots = Counter((it.key, it.value.start, it.value.end) for it in sinks.results)
    assert set(slots.values()) <= {1}


@pytest.mark.parametrize("spec", [tumbling(10), session(10)])
def test_a_closed_window_stays_closed_on_fewer_workers(spec: Any) -> None:
    """Each worker has epochs of its own, since keys are placed before they are made; the least counts afterwards."""
    items: list[Item] = [*((key, 0, 1) for key in "abcdefgh"), ("a", 50, 1), ("c", 50, 1)]
    items += [PAUSE, ("a", 1, 1), ("i", 90, 1)]
    sinks = new_sinks()

    def build(provider: Any) -> None:
        stamped = provider.new_stream().source("source", source_of(items))
        keyed = stamped.key_distribute("key", lambda msg: msg.value[0], index_of_letter)
        on_time, late = keyed.generate_epochs("epochs", limit_out_of_orderness(0), per_part=False)
        streams = on_time.window(spec).allow_late(late).aggregate("windows", agg.count())
        for name, stream in zip(Sinks._fields, streams, strict=True):
            stream.sink(name, getattr(sinks, name))

    program, store = compiled(build), Store()
    going = store.restore(program, 2)
    going.tick()
    store.commit(going, program)
    going.close()
    finish(store.restore(program, 1))
    slots = Counter((it.key, it.value.start) for it in sinks.results)
    assert set(slots.values()) == {1}


@pytest.mark.parametrize("spec", [tumbling(5), sliding(6, 2), session(4)])
def test_windows_with_late_records_are_exactly_once(spec: Any) -> None:
    items = [Timed(("ab"[n % 2], n), n * 7 % 23 + n) for n in range(20)]
    build = late_flow(source_of([]), 2, spec, new_sinks(), agg.sum(), agg.count(), agg.max())
    assert_exactly_once(build, {"source": items}, max_examples=10)


def test_early_results_leave_out_windows_that_are_closed() -> None:
    items = [("a", 10, 1), ("a", 12, 1), ("a", 8, 1), ("b", 13, 1), ("b", 30, 1)]
    sinks = run(items, 0, sliding(10, 5), agg.count(), early=1)
    for it in sinks.results:
        assert it.timestamp < it.value.end
    assert Counter(it.value.timing for it in sinks.results)[Timing.EARLY] > 0


def test_a_late_record_joins_two_open_sessions() -> None:
    items = [("a", 0, 1), ("a", 12, 1), ("a", 6, 1), ("b", 100, 1)]
    sinks = run(items, 8, session(10), agg.count())
    assert sinks.results.values[0] == WindowResult(0, 22, 3, Timing.FINAL)
    assert not sinks.too_late.values


def test_an_epoch_in_the_same_batch_makes_a_record_too_late_for_a_session() -> None:
    """No session closes at that epoch, so the batch would not be cut there."""
    sinks = run([("b", 20, 1), ("b", 25, 1), ("a", 14, 2), ("b", 60, 1)], 0, session(10), agg.count())
    assert list(sinks.too_late.values) == [2]
    assert [it.key for it in sinks.results] == ["b", "b"]


def test_an_epoch_in_the_same_batch_ends_a_kept_window() -> None:
    """No window closes at that epoch, so the batch would not be cut there."""
    sinks = run([("b", 20, 1), ("b", 23, 1), ("a", 15, 2), ("b", 60, 1)], 0, tumbling(10), agg.count(), until=4)
    assert list(sinks.too_late.values) == [2]
    assert not list(sinks.revised)


KEYED = "needs late records with keys"
GENERATOR = "needs the late records of the generator that its own records come from"


@pytest.mark.parametrize(
    ("choose", "why"),
    [
        (lambda on_time, late, other: late, KEYED),
        (lambda on_time, late, other: [late], KEYED),
        (lambda on_time, late, other: on_time.key_distribute("other key", str), GENERATOR),
        (lambda on_time, late, other: other.key_distribute("other key", str), GENERATOR),
        (lambda on_time, late, other: late.key_local("other key", str), "several workers"),
    ],
)
def test_other_records_than_the_late_ones_are_refused(choose: Any, why: str) -> None:
    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", source_of([]))
        on_time, late = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        _, other = stream.generate_epochs("other epochs", limit_out_of_orderness(0))
        windows = on_time.key_distribute("key", str).window(tumbling(5))
        windows.allow_late(choose(on_time, late, other)).aggregate("windows", agg.count())

    with pytest.raises(GraphError, match=why):
        SingleThreadRuntime(build).execute()


@pytest.mark.parametrize(
    ("spec", "until", "why"),
    [
        (counting(3), 0, "no record is late for them"),
        (session(3), 5, "may join two that have closed"),
        (sliding(4, 2), 5, "overlap"),
        (tumbling(4), timedelta(1), "use a number"),
        (tumbling(4), -1, "positive"),
    ],
)
def test_late_records_that_make_no_sense_are_refused(spec: Any, until: Any, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        run([], 0, spec, agg.count(), until=until)

"""Each level of a rollup agrees with windows of its unit, and with an interpreter that keeps all records."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, OperatorError, SingleThreadRuntime, SnapshotError, agg, limit_out_of_orderness
from malflow.event_time.panes import Unit
from malflow.operators.contract import OperatorContext
from malflow.operators.windows.rollup import Level, RollupAggregate
from malflow.records.batch import Batch
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource, Timed, assert_exactly_once
from malflow.windows import FOREVER, Timing, WindowResult, calendar
from tests.kit.driving import Store, compiled, finish, run_of
from tests.windows.model import parted
from tests.windows.running import Item, Watch, collected, restarted, results_of, source_of, windowed_flow
from tests.windows.test_moved_windows import changes, records_of, run_through, scripts

pytestmark = pytest.mark.slow

UNITS = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"]
START = datetime(2026, 3, 28, 20, tzinfo=UTC)
"""Some hours before the clocks of Europe are set forward, and days before a quarter ends."""

zones = st.sampled_from(["UTC", "Europe/Prague", "Asia/Kolkata"])
chains = st.sets(st.sampled_from(UNITS), min_size=1, max_size=4).map(lambda it: sorted(it, key=UNITS.index))
levels = chains.filter(lambda it: "week" not in it[:-1])
steps = st.one_of(
    st.integers(-3, 6).map(lambda it: 3600 * it),
    st.integers(-90, 90),
    st.integers(-5_000, 20_000),
    st.integers(-100_000, 1_500_000),
)
records = st.tuples(st.sampled_from("abc"), steps, st.sampled_from([0.1, 0.2, 0.3, 1.0]))
bounds = st.sampled_from([0, 30, 3_000, 90_000]).map(lambda it: timedelta(seconds=it))


def _arriving(rows: Sequence[Any]) -> list[Item]:
    """Return records whose timestamps advance by the steps of the rows, in seconds."""
    now, found = START, []
    for row in rows:
        if row is not PAUSE:
            now += timedelta(seconds=row[1])
        found.append(row if row is PAUSE else (row[0], now, row[2]))
    return found


streams = st.lists(st.one_of(records, records, st.just(PAUSE)), max_size=25).map(_arriving)


def rolled_up(units: Sequence[str], zone: str, *aggregators: Any, **options: Any) -> Callable[[Any], Any]:
    """Return a function that adds a rollup to a keyed stream, and tags the results with their levels."""

    def add(keyed: Any) -> Any:
        streams = keyed.rollup("rollup", units, *aggregators, zone=zone, **options)
        assert list(streams) == list(units)
        first, *others = (it.map(f"tag {unit}", _tagged(unit)) for unit, it in streams.items())
        return first.union(*others) if others else first

    return add


def _tagged(unit: str) -> Callable[[Any], Any]:
    return lambda result: (unit, result)


def bounds_of(unit: str, zone: str, timestamp: datetime) -> tuple[datetime, datetime]:
    """Return the start and the end of the unit that contains an instant, by the clock on the wall."""
    wall = timestamp.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    if unit in ("second", "minute", "hour"):
        length = timedelta(**{f"{unit}s": 1})
        over = timedelta(seconds=wall.second, microseconds=wall.microsecond, minutes=wall.minute) % length
        return timestamp - over, timestamp - over + length
    day = wall.replace(hour=0, minute=0, second=0, microsecond=0)
    months = {"month": 1, "quarter": 3, "year": 12}.get(unit)
    if months is None:
        start = day - timedelta(days=day.weekday() if unit == "week" else 0)
        end = start + timedelta(days=7 if unit == "week" else 1)
    else:
        start = day.replace(day=1, month=(day.month - 1) // months * months + 1)
        end = start.replace(year=start.year + (start.month + months) // 13, month=(start.month + months - 1) % 12 + 1)
    return tuple(it.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) for it in (start, end))  # type: ignore[return-value] # two


def expected(items: Sequence[Item], bound: Any, units: Sequence[str], zone: str) -> Counter[Any]:
    """Return level, key, bounds, values and timing of each window, having looked at all records for each."""
    on_time, _, epoch = parted([item for item in items if item is not PAUSE], bound)
    found: Counter[Any] = Counter()
    for unit in units:
        inside: dict[Any, list[Any]] = {}
        for key, timestamp, value in on_time:
            inside.setdefault((key, *bounds_of(unit, zone, timestamp)), []).append(value)
        for (key, start, end), values in inside.items():
            timing = Timing.FINAL if epoch >= end - timedelta.resolution else Timing.END
            found[unit, key, start, end, tuple(sorted(values)), timing] += 1
    return found


@given(
    items=streams,
    bound=bounds,
    units=levels,
    zone=zones,
    workers=st.integers(1, 3),
    debug=st.booleans(),
    keep=st.booleans(),
)
def test_each_level_has_exactly_its_records(
    items: list[Item], bound: Any, units: list[str], zone: str, workers: int, debug: bool, keep: bool
) -> None:
    kept = dict.fromkeys(units, timedelta(hours=5)) if keep else None
    add = rolled_up(units, zone, collected(), keep=kept)
    messages = results_of(items, bound, add, parallelism=workers, debug=debug)
    found: Counter[Any] = Counter()
    for message in messages:
        unit, (start, end, values, timing) = message.value
        found[unit, message.key, start, end, tuple(sorted(values)), timing] += 1
        assert message.timestamp == end.astimezone(UTC) - timedelta.resolution
    assert found == expected(items, bound, units, zone)


@given(items=streams, bound=bounds, units=levels, zone=zones)
def test_each_level_equals_windows_of_the_calendar(items: list[Item], bound: Any, units: list[str], zone: str) -> None:
    aggregators = agg.count(), agg.fsum(), agg.max()
    found = results_of(items, bound, rolled_up(units, zone, *aggregators))
    for unit in units:
        direct = results_of(
            items, bound, lambda it, unit=unit: it.window(calendar(unit, zone)).aggregate("w", *aggregators)
        )
        level = [repr((it.key, it.value[1], it.timestamp)) for it in found if it.value[0] == unit]
        assert Counter(level) == Counter(repr((it.key, it.value, it.timestamp)) for it in direct)


@given(items=streams, bound=bounds, units=levels, zone=zones, data=st.data())
def test_batching_is_invisible(items: list[Item], bound: Any, units: list[str], zone: str, data: st.DataObject) -> None:
    arrived = [item for item in items if item is not PAUSE]
    cut = list(arrived)
    for at in sorted(data.draw(st.lists(st.integers(0, len(arrived)), max_size=5)), reverse=True):
        cut.insert(at, PAUSE)
    add = rolled_up(units[:1], zone, agg.sum(), agg.mean())
    assert list(map(repr, results_of(cut, bound, add))) == list(map(repr, results_of(arrived, bound, add)))
    add = rolled_up(units, zone, agg.sum(), agg.mean())
    assert Counter(map(repr, results_of(cut, bound, add))) == Counter(map(repr, results_of(arrived, bound, add)))


@given(
    items=streams,
    bound=bounds,
    units=levels,
    zone=zones,
    stop=st.integers(1, 30),
    workers=st.integers(1, 3),
    keep=st.booleans(),
)
def test_a_restart_changes_nothing(
    items: list[Item], bound: Any, units: list[str], zone: str, stop: int, workers: int, keep: bool
) -> None:
    """Compare floats to the last bit."""
    spread = [part for item in items for part in (item, PAUSE)]  # a tick for each record
    add = rolled_up(units, zone, agg.sum(), keep=dict.fromkeys(units, timedelta(hours=5)) if keep else None)
    undisturbed = results_of(spread, bound, add)
    sink: VecSink[Any, Any, Any] = VecSink()
    restarted(windowed_flow(source_of(spread), bound, add, sink), stop, workers)
    assert Counter(map(repr, sink)) == Counter(map(repr, undisturbed))


def slots_of(run: Any) -> dict[tuple[str, int, Any], Any]:
    """Return the accumulators of a rollup: by level, number and key."""
    states = [state for (_, name), state in run.states().items() if name == "rollup"]
    units = list(Unit)
    return {
        (units[slot % len(units)].value, slot // len(units), key): acc
        for state in states
        for (slot, key), acc in state.items()
    }


@given(items=streams, bound=bounds, units=levels, zone=zones, spans=st.lists(st.integers(1, 5), min_size=4, max_size=4))
def test_state_holds_open_and_kept_windows_only(
    items: list[Item], bound: Any, units: list[str], zone: str, spans: list[int]
) -> None:
    """Open windows add up to their records, at any time; closed ones stay for their span, and no longer."""
    arrived = [item for item in items if item is not PAUSE]
    keep = dict(zip(units, (timedelta(hours=it) for it in spans), strict=False))
    spread = [part for item in arrived for part in (item, PAUSE)]
    tick = timedelta.resolution
    seen = []

    def epoch_of(msg: Any, _: Any) -> datetime:
        seen.append(msg.timestamp)
        return seen[-1] - bound  # type: ignore[no-any-return] # it is a datetime

    add = rolled_up(units, zone, agg.count(), keep=keep)
    with run_of(windowed_flow(source_of(spread), bound, add, VecSink(), generator=epoch_of)) as run:
        while not run.is_finished:
            run.tick()
            if not seen:
                continue
            on_time, _, epoch = parted(arrived[: len(seen)], bound)
            now = bounds_of(units[0], zone, epoch + tick)[0]
            kept: Counter[Any] = Counter()
            in_open: Counter[Any] = Counter()
            for key, timestamp, _ in on_time:
                ends = {unit: bounds_of(unit, zone, timestamp)[1] for unit in units}
                closed = {unit: end for unit, end in ends.items() if end - tick <= epoch}
                kept.update((unit, end, key) for unit, end in closed.items() if end + keep[unit] > now)
                if units[-1] not in closed:
                    in_open[ends[units[-1]], key] += 1
            found: Counter[Any] = Counter()
            total: Counter[Any] = Counter()
            for (unit, number, key), count in slots_of(run).items():
                panes: Any = calendar(unit, zone).panes
                end = panes.start(number + 1)
                if end - tick <= epoch:
                    found[unit, end, key] += count
                else:
                    total[bounds_of(units[-1], zone, panes.start(number))[1], key] += count
            assert found == kept
            assert total == in_open


@pytest.mark.parametrize("keep", [None, {"hour": timedelta(hours=1), "day": FOREVER}], ids=["dropped", "kept"])
def test_rollups_are_exactly_once(keep: Any) -> None:
    items = [Timed(("ab"[n % 2], n), START + timedelta(minutes=37 * n + n * 7 % 23)) for n in range(20)]
    add = rolled_up(["hour", "day", "year"], "Europe/Prague", agg.sum(), agg.count(), keep=keep)
    build = windowed_flow(source_of([]), timedelta(minutes=40), add, VecSink())
    assert_exactly_once(build, {"source": items}, max_examples=20)


@given(items=streams, bound=bounds, units=levels, zone=zones)
def test_time_only_moves_forward(items: list[Item], bound: Any, units: list[str], zone: str) -> None:
    watches = {unit: Watch() for unit in units}

    def add(keyed: Any) -> Any:
        streams = keyed.rollup("rollup", units, agg.count(), zone=zone)
        seen = [it.stateless_op(f"see {unit}", watches[unit]) for unit, it in streams.items()]
        return seen[0]

    results_of(items, bound, add)
    for watch in watches.values():
        watch.assert_forward()


@given(script=scripts, plan=changes, workers=st.lists(st.integers(1, 4), min_size=1, max_size=5), keep=st.booleans())
def test_workers_with_epochs_of_their_own_change(
    script: list[list[int]], plan: list[str], workers: list[int], keep: bool
) -> None:
    """A window that one worker has closed and another has not comes once for each key, with all of its records."""
    parts = records_of(script)
    minutes = {
        part: [it for one in them for it in (Timed(one.value, START + timedelta(minutes=20 * one.timestamp)), PAUSE)]
        for part, them in parts.items()
    }
    late: VecSink[Any, Any, Any] = VecSink()
    sink: VecSink[Any, Any, Any] = VecSink()
    units = ["hour", "day", "month"]
    numbers = agg.fold(list, lambda held, value: [*held, value[1]], merge=lambda one, other: one + other)
    add = rolled_up(units, "Europe/Prague", numbers, keep=dict.fromkeys(units, timedelta(hours=3)) if keep else None)

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", StatefulSource(ScriptedSource(minutes)))
        keyed = stream.key_distribute("key", lambda msg: msg.value[0])
        on_time, too_late = keyed.generate_epochs(
            "epochs", limit_out_of_orderness(timedelta(minutes=50)), per_part=False
        )
        too_late.sink("late", late)
        add(on_time).sink("results", sink)

    run_through(build, plan, workers)
    windows = Counter((it.key, it.value[0], it.value[1].start) for it in sink)
    assert [window for window, times in windows.items() if times > 1] == []
    lost = {it.value[1] for it in late}
    found = Counter((it.value[0], number) for it in sink for number in it.value[1].value)
    sent = [one.value[1] for them in parts.values() for one in them]
    assert found == Counter((unit, number) for unit in units for number in sent if number not in lost)


def test_a_window_that_closed_at_the_epoch_is_closed_after_a_restart() -> None:
    items = [("a", START + timedelta(hours=1) - timedelta.resolution, 1), PAUSE, ("a", START + timedelta(hours=1), 1)]
    add = rolled_up(["hour", "day"], "UTC", agg.count(), keep={"hour": FOREVER})
    sink: VecSink[Any, Any, Any] = VecSink()
    store, program = Store(), compiled(windowed_flow(source_of(items), timedelta(0), add, sink))
    run = store.restore(program, 1)
    run.tick()
    store.commit(run, program)
    run.close()
    finish(store.restore(program, 1))
    assert [(it.value[0], it.value[1].value) for it in sink] == [("hour", 1), ("hour", 1), ("day", 2)]


def test_a_worker_catches_up_by_the_deltas_of_another() -> None:
    """Apply the deltas of a worker in another process, which had the ticks before, as on Spark."""
    panes = [calendar(unit).panes for unit in ("hour", "day")]
    context = OperatorContext("rollup", tracked=True)
    one, other = (
        RollupAggregate(context, [Level(it, timedelta(hours=2)) for it in panes], (agg.count(),)) for _ in range(2)
    )

    def tick(operator: Any, hour: int) -> list[Any]:
        at = START + timedelta(hours=hour)
        outputs = operator.process(Batch(["a"], [1], [at], [(1, at)]))
        return [list(output.values) for output in outputs]

    for hour in range(12):
        first, second = (one, other) if hour % 3 else (other, one)
        results = tick(first, hour)
        (second.apply(first.delta()), second.hidden["epoch"].apply(first.hidden["epoch"].delta()))
        second.delta(), second.hidden["epoch"].delta()
        assert [len(it) for it in results] == [int(hour > 0), int(hour == 4)]
        assert dict(one.state) == dict(other.state)
        assert len(one.state) <= 6


def test_a_delta_has_only_the_windows_that_changed() -> None:
    panes = [calendar(unit).panes for unit in ("hour", "day", "month")]
    levels = [Level(it, keep) for it, keep in zip(panes, (FOREVER, None, None), strict=True)]
    operator = RollupAggregate(OperatorContext("rollup", tracked=True), levels, (agg.count(),))

    def delta_of(timestamp: datetime, *epochs: datetime) -> tuple[list[str], list[str]]:
        operator.process(Batch(["a"], [1], [timestamp], [(1, it) for it in epochs]))
        delta = operator.delta()
        return _units(delta.changed), _units(delta.deleted)

    first = START.replace(hour=0)
    for hour in range(2000):
        now = first + timedelta(hours=hour)
        operator.process(Batch(["a"], [1], [now], [(1, now - timedelta.resolution)]))
    assert len(operator.delta().changed) > 2000
    assert delta_of(now) == (["hour"], [])
    later = now + timedelta(hours=1)
    assert delta_of(later, later - timedelta.resolution) == (["hour", "day"], [])
    day = first + timedelta(days=85)
    assert delta_of(day, day - timedelta.resolution) == (["hour", "month"], ["day"])


def _units(slots: Iterable[tuple[int, Any]]) -> list[str]:
    return sorted((list(Unit)[slot % 8].value for slot, _ in slots), key=UNITS.index)


def test_dates_are_rolled_up() -> None:
    items = [("a", date(2026, 3, day), 1) for day in range(1, 32)]
    found = results_of(items, timedelta(0), rolled_up(["day", "week"], "UTC", agg.count()))
    weeks = [tuple(it.value[1])[:3] for it in found if it.value[0] == "week"]
    assert weeks[0] == (date(2026, 2, 23), date(2026, 3, 2), 1)
    assert weeks[1] == (date(2026, 3, 2), date(2026, 3, 9), 7)
    found = results_of(items, timedelta(0), rolled_up(["day", "month"], "UTC", agg.count()))
    assert [it.timestamp for it in found if it.value[0] == "month"] == [date(2026, 3, 31)]


def test_a_day_of_25_hours_has_25() -> None:
    items = [("a", datetime(2026, 10, 24, 22, tzinfo=UTC) + timedelta(hours=n), 1) for n in range(26)]
    found = results_of(items, timedelta(0), rolled_up(["hour", "day"], "Europe/Prague", agg.count()))
    assert [it.value[1].value for it in found if it.value[0] == "day"] == [25, 1]


def test_a_window_and_the_one_around_it_close_by_one_epoch() -> None:
    last = datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    add = rolled_up(["second", "minute", "hour", "day", "month", "year"], "UTC", agg.count())
    found = results_of([("a", last, 1)], timedelta(0), add)
    assert [(it.value[0], it.value[1].timing) for it in found] == [
        (unit, Timing.FINAL) for unit in ("second", "minute", "hour", "day", "month", "year")
    ]


def test_a_mean_is_not_a_mean_of_means() -> None:
    items = [("a", START, 1.0), ("a", START, 2.0), ("a", START, 3.0), ("a", START + timedelta(hours=1), 10.0)]
    found = results_of(items, timedelta(hours=9), rolled_up(["hour", "day"], "UTC", agg.mean()))
    assert [it.value[1].value for it in found] == [2.0, 10.0, 4.0]


def test_accumulators_that_are_shared_do_not_change() -> None:
    """The day holds the hour's own list while the hour is kept, and takes in the next hour."""
    hours = [START, START + timedelta(hours=1), START + timedelta(hours=2)]
    add = rolled_up(["hour", "day"], "UTC", agg.collect(), keep={"hour": timedelta(days=1)})
    build = windowed_flow(source_of([("a", at, at.hour) for at in hours]), timedelta(0), add, VecSink())
    with run_of(build) as run:
        while not run.is_finished:
            run.tick()
        slots = slots_of(run)
    assert [acc for (unit, _, _), acc in slots.items() if unit == "hour"] == [[20], [21], [22]]
    assert [acc for (unit, _, _), acc in slots.items() if unit == "day"] == [[20, 21]]


def test_windows_that_are_no_longer_kept_are_dropped() -> None:
    hours = [("a", START + timedelta(hours=n), 1) for n in range(10)]

    def program(keep: Any, ending: int) -> Any:
        items = [part for item in hours[:ending] for part in (item, PAUSE)]
        add = rolled_up(["hour", "day"], "UTC", agg.count(), keep=keep)
        return compiled(windowed_flow(source_of(items), timedelta(0), add, VecSink()))

    store, first = Store(), program({"hour": FOREVER}, 3)
    run = store.restore(first, 1)
    while not run.is_finished:
        run.tick()
        store.commit(run, first)
    run.close()
    assert len(slots_of(run)) == 4
    with store.restore(program(None, 10), 1) as again:
        while not again.is_finished:
            again.tick()
        assert sorted(unit for unit, _, _ in slots_of(again)) == ["day", "hour"]


def test_a_pane_that_no_coarser_one_contains_is_an_error() -> None:
    """Nepal was five and a half hours ahead of UTC until 1986, and has been a quarter more since."""
    add = rolled_up(["hour", "day"], "Asia/Kathmandu", agg.count())
    assert results_of([("a", START, 1)], timedelta(0), add)
    items = [("a", datetime(1980, 1, 1, 18, 20, tzinfo=UTC), 1), ("a", datetime(1981, 1, 1, tzinfo=UTC), 1)]
    with pytest.raises(
        OperatorError, match=r"'rollup' failed: the hour from 1980-01-01 18:15:00\+00:00 is in two days"
    ):
        results_of(items, timedelta(0), add)


def test_a_failing_merge_names_the_key() -> None:
    def merge(one: int, other: int) -> int:
        raise ValueError("no way")

    failing = agg.fold(int, lambda acc, value: acc + value, merge=merge)
    items = [(key, START + timedelta(hours=n), 1) for n in range(3) for key in "ab"]
    with pytest.raises(OperatorError, match=r"'rollup' failed at merging accumulators of key 'a': ValueError: no way"):
        results_of(items, timedelta(0), rolled_up(["hour", "day"], "UTC", failing))


@pytest.mark.parametrize(
    ("units", "options", "why"),
    [
        (["week", "month"], {}, "a week may be in two months"),
        (["day", "hour"], {}, "'day' precedes 'hour'"),
        (["hour", "hour"], {}, "'hour' precedes 'hour'"),
        ([], {}, "a list of calendar units"),
        ("hour", {}, "a list of calendar units"),
        (["hour", "decade"], {}, "'decade'"),
        (["hour", "day"], {"zone": "Mars/Olympus"}, "not a known time zone"),
        (
            ["hour", "day"],
            {"zone": "Australia/Lord_Howe"},
            "hours don't fit the zone Australia/Lord_Howe, where clocks change by a part of an hour",
        ),
        (["hour", "day"], {"keep": {"month": timedelta(1)}}, "not one of its levels"),
        (["hour", "day"], {"keep": {"hour": timedelta(0)}}, "keep of 'hour' must be a time above zero, .* or FOREVER"),
        (["hour", "day"], {"keep": timedelta(1)}, "a mapping of levels"),
    ],
)
def test_levels_that_make_no_sense_are_refused(units: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(GraphError, match=rf"operator 'rollup' .*({why})"):
        results_of([], timedelta(0), lambda it: it.rollup("rollup", units, agg.count(), **options)["hour"])


def test_aggregators_that_cannot_merge_are_refused() -> None:
    alone = agg.fold(int, lambda acc, value: acc + value)
    with pytest.raises(GraphError, match=r"'rollup' has levels made of each other and can't merge agg\.fold"):
        results_of([], timedelta(0), rolled_up(["hour", "day"], "UTC", alone))


def test_minutes_and_days_where_clocks_move_by_half_an_hour() -> None:
    items = [("a", datetime(2026, 4, 4, 12, tzinfo=UTC) + timedelta(minutes=n), 1) for n in range(3 * 24 * 60)]
    found = results_of(items, timedelta(0), rolled_up(["minute", "day"], "Australia/Lord_Howe", agg.count()))
    assert [it.value[1].value for it in found if it.value[0] == "day"][:2] == [60, 1470]


def test_other_levels_are_refused_with_both_sides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = [Timed(("a", 1), START), END, Timed(("a", 1), START + timedelta(minutes=1))]
    source = StatefulSource(ScriptedSource(script))

    def run(units: Sequence[str], zone: str, **options: Any) -> list[Any]:
        sink: VecSink[Any, Any, Any] = VecSink()
        build = windowed_flow(source, timedelta(0), rolled_up(units, zone, agg.count(), **options), sink)
        SingleThreadRuntime(build, persistence=FsspecBackend(str(tmp_path)), at_end="finish").execute()
        return [it.value[1].value for it in sink if it.value[0] == "day"]

    assert run(["hour", "day"], "UTC") == [1]
    with pytest.raises(SnapshotError, match=r"rollup of hours, months in UTC, but .* rollup of hours, days in UTC"):
        run(["hour", "month"], "UTC")
    with pytest.raises(SnapshotError, match="rollup of hours, days in Europe/Prague, but"):
        run(["hour", "day"], "Europe/Prague")
    assert run(["hour", "day"], "UTC", migrate=lambda acc, _: 10 * acc, version=2) == [11]
    with caplog.at_level(logging.WARNING, "malflow.snapshot"):
        assert run(["hour", "day"], "Europe/Prague", version=3) == []
    assert "starts without the 1 accumulators of open windows" in caplog.text


def test_one_level_is_a_rollup_too() -> None:
    found = results_of([("a", START, 1)], timedelta(0), rolled_up(["day"], "UTC", agg.count(), agg.sum()))
    assert [it.value[1].value for it in found] == [(1, 1)]
    assert isinstance(found[0].value[1], WindowResult)

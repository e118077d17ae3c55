"""Panes: numbered partitions of time, for each type of timestamps and each time zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import pairwise
from math import inf, nextafter
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malflow import GraphError, OperatorError, agg
from malflow.event_time.panes import fitted, instant_after
from malflow.windows import TimeWindows, Timing, WindowResult, calendar, sliding, tumbling
from tests.windows.running import results_of

TICK = timedelta.resolution
zones = st.sampled_from(sorted(available_timezones())).map(ZoneInfo)
moments = st.datetimes(datetime(1900, 1, 1), datetime(2100, 12, 31), timezones=st.just(UTC))
walls = st.datetimes(datetime(1900, 1, 1), datetime(2100, 12, 31))


def panes_of(windows: TimeWindows, moment: Any) -> Any:
    """Return the panes of windows for timestamps of this one's type."""
    return fitted(windows.panes, moment)


def wall_of(moment: datetime, zone: tzinfo) -> datetime:
    """Return what the clocks of a zone show."""
    return moment.astimezone(zone).replace(tzinfo=None)


def first_day(day: date, unit: str) -> date:
    """Return the first day of the unit that contains a day."""
    match unit:
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "year":
            return day.replace(month=1, day=1)
        case _:
            return day


days_or_longer = st.sampled_from(["day", "week", "month", "quarter", "year"])
shorter = st.sampled_from(["second", "minute", "hour"])


@given(moment=moments, zone=zones, unit=days_or_longer)
@example(datetime(2011, 12, 30, 12, tzinfo=UTC), ZoneInfo("Pacific/Apia"), "day")  # it skipped a day
@example(datetime(1919, 3, 31, 12, tzinfo=UTC), ZoneInfo("America/Toronto"), "day")  # from 23:30 to 0:30
@example(datetime(2018, 11, 4, 12, tzinfo=UTC), ZoneInfo("America/Sao_Paulo"), "day")  # there was no midnight
@example(datetime(2010, 11, 7, 2, 45, tzinfo=UTC), ZoneInfo("America/St_Johns"), "day")  # midnight came twice
def test_calendar_units_begin_at_their_first_midnight(moment: datetime, zone: tzinfo, unit: str) -> None:
    panes = panes_of(calendar(unit, zone), moment)
    number = panes.number(moment)
    start, end = panes.start(number), panes.start(number + 1)
    assert start <= moment < end
    assert panes.last(number) == end - TICK
    midnight = datetime.combine(first_day(wall_of(moment, zone).date(), unit), time())
    if wall_of(start, zone).date() == midnight.date():
        assert wall_of(start - TICK, zone) < midnight <= wall_of(start, zone)
    else:  # the clock was set back over midnight: the wall still shows the day before
        assert wall_of(start, zone) > midnight


@given(moment=moments, zone=zones, unit=days_or_longer, count=st.integers(1, 40))
def test_calendar_units_follow_each_other(moment: datetime, zone: tzinfo, unit: str, count: int) -> None:
    panes = panes_of(calendar(unit, zone), moment)
    starts = [panes.start(number) for number in range(panes.number(moment), panes.number(moment) + count)]
    assert all(earlier <= later for earlier, later in pairwise(starts))
    lengths = [later - earlier for earlier, later in pairwise(starts)]
    assert sum(lengths, timedelta()) == starts[-1] - starts[0]
    if unit == "day":
        assert all(timedelta(0) <= it <= timedelta(hours=49) for it in lengths)


@given(
    moment=st.datetimes(datetime(2020, 1, 1), datetime(2037, 12, 31), timezones=st.just(UTC)),
    zone=zones,
    unit=shorter,
)
@example(moment=datetime(2026, 6, 4, 12, tzinfo=UTC), zone=ZoneInfo("Australia/Lord_Howe"), unit="hour")
@example(moment=datetime(2026, 6, 4, 12, tzinfo=UTC), zone=ZoneInfo("Asia/Kathmandu"), unit="hour")
def test_hours_and_shorter_units_begin_where_the_clock_shows_them(moment: datetime, zone: tzinfo, unit: str) -> None:
    length = timedelta(**{f"{unit}s": 1})
    try:
        panes = panes_of(calendar(unit, zone), moment)
    except GraphError as error:
        assert f"{unit}s don't fit the zone {zone}" in str(error)  # noqa: PT017 - most zones are fit
        days = [datetime(moment.year, month, 1, tzinfo=zone).utcoffset() or timedelta() for month in range(1, 13)]
        assert len({offset % length for offset in days}) > 1
    else:
        start = wall_of(panes.start(panes.number(moment)), zone)
        assert (start - datetime(2020, 1, 1)) % length == timedelta(0)


@given(
    moment=moments,
    zone=zones.filter(lambda zone: zone.key not in ("Australia/Lord_Howe", "Australia/LHI")),
    unit=shorter,
)
def test_calendar_hours_and_shorter_units_are_of_one_length(moment: datetime, zone: tzinfo, unit: str) -> None:
    panes = panes_of(calendar(unit, zone), moment)
    number = panes.number(moment)
    assert panes.start(number) <= moment < panes.start(number + 1)
    assert panes.start(number + 1) - panes.start(number) == timedelta(**{f"{unit}s": 1})
    assert (panes.start(number) - datetime(2020, 1, 1, tzinfo=zone)) % timedelta(**{f"{unit}s": 1}) == timedelta(0)


@given(wall=walls, unit=days_or_longer)
def test_calendar_units_of_times_without_a_zone(wall: datetime, unit: str) -> None:
    first = first_day(wall.date(), unit)
    for moment, start, tick in ((wall, datetime.combine(first, time()), TICK), (wall.date(), first, timedelta(days=1))):
        panes = panes_of(calendar(unit), moment)
        number = panes.number(moment)
        assert panes.start(number) == start
        assert type(panes.start(number)) is type(start)
        assert panes.start(number) <= moment <= panes.last(number) == panes.start(number + 1) - tick


@given(moment=moments, hours=st.integers(-30, 30))
def test_calendar_days_of_utc_are_windows_of_a_day(moment: datetime, hours: int) -> None:
    one = panes_of(calendar("day"), moment)
    other = panes_of(tumbling(timedelta(days=1)), moment)
    later = moment + timedelta(hours=hours)
    for panes in (one, other):
        assert panes.start(panes.number(later)) == datetime.combine(later.date(), time(), UTC)
    assert one.last(one.number(later)) == other.last(other.number(later))


numbers = st.one_of(
    st.tuples(st.integers(-(2**70), 2**70), st.integers(1, 2**40), st.integers(-(2**40), 2**40)),
    st.tuples(st.integers(-100, 100), st.integers(1, 12), st.integers(-20, 20)),
)
spans = st.timedeltas(timedelta(microseconds=1), timedelta(days=6))


@given(
    it=st.one_of(
        numbers,
        st.tuples(walls, spans, spans),
        st.tuples(moments, spans, spans),
        st.tuples(st.timedeltas(timedelta(days=-9999), timedelta(days=9999)), spans, spans),
        st.tuples(st.dates(), st.integers(1, 6).map(timedelta), st.integers(-9, 9).map(timedelta)),
    )
)
def test_windows_contain_their_start_and_not_their_end(it: tuple[Any, Any, Any]) -> None:
    moment, size, offset = it
    panes = panes_of(tumbling(size, offset=offset), moment)
    try:
        number = panes.number(moment)
        start, last, end = panes.start(number), panes.last(number), panes.start(number + 1)
    except OverflowError:  # beyond the first or last day of the calendar
        return
    assert start <= moment <= last < end
    assert instant_after(last) == end == start + size
    origins = {int: 0, timedelta: timedelta(), date: date(1970, 1, 1), datetime: datetime(1970, 1, 1)}
    origin = origins[type(moment)]
    if isinstance(origin, datetime):
        origin = origin.replace(tzinfo=moment.tzinfo)
    assert (start - origin - offset) % size == size - size


@given(
    moment=st.floats(-1e9, 1e9),
    size=st.sampled_from([0.1, 0.2, 0.3, 1.1, 7.7, 1e-3, 1 / 3]),
    offset=st.floats(0, 10),
    near=st.booleans(),
)
def test_windows_of_floats_have_no_gaps(moment: float, size: float, offset: float, near: bool) -> None:
    panes = panes_of(tumbling(size, offset=offset), moment)
    if near:  # a bound, and the floats next to it
        bound = panes.start(panes.number(moment))
        assert panes.number(nextafter(bound, -inf)) < panes.number(bound) == panes.number(nextafter(bound, inf))
        moment = bound
    number = panes.number(moment)
    assert panes.start(number) <= moment <= panes.last(number) < panes.start(number + 1)
    assert nextafter(panes.last(number), inf) == panes.start(number + 1)


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("windows", "start", "last", "before"),
    [
        (tumbling(10), 0, 9, 8),
        (tumbling(10, offset=3), -7, 2, 1),
        (tumbling(0.5), 0.5, nextafter(1.0, 0), nextafter(1.0, 0) - 1e-12),
        (tumbling(timedelta(days=2)), date(1970, 1, 3), date(1970, 1, 4), date(1970, 1, 3)),
        (tumbling(timedelta(hours=1)), datetime(2026, 1, 1), datetime(2026, 1, 1, 1) - TICK, datetime(2026, 1, 1)),
        (tumbling(timedelta(hours=1)), timedelta(0), timedelta(hours=1) - TICK, timedelta(minutes=59)),
        (
            calendar("day", BERLIN),
            datetime(2026, 3, 29, tzinfo=BERLIN).astimezone(UTC),
            datetime(2026, 3, 29, 21, 59, 59, 999999, UTC),
            datetime(2026, 3, 29, 21, 59, 59, 999998, UTC),
        ),
        (calendar("month"), date(2026, 2, 1), date(2026, 2, 28), date(2026, 2, 27)),
    ],
)
def test_an_epoch_at_the_last_instant_closes_a_window(windows: Any, start: Any, last: Any, before: Any) -> None:
    """Waiting for its end would delay the result by a record; an epoch before would miss one."""

    def timings(second: Any) -> list[Timing]:
        found = results_of(
            [("a", start, 1), ("b", second, 1)],
            0,
            lambda keyed: keyed.window(windows).aggregate("counts", agg.count()),
            generator=lambda msg, epoch: msg.timestamp,
        )
        assert all(it.timestamp == last for it in found if it.value.start == start)
        return [it.value.timing for it in found]

    assert timings(last) == [Timing.FINAL] * 2
    assert timings(before) == [Timing.END] * 2 if before > start else [Timing.END]


def test_windows_of_weeks_would_begin_on_thursdays() -> None:
    for windows in (lambda: tumbling(timedelta(weeks=1)), lambda: sliding(timedelta(days=1), timedelta(weeks=2))):
        with pytest.raises(GraphError, match=r"Thursdays, as 1970 did; use calendar\('week', zone\), or set offset="):
            windows()
    panes = panes_of(tumbling(timedelta(weeks=1), offset=timedelta(days=4)), date(2026, 3, 1))
    assert panes.start(panes.number(date(2026, 3, 1))) == date(2026, 2, 23)


def test_negative_times_are_rounded_down() -> None:
    found = results_of(
        [("a", at, at) for at in (-1, -10, -11, 0)],
        100,
        lambda keyed: keyed.window(tumbling(10)).aggregate("all", agg.collect()),
    )
    assert [it.value for it in found] == [
        WindowResult(-20, -10, (-11,), Timing.END),
        WindowResult(-10, 0, (-1, -10), Timing.END),
        WindowResult(0, 10, (0,), Timing.END),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (date(2026, 1, 1), datetime(2026, 1, 1)),
        (datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),
        (1, 1.5),
        (True, timedelta(1)),
    ],
)
def test_timestamps_of_two_types_are_named(one: Any, other: Any) -> None:
    windows = tumbling(timedelta(days=1)) if isinstance(one, date) else tumbling(1)

    def add(keyed: Any) -> Any:
        return keyed.window(windows).aggregate("counts", agg.count())

    for items in ([("a", one, 1), ("b", other, 2)], [("a", other, 1), ("b", one, 2)]):
        with pytest.raises(OperatorError, match=r"(?s)operator '(epochs|counts)'.*(type|zone)"):
            results_of(items, 0, add, generator=lambda msg, epoch: None)

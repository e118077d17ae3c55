"""Cron expressions where clocks change: a model that steps through the minutes, at every change of every zone."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow.sources import CronSource

ZONES = sorted(available_timezones() - {"localtime"})
AROUND = timedelta(hours=60)
SINCE, UNTIL = datetime(1973, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)


@cache
def changes(zone: str) -> list[datetime]:
    """Return the minutes in which the clocks of a zone change, from 1973 on, when all offsets were of whole minutes."""
    at = ZoneInfo(zone)
    days = [SINCE + timedelta(days=day) for day in range((UNTIL - SINCE).days)]
    offsets = [day.astimezone(at).utcoffset() for day in days]
    changed = [day for day, one, other in zip(days, offsets, offsets[1:], strict=False) if one != other]
    return [_minute_of_change(at, day) for day in changed]


def _minute_of_change(at: ZoneInfo, day: datetime) -> datetime:
    before = day.astimezone(at).utcoffset()

    def is_over(minute: int) -> bool:
        return (day + timedelta(minutes=minute)).astimezone(at).utcoffset() != before

    return day + timedelta(minutes=bisect(range(24 * 60 + 1), False, key=is_over))


class Expression:
    """Minutes and hours, and whether each of them is written with a star."""

    def __init__(self, minutes: tuple[int, ...], hours: tuple[int, ...], step: int) -> None:
        self.minutes = minutes
        self.hours = range(0, 24, step) if step else hours
        self.is_starred = bool(step)
        hour = f"*/{step}" if step else ",".join(map(str, hours))
        self.text = f"{','.join(map(str, minutes))} {hour} * * *"

    def __repr__(self) -> str:
        return self.text

    def matches(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours


def runs(expression: Expression, zone: str, begin: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the instants at which an expression runs, by going through all minutes.

    With a star it runs whenever the clock matches; otherwise each time runs when the clock has reached or passed it.
    """
    at = ZoneInfo(zone)
    reached = begin.astimezone(at).replace(tzinfo=None)
    minute = begin
    while minute < end:
        minute += timedelta(minutes=1)
        wall = minute.astimezone(at).replace(tzinfo=None, fold=0)
        if expression.is_starred:
            due = expression.matches(wall)
        else:
            passed = [wall - timedelta(minutes=ago) for ago in range(int((wall - reached) / timedelta(minutes=1)))]
            due = any(map(expression.matches, passed))
        reached = max(reached, wall)
        if due:
            yield minute


@st.composite
def cases(draw: st.DrawFn) -> tuple[Expression, str, datetime]:
    """Draw a zone, a change of its clocks, and an expression with hours near it."""
    zone = draw(st.sampled_from(ZONES).filter(changes))
    change = draw(st.sampled_from(changes(zone)))
    hour = change.astimezone(ZoneInfo(zone)).hour
    minutes = draw(st.lists(st.integers(0, 59) | st.sampled_from([0, 30]), min_size=1, max_size=3, unique=True))
    hours = draw(st.lists(st.integers(hour - 2, hour + 1).map(lambda it: it % 24), min_size=1, max_size=4, unique=True))
    return Expression(tuple(minutes), tuple(hours), draw(st.sampled_from([0, 0, 1, 2, 5]))), zone, change


@settings(max_examples=settings().max_examples // 4)  # each goes through days of minutes
@given(cases(), st.integers(-2 * 3600, 2 * 3600) | st.integers(-48 * 3600, 48 * 3600))
@pytest.mark.slow
def test_instants_are_those_of_the_clock_forward_backward_and_resumed(
    case: tuple[Expression, str, datetime], seconds: int
) -> None:
    expression, zone, change = case
    begin, end = change - AROUND, change + AROUND
    expected = list(runs(expression, zone, begin, end))
    source = CronSource(expression.text, zone)
    found = list(takewhile(lambda instant: instant <= end, source.after(begin)))
    assert found == expected
    start = change + timedelta(seconds=seconds)
    later = [instant for instant in expected if instant > start]
    assert list(takewhile(lambda instant: instant <= end, source.after(start))) == later
    before = start
    for earlier in [instant for instant in reversed(expected) if instant < start][:8]:
        before = source.before(before) or begin
        assert before == earlier
    position = start
    for instant in later[:8]:
        position = next(source.after(position))
        assert position == instant

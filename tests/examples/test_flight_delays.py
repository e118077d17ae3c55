"""`flight_delays` against the whole table: plain lists and sums, no stream."""

import csv
import gzip
from collections import defaultdict
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, NamedTuple

import pytest

from examples.flight_delays import BOUND, EST, FLIGHTS, build
from malflow import SingleThreadRuntime
from malflow.sinks import VecSink

pytestmark = pytest.mark.slow

ROWS = 27_004
CANCELLED = 521
LATE = 78


class Departure(NamedTuple):
    carrier: str
    origin: str
    time: datetime
    delay: int


@pytest.fixture(scope="module")
def table() -> list[dict[str, str]]:
    with gzip.open(FLIGHTS, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def departures(table: list[dict[str, str]]) -> list[Departure]:
    return [
        Departure(row["carrier"], row["origin"], departure_time(row), int(row["dep_delay"]))
        for row in table
        if row["dep_time"] != "NA"
    ]


@pytest.fixture(scope="module")
def is_late(departures: list[Departure]) -> list[bool]:
    """Return whether each departure is late: not after the hour of the newest one before it, less the bound."""
    newest = list(accumulate((departure.time for departure in departures), max))
    behind = [
        departure.time <= (before - BOUND).replace(minute=0)
        for departure, before in zip(departures[1:], newest, strict=False)
    ]
    return [False, *behind]


def departure_time(row: dict[str, str]) -> datetime:
    """Date the clock time at which a flight left: one before that at which it was due is tomorrow's."""
    day = datetime(int(row["year"]), int(row["month"]), int(row["day"]), tzinfo=EST)
    tomorrow = int(row["dep_time"]) < int(row["sched_dep_time"]) and int(row["dep_delay"]) > 0
    hours, minutes = divmod(int(row["dep_time"]), 100)
    return day + timedelta(days=tomorrow, hours=hours, minutes=minutes)


class Results(NamedTuple):
    hourly: VecSink[Any, Any, Any]
    carriers: VecSink[Any, Any, Any]
    late: VecSink[Any, Any, Any]
    cancelled: VecSink[Any, Any, Any]


@pytest.fixture(scope="module", params=[1, 3], ids=["one worker", "three workers"])
def results(request: pytest.FixtureRequest) -> Results:
    sinks = Results(VecSink(), VecSink(), VecSink(), VecSink())
    SingleThreadRuntime(build(*sinks), parallelism=request.param).execute()
    return sinks


def last_by_key(sink: VecSink[Any, Any, Any]) -> dict[Any, Any]:
    return {msg.key: msg.value for msg in sink}


def test_the_table_is_january(table: list[dict[str, str]], departures: list[Departure]) -> None:
    assert len(table) == ROWS
    assert {(row["year"], row["month"]) for row in table} == {("2013", "1")}
    assert len(departures) == ROWS - CANCELLED


def test_the_table_is_as_out_of_order_as_the_example_says(departures: list[Departure]) -> None:
    times = [departure.time for departure in departures]
    newest = list(accumulate(times, max))
    after_midnight = [time - timedelta(minutes=delay) for _, _, time, delay in departures]
    moved = [due.date() != departure.time.date() for due, departure in zip(after_midnight, departures, strict=True)]
    others = [time for time, is_moved in zip(times, moved, strict=True) if not is_moved]

    assert max(top - time for top, time in zip(newest, times, strict=True)) == timedelta(hours=24)
    assert sum(moved) == 52
    assert others == sorted(others)


def test_the_last_statistics_of_a_carrier_are_those_of_the_whole_table(
    departures: list[Departure], results: Results
) -> None:
    delays = defaultdict(list)
    for departure in departures:
        delays[departure.carrier].append(departure.delay)

    assert len(delays) == 16
    assert last_by_key(results.carriers) == {
        carrier: (len(of_carrier), sum(of_carrier), max(of_carrier)) for carrier, of_carrier in delays.items()
    }


def test_statistics_of_a_carrier_run_on_with_each_flight(departures: list[Departure], results: Results) -> None:
    for carrier in ("UA", "HA", "OO"):
        delays = [departure.delay for departure in departures if departure.carrier == carrier]
        running = [msg.value for msg in results.carriers if msg.key == carrier]
        assert [stats.flights for stats in running] == list(range(1, len(delays) + 1))
        assert [stats.total for stats in running] == list(accumulate(delays))
        assert [stats.longest for stats in running] == list(accumulate(delays, max))


def test_every_hour_of_every_origin_has_its_flights_and_their_mean_delay(
    departures: list[Departure], is_late: list[bool], results: Results
) -> None:
    delays = defaultdict(list)
    for departure, late in zip(departures, is_late, strict=True):
        if not late:
            delays[departure.time.replace(minute=0), departure.origin].append(departure.delay)

    assert len(results.hourly) == len(delays), "an hour is emitted once"
    assert {(msg.value.start, msg.key): msg.value.value for msg in results.hourly} == {
        key: (len(of_hour), sum(of_hour), max(of_hour)) for key, of_hour in delays.items()
    }


def test_an_hour_is_stamped_with_its_last_instant(results: Results) -> None:
    assert all(msg.timestamp == msg.value.start + timedelta(hours=1, microseconds=-1) for msg in results.hourly)


def test_on_one_worker_hours_come_in_the_order_of_time() -> None:
    hourly: VecSink[Any, Any, Any] = VecSink()
    SingleThreadRuntime(build(hourly, VecSink(), VecSink(), VecSink())).execute()
    ends = [msg.timestamp for msg in hourly]

    assert ends == sorted(ends)
    assert {msg.key for msg in hourly} == {"EWR", "JFK", "LGA"}


def test_late_flights_are_counted_by_origin(departures: list[Departure], is_late: list[bool], results: Results) -> None:
    late = [departure.origin for departure, late in zip(departures, is_late, strict=True) if late]

    assert len(late) == LATE
    assert last_by_key(results.late) == {origin: late.count(origin) for origin in ("EWR", "JFK", "LGA")}


def test_cancelled_flights_are_counted_by_origin(table: list[dict[str, str]], results: Results) -> None:
    cancelled = [row["origin"] for row in table if row["dep_time"] == "NA"]

    assert len(cancelled) == CANCELLED
    assert last_by_key(results.cancelled) == {origin: cancelled.count(origin) for origin in ("EWR", "JFK", "LGA")}


def test_no_flight_is_lost(results: Results) -> None:
    on_time = sum(msg.value.value.flights for msg in results.hourly)

    assert on_time + len(results.late) + len(results.cancelled) == ROWS
    assert len(results.carriers) + len(results.cancelled) == ROWS

"""A month of flights as a stream: departure delays in New York, January 2013.

One pass over 27,004 flights computes running statistics per carrier and, in event time, per origin and hour:
the hour in which a flight really left. Flights that arrive too late for their hour are counted, not lost.
"""

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

from malflow import (
    DataMessage,
    SingleThreadRuntime,
    Stream,
    StreamProvider,
    agg,
    limit_out_of_orderness,
)
from malflow.sinks import StatelessSinkImpl, VecSink
from malflow.sources import CsvSource
from malflow.windows import calendar

FLIGHTS = Path(__file__).parent / "data" / "flights-2013-01.csv.gz"
EST = timezone(timedelta(hours=-5), "EST")  # New York's time in winter
HOUR = timedelta(hours=1)

# The file is sorted by the day on which a flight was due and the clock time at which it left: 52 flights
# left after midnight, on the next day, and are listed up to 24 hours too early; the others are in order. With a
# bound of 23 hours, 78 of 26,483 flights are too late, because of three that were delayed 14 to 22 hours.
BOUND = timedelta(hours=23)


class Flight(NamedTuple):
    """The fields of a row that the dataflow needs; the delay is in minutes, negative if the flight left early."""

    carrier: str
    origin: str
    departure: datetime
    delay: int


class Delays(NamedTuple):
    """Departure delays of a number of flights, in minutes."""

    flights: int
    total: int
    longest: int


DELAYS = agg.into(Delays, flights=agg.count(), total=agg.sum("delay"), longest=agg.max("delay"))


def parse(row: dict[str, str]) -> Flight:
    """Parse a row. `dep_time` has no date: the delay tells on which day the flight left."""
    numbers = (int(row[name]) for name in ("year", "month", "day", "hour", "minute", "dep_delay"))
    year, month, day, hour, minute, delay = numbers
    due = datetime(year, month, day, hour, minute, tzinfo=EST)
    return Flight(row["carrier"], row["origin"], due + timedelta(minutes=delay), delay)


def flown_or_cancelled(msg: DataMessage, outputs: list[bool]) -> None:
    cancelled = msg.value["dep_time"] == "NA"
    outputs[:] = [not cancelled, cancelled]


def count_origins(name: str, origins: Stream, sink: StatelessSinkImpl) -> None:
    keyed = origins.key_distribute(f"{name} by origin", lambda msg: msg.value)
    keyed.aggregate(f"count {name}", agg.count()).sink(name, sink)


def build(
    hourly: StatelessSinkImpl, carriers: StatelessSinkImpl, late: StatelessSinkImpl, cancelled: StatelessSinkImpl
) -> Callable[[StreamProvider], None]:
    """Return a build function for the dataflow that ends in these four sinks."""

    def build_dataflow(provider: StreamProvider) -> None:
        rows = provider.new_stream().source("flights", CsvSource(FLIGHTS))
        flown, not_flown = rows.split("flown or cancelled", flown_or_cancelled, 2)
        count_origins("cancelled", not_flown.map("cancelled origin", lambda row: row["origin"]), cancelled)

        by_carrier, by_hour = flown.map("parse", parse).cloned("two views", 2)
        by_carrier = by_carrier.key_distribute("carrier", "carrier")
        by_carrier.aggregate("delays per carrier", DELAYS).sink("carriers", carriers)

        timed = by_hour.assign_timestamps("departure", lambda msg: msg.value.departure)
        on_time, too_late = timed.generate_epochs("epochs", limit_out_of_orderness(BOUND), every=HOUR)
        count_origins("late", too_late.map("late origin", lambda flight: flight.origin), late)
        by_origin = on_time.key_distribute("origin", "origin")
        by_origin.window(calendar("hour", EST)).aggregate("hourly delays", DELAYS).sink("hourly", hourly)

    return build_dataflow


class DayPrinter(StatelessSinkImpl):
    """A sink that prints a line per day: at each origin, a bar for each hour's mean delay."""

    def __init__(self) -> None:
        self._day: date | None = None
        self._bars: dict[str, list[str]] = {}

    def sink(self, msg: DataMessage) -> None:
        """Draw an hour's bar; the first hour of the next day completes the line."""
        start, delays = msg.value.start, msg.value.value
        if start.date() != self._day:
            self.close()
            self._day, self._bars = start.date(), {origin: [" "] * 24 for origin in ("EWR", "JFK", "LGA")}
        tens = delays.total // delays.flights // 10
        self._bars[msg.key][start.hour] = "▁▂▃▄▅▆▇█"[min(max(tens, 0), 7)]

    def close(self) -> None:
        """Print the line; called by the runtime at the end, too."""
        if self._day:
            print(f"{self._day:%d}", *map("".join, self._bars.values()))


def main() -> None:
    print("January 2013: mean delay by hour of departure, ▁ below 10 minutes ... █ from 70 minutes on")
    print(f"   {'EWR (Newark)':24} {'JFK (Kennedy)':24} LGA (La Guardia)")
    print("  ", *["0     6     12    18    "] * 3)
    carriers, late, cancelled = VecSink(), VecSink(), VecSink()
    SingleThreadRuntime(build(DayPrinter(), carriers, late, cancelled)).execute()

    print("\ncarrier  flights  mean delay  longest (minutes)")
    for carrier, delays in sorted({msg.key: msg.value for msg in carriers}.items()):
        print(f"{carrier:7}  {delays.flights:7,}  {delays.total / delays.flights:10.1f}  {delays.longest:7}")
    print("\ncancelled:              ", dict(sorted((msg.key, msg.value) for msg in cancelled)))
    print("too late for their hour:", dict(sorted((msg.key, msg.value) for msg in late)))


if __name__ == "__main__":
    main()

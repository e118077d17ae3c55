"""Work on a schedule: a source of instants at a fixed interval, and one of the instants of a cron expression.

A source of instants is a trigger: it emits each instant when the clock reaches it, and continues after the last one
when a job with snapshots is restarted. In practice the interval is a minute or a day, and there is no `until`.

Cron expressions need `pip install 'malflow[cron]'`.
"""

from datetime import UTC, datetime, timedelta
from itertools import islice

from malflow import SingleThreadRuntime, StreamProvider, agg
from malflow.sinks import StdOutSink
from malflow.sources import CronSource, PeriodicSource

EVERY = timedelta(milliseconds=100)
NIGHTLY = CronSource("30 2 * * *", zone="Europe/Prague", missed="latest")
"""Half past two each night; after a downtime of several nights, only the last of them.

On 29 March this time does not exist, since clocks go from two to three.
"""


def build_dataflow(provider: StreamProvider) -> None:
    until = datetime.now(UTC) + 8 * EVERY
    instants = provider.new_stream().source("clock", PeriodicSource(EVERY, until=until))
    numbers = instants.key_distribute("reports", lambda _: "report").aggregate("number", agg.count())
    first_ones = numbers.filter("the first three", range(1, 4).__contains__)
    first_ones.inspect("print", lambda msg, _: print(msg.key, msg.value))


def nightly(provider: StreamProvider) -> None:
    """Print each night, forever."""
    provider.new_stream().source("nightly", NIGHTLY).sink("stdout", StdOutSink())


def main() -> None:
    for instant in islice(NIGHTLY.after(datetime(2026, 3, 27, 12, tzinfo=UTC)), 3):
        print(f"a run at {instant.astimezone(NIGHTLY.zone):%d %B %H:%M}")
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()

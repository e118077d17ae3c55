"""Flight delays by airport and hour in a Postgres table, exactly once; late records correct their rows.

Needs `pip install 'malflow[postgres]'` and a Postgres. Append lines to a file with the header ``airport,landed,delay``,
such as ``JFK,2026-01-02T10:15:00+00:00,12``, and run

    python examples/hourly_delays.py "host=localhost dbname=shop" flights.csv state

as often as you like, while the file grows. The row of an hour is written once the hour is over; a flight that is late
by up to a day corrects the row.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

from malflow import SingleThreadRuntime, StreamProvider, agg
from malflow.connectors.postgres import PostgresSink
from malflow.snapshot import FsspecBackend
from malflow.sources import CsvSource
from malflow.windows import calendar

import psycopg

TABLE = """
create table if not exists delays
    (airport text, hour timestamptz, flights int, mean float8, primary key (airport, hour))
"""


def main(dsn: str, path: str, state: str) -> None:
    """Bring the table up to date with the file."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLE)

    def build_dataflow(provider: StreamProvider) -> None:
        flights = provider.new_stream().source("flights", CsvSource(path, types={"landed": datetime, "delay": int}))
        timed = flights.event_time("times", "landed", out_of_orderness=timedelta(minutes=10))
        hours = timed.key_distribute("airport", "airport").window(calendar("hour")).allow_late(until=timedelta(days=1))
        delays = hours.aggregate("delays", agg.count(), agg.mean("delay")).with_revisions()
        rows = delays.map_with_key("row", lambda airport, it: (airport, it.start, *it.value))
        rows.sink("table", PostgresSink(dsn, "delays"))

    SingleThreadRuntime(build_dataflow, FsspecBackend(state), timedelta(seconds=1)).execute()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Visits to a web site, from the lines of its log: a visit ends after half an hour without a request.

The log is not in order: some lines are up to five minutes late. A line may even join two visits into one.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from malflow import DataMessage, SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.sources import SingleIteratorSource
from malflow.windows import WindowResult, session

LOG = """\
2026-03-01T09:00:00+00:00 ann /home
2026-03-01T09:01:10+00:00 bob /home
2026-03-01T09:04:00+00:00 ann /books
2026-03-01T09:02:30+00:00 ann /search
2026-03-01T09:40:00+00:00 bob /tea
2026-03-01T09:42:00+00:00 bob /pay
2026-03-01T10:10:00+00:00 ann /home
2026-03-01T11:00:00+00:00 bob /home
"""


class Request(NamedTuple):
    """A line of the log."""

    time: datetime
    visitor: str
    page: str


class Visit(NamedTuple):
    """The actions of a visitor in one visit."""

    pages: int
    first: str
    last: str


VISIT = agg.into(Visit, pages=agg.count(), first=agg.first("page"), last=agg.last("page"))


def request(line: str) -> Request:
    time, visitor, page = line.split()
    return Request(datetime.fromisoformat(time), visitor, page)


def report(msg: DataMessage[str, WindowResult[Visit, datetime], datetime], _context: object) -> None:
    start, end, visit, _timing = msg.value
    print(f"{msg.key}, {start:%H:%M} to {end:%H:%M}: {visit}")


def build_dataflow(provider: StreamProvider) -> None:
    requests = provider.new_stream().source("log", SingleIteratorSource(LOG.splitlines())).map("requests", request)
    timed = requests.assign_timestamps("time", lambda msg: msg.value.time)
    on_time, _late = timed.generate_epochs("epochs", limit_out_of_orderness(timedelta(minutes=5)))
    (
        on_time.key_distribute("visitor", lambda msg: msg.value.visitor)
        .window(session(timedelta(minutes=30)))
        .aggregate("visits", VISIT)
        .inspect("print", report)
    )


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()

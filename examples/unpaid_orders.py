"""Orders that are neither paid nor cancelled within an hour: the timeouts of a pattern."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from malflow import SingleThreadRuntime, StreamProvider, limit_out_of_orderness
from malflow.patterns import Match, step
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource
from malflow.windows import Timing


class Ordered(NamedTuple):
    """An order was placed."""

    order: str
    time: datetime
    amount: int


class Paid(NamedTuple):
    """An order was paid."""

    order: str
    time: datetime


class Cancelled(NamedTuple):
    """An order was cancelled."""

    order: str
    time: datetime


Event = Ordered | Paid | Cancelled

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
EVENTS: list[Event] = [
    Ordered("A1", NOON, 30),
    Ordered("A2", NOON + timedelta(minutes=2), 12),
    Ordered("A3", NOON + timedelta(minutes=3), 50),
    Cancelled("A2", NOON + timedelta(minutes=20)),
    Paid("A1", NOON + timedelta(minutes=60)),  # after an hour sharp: in time
    Paid("A3", NOON + timedelta(minutes=90)),
    Ordered("A4", NOON + timedelta(minutes=95), 8),
]

ordered, paid, cancelled = step("ordered", Ordered), step("paid", Paid), step("cancelled", Cancelled)
payment = ordered.then(paid, without=cancelled).within(timedelta(hours=1))


def build_dataflow(provider: StreamProvider, events: Iterable[Event] = EVENTS) -> None:
    on_time, _late = (
        provider.new_stream()
        .source("events", SingleIteratorSource(events))
        .assign_timestamps("time", lambda msg: msg.value.time)
        .generate_epochs("epochs", limit_out_of_orderness(timedelta(minutes=1)))
    )
    found = on_time.key_distribute("order", lambda msg: msg.value.order).match("payment", payment)
    paid_in_time = found.matches.map("paid", lambda match: f"{match.key} paid at {match.end:%H:%M}")
    unpaid = found.timeouts.map("unpaid", told)
    paid_in_time.union(unpaid).sink("stdout", StdOutSink())


def told(match: Match[str, Event, datetime]) -> str:
    if match.timing is Timing.END:  # the input has ended within the hour
        return f"{match.key} open since {match.start:%H:%M}"
    return f"{match.key} unpaid since {match.start:%H:%M}"


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()

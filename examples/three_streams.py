"""A pattern over three streams: an order that is paid and delivered, in either order, within three days."""

from collections.abc import Iterable
from typing import NamedTuple

from malflow import SingleThreadRuntime, Stream, StreamProvider, limit_out_of_orderness
from malflow.patterns import Match, step
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource


class Ordered(NamedTuple):
    """An order was placed."""

    order: str
    day: int


class Paid(NamedTuple):
    """An order was paid."""

    order: str
    day: int


class Delivered(NamedTuple):
    """An order was delivered."""

    order: str
    day: int


Event = Ordered | Paid | Delivered

ORDERS = [Ordered("A1", 1), Ordered("A2", 1), Ordered("A3", 2), Ordered("A4", 9)]
PAYMENTS = [Paid("A2", 2), Paid("A1", 4), Paid("A3", 6), Paid("A5", 9)]
DELIVERIES = [Delivered("A1", 2), Delivered("A2", 3), Delivered("A3", 3), Delivered("A5", 9)]

ordered, paid, delivered = step("ordered", Ordered), step("paid", Paid), step("delivered", Delivered)
settled = ordered.then(paid & delivered).within(3)


def summary(match: Match[str, Event, int]) -> str:
    """Return how the order went."""
    return ", then ".join(event.step for event in match.events)


def build_dataflow(provider: StreamProvider) -> None:
    def stream(name: str, events: Iterable[Event]) -> Stream:
        source = provider.new_stream().source(name, SingleIteratorSource(events))
        stamped = source.assign_timestamps(f"day of {name}", lambda msg: msg.value.day)
        on_time, _late = stamped.generate_epochs(f"epochs of {name}", limit_out_of_orderness(1))
        return on_time

    events = stream("orders", ORDERS).union(stream("payments", PAYMENTS), stream("deliveries", DELIVERIES))
    found = events.key_distribute("order", lambda msg: msg.value.order).match("settled", settled)
    found.matches.map("course", summary).sink("settled orders", StdOutSink())
    found.timeouts.map("overdue", lambda match: f"overdue: only {summary(match)}").sink("overdue orders", StdOutSink())


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()

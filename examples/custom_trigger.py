"""A custom trigger: the total of a shop's orders once it reaches 100, or half an hour after the first order."""

from collections.abc import Iterable

from malflow import DataMessage, Output, SingleThreadRuntime, StatefulLogic, StreamProvider, limit_out_of_orderness
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource

Order = tuple[str, int, int]
"""A shop, the minute of the order, and its amount."""

ENOUGH = 100
LONGEST = 30
ORDERS: list[Order] = [
    ("books", 0, 20),
    ("tea", 5, 60),
    ("books", 8, 30),
    ("tea", 12, 45),
    ("books", 29, 10),
    ("tea", 33, 15),
    ("books", 40, 99),
]


class TotalOrTime(StatefulLogic):
    """Send the total when it is large enough, or when time is up; then start over."""

    def on_data(self, msg: DataMessage, total: int | None, output: Output) -> int | None:
        """Set a timer with the first order; a key that is dropped loses its timer."""
        if total is None:
            output.wake(msg.timestamp + LONGEST)
        total = (total or 0) + msg.value[2]
        if total < ENOUGH:
            return total
        output.send(DataMessage(msg.key, total, msg.timestamp))
        return None

    def on_timer(self, key: str, at: int, total: int, output: Output) -> None:
        """Send the total so far."""
        output.send(DataMessage(key, total, at))


def build_dataflow(provider: StreamProvider, orders: Iterable[Order] = ORDERS) -> None:
    on_time, _late = (
        provider.new_stream()
        .source("orders", SingleIteratorSource(orders))
        .assign_timestamps("minute", lambda msg: msg.value[1])
        .generate_epochs("epochs", limit_out_of_orderness(2))
    )
    (
        on_time.key_distribute("shop", lambda msg: msg.value[0])
        .stateful_op("totals", TotalOrTime())
        .sink("stdout", StdOutSink())
    )


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()

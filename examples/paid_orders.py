"""Join two streams by key and time: each order finds its payment, if that arrives within ten minutes.

A left join also emits an order without a payment, as soon as event time shows that none can arrive any more.
"""

from malflow import KeyedStream, SingleThreadRuntime, StreamProvider, limit_out_of_orderness
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource

Row = tuple[str, int, int]
"""The number of an order, a minute, and an amount."""

ORDERS: list[Row] = [("A1", 0, 30), ("A2", 1, 12), ("A3", 3, 50), ("A4", 20, 8)]
PAYMENTS: list[Row] = [("A2", 2, 12), ("A1", 10, 30), ("A3", 14, 50), ("A4", 21, 8)]


def rows_of(provider: StreamProvider, name: str, rows: list[Row]) -> KeyedStream[str, int, int]:
    """Return a stream of amounts, keyed by order. Both streams of a join need epochs."""
    timed = (
        provider.new_stream()
        .source(name, SingleIteratorSource(rows))
        .assign_timestamps(f"minute of {name}", lambda msg: msg.value[1])
    )
    on_time, _late = timed.generate_epochs(f"epochs of {name}", limit_out_of_orderness(2))
    by_order = on_time.key_distribute(f"order of {name}", lambda msg: msg.value[0])
    return by_order.map(f"amount of {name}", lambda row: row[2])


def build_dataflow(provider: StreamProvider) -> None:
    orders = rows_of(provider, "orders", ORDERS)
    payments = rows_of(provider, "payments", PAYMENTS)
    pairs = orders.interval_join("paid", payments, before=0, after=10, how="left")
    pairs.sink("stdout", StdOutSink())


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()

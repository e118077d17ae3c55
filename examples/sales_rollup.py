"""Sales by hour, day and month at once: each order is added once; hours add up to days, and days to the month.

Days follow the time zone of Prague. On 29 March its clocks are set forward, so that day has 23 hours.
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from malflow import DataMessage, SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.sources import SingleIteratorSource
from malflow.windows import WindowResult


class Order(NamedTuple):
    """An order of a shop."""

    shop: str
    time: datetime
    amount: int


class Sales(NamedTuple):
    """The sales of a shop in an hour, a day or a month."""

    orders: int
    total: int
    mean: float


START = datetime(2026, 3, 27, 23, tzinfo=UTC)
"""Midnight in Prague."""

ORDERS = [
    *(Order("books", START + timedelta(minutes=20 * number), 10) for number in range(3 * 60)),
    *(Order("tea", START + timedelta(hours=7 * number), number) for number in range(9)),
]

SALES = agg.into(Sales, orders=agg.count(), total=agg.sum("amount"), mean=agg.mean("amount"))


def report(msg: DataMessage[str, WindowResult[Sales, datetime], datetime], _context: object) -> None:
    start, end, sales, timing = msg.value
    print(f"{msg.key}, {start:%d %B} to {end:%d %B}: {sales} {timing.name}")


def build_dataflow(provider: StreamProvider) -> None:
    timed = (
        provider.new_stream()
        .source("orders", SingleIteratorSource(sorted(ORDERS, key=lambda order: order.time)))
        .assign_timestamps("time", lambda msg: msg.value.time)
    )
    on_time, _late = timed.generate_epochs("epochs", limit_out_of_orderness(timedelta(minutes=1)))
    by_shop = on_time.key_distribute("shop", lambda msg: msg.value.shop)
    levels = by_shop.rollup("sales", ["hour", "day", "month"], SALES, zone="Europe/Prague")
    levels["day"].inspect("days", report)
    levels["month"].inspect("months", report)


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()

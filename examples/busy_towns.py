"""The town with the most sales of each minute, from one topic of Kafka to another, exactly once.

`busy_towns.sql` is the same job in SQL, and has the commands that start a Kafka. Needs `pip install 'malflow[kafka]'`.

    python examples/busy_towns.py localhost:9092
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from malflow import DataMessage, SingleThreadRuntime, StreamProvider, agg
from malflow.connectors.kafka import KafkaSink, KafkaSource
from malflow.snapshot import FsspecBackend
from malflow.windows import WindowResult, tumbling

MINUTE = timedelta(minutes=1)


def time_of(order: DataMessage[Any, dict[str, Any], Any]) -> datetime:
    """Return the time of an order."""
    return datetime.fromisoformat(order.value["ts"]).replace(tzinfo=UTC)


def rank(row: dict[str, Any]) -> tuple[int, str]:
    """Return what orders towns: the one with most cents is first, then by name."""
    return -row["cents"], row["town"]


def sold(town: str, minute: WindowResult[tuple[int, int], Any]) -> dict[str, Any]:
    """Return the sales of a town in a minute."""
    orders, cents = minute.value
    since = minute.start.isoformat(" ", "milliseconds").removesuffix("+00:00")
    return {"since": since, "town": town, "orders": orders, "cents": cents}


def dataflow(orders: Any, busiest: Any) -> Callable[[StreamProvider], None]:
    """Return the function that builds the dataflow between a source and a sink."""

    def build(provider: StreamProvider) -> None:
        timed = provider.new_stream().source("orders", orders).event_time("times", time_of, out_of_orderness="5s")
        windows = timed.key_distribute("town", "town").window(tumbling(MINUTE)).allow_late()
        minutes = windows.aggregate("minutes", agg.count(), agg.sum("cents")).results.map_with_key("sold", sold)
        whole = minutes.key_distribute("all", lambda _: "all").window(tumbling(MINUTE))
        first = whole.aggregate("first", agg.min_by(rank))
        first.map("row", lambda it: it.value).sink("busiest", busiest)

    return build


def main(servers: str, state: str = "state", stop: Literal["latest"] | None = None) -> None:
    """Run until stopped, or to the current end of the input."""
    orders = KafkaSource("orders", servers=servers, decode="json", stop=stop)
    busiest = KafkaSink("busiest", servers=servers, encode="json", delivery="exactly-once")
    SingleThreadRuntime(dataflow(orders, busiest), FsspecBackend(state), timedelta(seconds=1)).execute()


if __name__ == "__main__":
    main(sys.argv[1])

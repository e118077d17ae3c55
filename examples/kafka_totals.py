"""Totals of orders, from one Kafka topic to another, exactly once.

Needs `pip install 'malflow[kafka]'` and a Kafka.

    kafka-topics.sh --bootstrap-server localhost:9092 --create --topic orders --partitions 2
    kafka-topics.sh --bootstrap-server localhost:9092 --create --topic totals --partitions 2
    python examples/kafka_totals.py localhost:9092

Kill it whenever you like and start it again: readers of `totals` with ``isolation.level=read_committed`` see each total
once.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, Literal

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.kafka import KafkaSink, KafkaSource
from malflow.snapshot import FsspecBackend


def add(town: str, order: dict[str, Any], total: int) -> tuple[dict[str, Any], int]:
    """Return the new total of a town, as a record and as state."""
    total += order["amount"]
    return {"town": town, "total": total}, total


def main(servers: str, state: str = "state", stop: Literal["latest"] | None = None) -> None:
    """Run until stopped, or to the current end of the input."""
    orders = KafkaSource("orders", servers=servers, decode="json", stop=stop, group="totals")
    totals = KafkaSink("totals", servers=servers, encode="json", delivery="exactly-once")

    def build_dataflow(provider: StreamProvider) -> None:
        towns = provider.new_stream().source("orders", orders).key_distribute("town", "town")
        towns.stateful_map("total", add, int).sink("totals", totals)

    SingleThreadRuntime(build_dataflow, FsspecBackend(state), timedelta(seconds=1)).execute()


if __name__ == "__main__":
    main(sys.argv[1])

"""Revenue by town and minute, from JSON in one Kafka topic to another: a poll is parsed at once, into columns.

Needs `pip install 'malflow[kafka,columns]'` and a Kafka.

    kafka-topics.sh --bootstrap-server localhost:9092 --create --topic orders --partitions 2
    kafka-topics.sh --bootstrap-server localhost:9092 --create --topic revenue --partitions 2
    python examples/column_kafka.py localhost:9092

Orders look like ``{"town": "Ulm", "at": 1767603600000, "cents": 320}``. Records that are no such JSON are skipped.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, Literal

from malflow import SingleThreadRuntime, StreamProvider, agg
from malflow.connectors.codecs import JsonColumns
from malflow.connectors.kafka import KafkaSink, KafkaSource
from malflow.snapshot import FsspecBackend
from malflow.windows import WindowResult, tumbling

import pyarrow as pa

SCHEMA = pa.schema(
    [pa.field("town", pa.string(), False), pa.field("at", pa.int64(), False), pa.field("cents", pa.int64(), False)]
)
MINUTE = 60_000


def record(town: str, minute: WindowResult[int, int]) -> dict[str, Any]:
    return {"town": town, "minute": minute.start, "cents": minute.value}


def main(servers: str, state: str = "state", stop: Literal["latest"] | None = None) -> None:
    """Run until stopped, or to the current end of the input."""
    orders = KafkaSource("orders", servers=servers, decode=JsonColumns(SCHEMA), stop=stop, on_error="skip")
    revenue = KafkaSink("revenue", servers=servers, encode="json", delivery="exactly-once")

    def build_dataflow(provider: StreamProvider) -> None:
        timed = (
            provider.new_stream().source("orders", orders).event_time("time", "at", out_of_orderness=5000, every=1000)
        )
        minutes = timed.key_distribute("town", "town").window(tumbling(MINUTE)).aggregate("cents", agg.sum("cents"))
        minutes.map_with_key("record", record).sink("revenue", revenue)

    end: Any = {} if stop is None else {"at_end": "finish"}
    SingleThreadRuntime(build_dataflow, FsspecBackend(state), timedelta(seconds=1), **end).execute()


if __name__ == "__main__":
    main(sys.argv[1])

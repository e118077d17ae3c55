"""Facts about records of Kafka as columns of SQL."""

from __future__ import annotations

import json
from typing import Any

from malflow import SingleThreadRuntime
from malflow.sinks import VecSink
from tests.connectors.kafka.kit import Broker


def test_key_time_place_and_headers_of_records_are_columns(broker: Broker) -> None:
    topic = broker.topic()
    values = [("a", json.dumps({"id": number}).encode()) for number in (7, 8)]
    broker.write(topic, values, timestamp=1_767_225_600_250, headers={"trace": b"x"})
    sink = VecSink[Any, Any, Any]()
    text = f"""
        CREATE TABLE t (
          id BIGINT, who STRING METADATA FROM 'key' VIRTUAL, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
          `partition` INT METADATA VIRTUAL, `offset` BIGINT METADATA VIRTUAL, headers MAP<STRING, BYTES> METADATA,
          topic STRING METADATA VIRTUAL, WATERMARK FOR ts AS ts
        ) WITH ('url' = 'kafka://{broker.servers}/{topic}', 'format' = 'json', 'stop' = 'latest')
    """

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        sql.run(text)
        query = "SELECT id, who, CAST(ts AS STRING), `partition`, `offset`, headers, topic FROM t"
        sql.query("q", query).rows(tuple).sink("out", sink)

    SingleThreadRuntime(build).execute()
    stamp, headers = "2026-01-01 00:00:00.250", {"trace": b"x"}
    assert sorted(sink.values) == [(7, "a", stamp, 0, 0, headers, topic), (8, "a", stamp, 0, 1, headers, topic)]

"""A source and a sink for Apache Kafka."""

from malflow.connectors.kafka.errors import BadKafkaRecord, KafkaDataLost, KafkaFailed, UnwritableKafkaRecord
from malflow.connectors.kafka.reader import KafkaRecord
from malflow.connectors.kafka.sink import KafkaSink
from malflow.connectors.kafka.source import KafkaSource

__all__ = [
    "BadKafkaRecord",
    "KafkaDataLost",
    "KafkaFailed",
    "KafkaRecord",
    "KafkaSink",
    "KafkaSource",
    "UnwritableKafkaRecord",
]

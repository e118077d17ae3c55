"""A source and a sink for Apache Kafka."""

from malflow.errors import MissingDependency

try:
    import confluent_kafka as _confluent_kafka
except ImportError as _missing:
    raise MissingDependency(
        "malflow.connectors.kafka needs confluent-kafka; pip install 'malflow[kafka]'"
    ) from _missing

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

del _confluent_kafka

"""A source and a sink for Apache Kafka."""

from malflow.errors import not_imported

try:
    import confluent_kafka as _confluent_kafka
except ImportError as _missing:
    raise not_imported("malflow.connectors.kafka needs confluent-kafka", "kafka", _missing) from _missing

from malflow.connectors.kafka.client import BadKafkaRecord, KafkaDataLost, KafkaFailed, UnwritableKafkaRecord
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

"""Topics of a real broker: making, filling and reading them without malflow."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from malflow import SingleThreadRuntime
from malflow.connectors.kafka import KafkaSink, KafkaSource
from malflow.sinks import StatelessSink, VecSink
from malflow.sources import StatefulSource

SECONDS = 60


class Broker:
    """A broker, as a test uses it.

    Attributes:
        servers: its address.
    """

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers})

    def topic(self, partitions: int = 1, name: str | None = None, **settings: str) -> str:
        """Make a topic, with a random name if none is given; return its name."""
        name = name or f"t-{uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in settings.items()}
        was_late = False
        for _ in range(100):  # one that is being deleted still has its name
            try:
                self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(SECONDS / 3)
                break
            except TimeoutError:  # a broker that has just started may lose a request
                if was_late:
                    raise
                was_late = True
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                if was_late:
                    break
                time.sleep(0.1)
        while len(self.admin.list_topics(timeout=SECONDS).topics.get(name, _None).partitions) < partitions:
            time.sleep(0.02)
        return name

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.admin.delete_topics([topic])[topic].result(SECONDS)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS)
        while len(self.admin.list_topics(timeout=SECONDS).topics[topic].partitions) < partitions:
            time.sleep(0.02)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the records before an offset."""
        for future in self.admin.delete_records([TopicPartition(topic, partition, before)]).values():
            future.result(SECONDS)

    def write(self, topic: str, values: Iterable[Any], partition: int = 0, **more: Any) -> None:
        """Write values, or pairs of key and value."""
        producer = Producer({"bootstrap.servers": self.servers, "queue.buffering.max.messages": 1_000_000})
        for it in values:
            key, value = it if isinstance(it, tuple) else (None, it)
            producer.produce(topic, value, key, partition, **more)
        assert producer.flush(SECONDS) == 0

    @contextmanager
    def transaction(self, topic: str, values: Iterable[bytes], end: str = "commit") -> Iterator[None]:
        """Write values by a transaction, which is open inside; then commit or abort it."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": uuid4().hex})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(SECONDS) == 0
        yield
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(SECONDS)

    def read(self, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[Any]:
        """Return the messages of a partition."""
        consumer = self.consumer(isolation)
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[Any] = []
        while True:
            message = consumer.poll(SECONDS)
            assert message is not None
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return found
            else:
                raise KafkaException(error)

    def values(self, topic: str, partition: int = 0) -> list[bytes]:
        """Return the values of a partition that a committed reader sees."""
        return [it.value() for it in self.read(topic, partition)]

    def consumer(self, isolation: str = "read_committed", **more: Any) -> Consumer:
        """Return a consumer without a group."""
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "fetch.wait.max.ms": 10,  # the broker would wait half a second for more before it reports an end
                **more,
            }
        )

    def source(self, topic: Any, **options: Any) -> KafkaSource:
        """Return a source of a topic."""
        return KafkaSource(topic, servers=self.servers, **options)

    def sink(self, topic: Any, **options: Any) -> KafkaSink[Any, Any, Any]:
        """Return a sink to a topic."""
        return KafkaSink(topic, servers=self.servers, **options)

    def producer_of(self, sink: KafkaSink[Any, Any, Any]) -> Producer:
        """Return a producer with the transactional id of a sink that is fenced."""
        assert sink._writer is not None
        return Producer({"bootstrap.servers": self.servers, "transactional.id": sink._writer._name})


class _None:
    partitions: tuple[int, ...] = ()


def run_to_the_end(source: KafkaSource, **options: Any) -> VecSink[Any, Any, Any]:
    """Run a bounded source to its end; return the sink."""
    collected: VecSink[Any, Any, Any] = VecSink()
    SingleThreadRuntime(
        lambda provider: (
            provider.new_stream().source("in", StatefulSource(source)).sink("out", StatelessSink(collected))
        ),
        **options,
    ).execute()
    return collected


def read_some(reader: Any, count: int, limit: int = 100, seconds: float = SECONDS) -> list[Any]:
    """Poll a reader until it has given so many values."""
    values: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(values) < count:
        more, timestamps = reader.poll_batch(min(limit, count - len(values)))
        assert len(more) == len(timestamps)
        values += more
        assert time.monotonic() < deadline, f"only {len(values)} of {count} values came"
    return values


def poll_for(reader: Any, seconds: float) -> list[Any]:
    """Poll a reader for some time; return what it has given."""
    values: list[Any] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        values += reader.poll_batch(100)[0]
        time.sleep(0.005)
    return values

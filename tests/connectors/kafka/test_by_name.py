"""Topics by their URL."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest

from malflow import GraphError, SingleThreadRuntime, connect
from malflow.connectors.kafka import KafkaSink, KafkaSource
from malflow.sinks import VecSink
from tests.connectors.kafka.kit import Broker


@pytest.fixture(autouse=True)
def entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the entry points of Kafka, whatever those of this environment are."""
    where = "malflow.connectors.kafka.by_name"
    points = [
        importlib.metadata.EntryPoint("kafka", f"{where}:source", "malflow.sources"),
        importlib.metadata.EntryPoint("kafka", f"{where}:sink", "malflow.sinks"),
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", importlib.metadata.EntryPoints(points).select)


def test_topics_of_a_url_as_a_source() -> None:
    made = connect(
        "kafka://a:9092,b:9092/orders,returns?format=json&start=latest&settings.fetch.wait.max.ms=5"
    ).source()
    assert isinstance(made, KafkaSource)
    assert repr(made) == repr(KafkaSource(["orders", "returns"], servers="a:9092,b:9092"))


def test_a_topic_of_a_url_as_a_sink() -> None:
    made = connect("kafka://a:9092/totals?format=json&delivery=exactly-once").sink()
    assert isinstance(made, KafkaSink)
    assert made.delivery == "exactly-once"


def test_a_user_in_a_url() -> None:
    connection = connect("kafka://me:hush@a:9092/orders?settings.sasl.mechanism=SCRAM-SHA-256")
    assert "hush" not in repr(connection) + repr(connection.source()) + repr(connection.sink())
    with pytest.raises(GraphError, match=r"the setting 'sasl.password' and a user in its URL") as refused:
        connect("kafka://me:hush@a:9092/orders", settings={"sasl.password": "hush"}).source()
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("kafka://a:9092", {}, "needs the name of a topic: kafka://host:9092/topic"),
        ("kafka://a:9092/x?fromat=json", {}, "has no option 'fromat'; did you mean 'format'?"),
        ("kafka://a:9092/x?servers=b", {}, "has no option 'servers'"),
        ("kafka://a:9092/x?format=xml", {}, "needs 'bytes' or 'text' or 'json' as option 'format'; got 'xml'"),
        ("kafka://a:9092/x?format=json", {"decode": "text"}, "has both format and decode"),
        ("kafka://a:9092/x?start=soon", {}, "needs 'earliest' or 'latest' or a time in ISO format as option 'start'"),
    ],
)
def test_refused_urls(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(GraphError) as refused:
        connect(url, **options).source()
    assert words in str(refused.value)


def test_two_topics_of_a_sink() -> None:
    with pytest.raises(GraphError, match="needs the name of a topic"):
        connect("kafka://a:9092/x,y").sink()


def test_a_dataflow_between_two_topics_by_url(broker: Broker) -> None:
    orders, totals, seen = broker.topic(), broker.topic(), VecSink[Any, Any, Any]()
    broker.write(orders, [b'{"n": 1}', b'{"n": 2}'])

    def build(provider: Any) -> None:
        read = provider.new_stream().source(
            "orders", connect(f"kafka://{broker.servers}/{orders}?format=json&stop=latest", discover_every=None)
        )
        read.sink("seen", seen)
        read.sink("totals", connect(f"kafka://{broker.servers}/{totals}?format=json", key=lambda _: None))

    SingleThreadRuntime(build).execute()
    assert seen.values == [{"n": 1}, {"n": 2}]
    assert broker.values(totals) == [b'{"n":1}', b'{"n":2}']

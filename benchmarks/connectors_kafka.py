"""Measure JSON from Kafka through a key and a sum to nowhere, beside the bare client and beside other libraries.

Needs a broker. The others have an interpreter each, since Quix Streams holds the client back:

pip install malflow[kafka]
python benchmarks/connectors_kafka.py localhost:9092 [--rounds 3] [--records 300000]
    [--bytewax venv/bin/python] [--quix other-venv/bin/python]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any
from uuid import uuid4

_KEYS = 1_000
_SECONDS = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", help="the broker's address")
    parser.add_argument("--rounds", type=int, default=3, help="how often each peer runs")
    parser.add_argument("--records", type=int, default=300_000, help="how many records the topic has")
    parser.add_argument("--bytewax", help="a Python that has bytewax")
    parser.add_argument("--quix", help="a Python that has quixstreams")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        _run_peer(_PEERS[options.peer], options.servers, options.topic, options.records)
        return
    topic = _written(options.servers, options.records)
    pythons = {"bytewax": options.bytewax, "quix": options.quix}
    peers = [it for it in _PEERS if pythons.get(it.split(",")[0], sys.executable)]
    runs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(options.rounds):
        for peer in peers:
            python = pythons.get(peer.split(",")[0], sys.executable)
            runs[peer].append(_measured(python, peer, options.servers, topic, options.records))
    _print(runs, options.records)


def _measured(python: str, peer: str, servers: str, topic: str, records: int) -> tuple[float, float]:
    command = [python, __file__, servers, "--peer", peer, "--topic", topic, "--records", str(records)]
    done = subprocess.run(  # noqa: S603 - this program
        command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ
    )
    wall, cpu = map(float, done.stdout.splitlines()[-1].split())
    return wall, cpu


def _run_peer(peer: Callable[[str, str, int], int], servers: str, topic: str, records: int) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    total = peer(servers, topic, records)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    expected = records * (records - 1) // 2
    if total != expected:
        raise SystemExit(f"{total} is not the sum {expected}")
    print(wall, cpu)


def _print(runs: Mapping[str, list[tuple[float, float]]], records: int) -> None:
    from tables import print_table  # noqa: PLC0415 - not where a peer runs

    bare = [median(it[at] for it in runs["bare client"]) for at in (0, 1)]
    rows = []
    for peer, found in runs.items():
        wall, cpu = (median(it[at] for it in found) for at in (0, 1))
        rows.append(
            (peer, f"{records / wall:,.0f}", f"{bare[0] / wall:.2f}", f"{records / cpu:,.0f}", f"{bare[1] / cpu:.2f}")
        )
    print("\nJSON from Kafka to sums of 1,000 keys, medians; 'of bare': against consume(1000) with json.loads\n")
    print_table(("peer", "records/s", "of bare", "records a CPU second", "of bare"), rows)


def _written(servers: str, records: int) -> str:
    from confluent_kafka import Producer  # noqa: PLC0415 - each peer imports what it needs
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

    topic, admin = f"sums-{uuid4().hex[:8]}", AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(_SECONDS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 10_000_000})
    for number in range(records):
        town = f"town-{number * 7919 % _KEYS}"
        value = {"town": town, "people": number, "country": "Germany", "note": "x" * 30}
        producer.produce(topic, json.dumps(value), town)
    producer.flush(_SECONDS)
    return topic


def _bare(servers: str, topic: str, records: int) -> int:
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = total = 0
    loads = json.loads
    while count < records:
        for message in consumer.consume(1000, 1.0):
            total += loads(message.value())["people"]
            count += 1
    consumer.close()
    return total


def _malflow(servers: str, topic: str, _records: int) -> int:
    from malflow import SingleThreadRuntime  # noqa: PLC0415
    from malflow.connectors.kafka import KafkaSource  # noqa: PLC0415
    from malflow.sinks import StatelessSink, StatelessSinkImpl  # noqa: PLC0415
    from malflow.sources import StatefulSource  # noqa: PLC0415

    class Null(StatelessSinkImpl[Any, Any, Any]):
        last: dict[Any, int] = {}  # noqa: RUF012 - of this run

        def sink(self, msg: Any) -> None:
            self.last[msg.key] = msg.value

        def sink_batch(self, keys: Any, values: Any, timestamps: Any) -> None:
            del timestamps
            self.last.update(zip(keys, values, strict=True))

    def add(_town: str, value: dict[str, Any], total: int) -> tuple[int, int]:
        total += value["people"]
        return total, total

    source = KafkaSource(topic, servers=servers, decode="json", stop="latest")
    SingleThreadRuntime(
        lambda provider: (
            provider.new_stream()
            .source("in", StatefulSource(source))
            .key_distribute("town", lambda msg: msg.value["town"])
            .stateful_map("sum", add, int)
            .sink("out", StatelessSink(Null()))
        )
    ).execute()
    return sum(Null.last.values())


def _bytewax(servers: str, topic: str, _records: int, **options: Any) -> int:
    import bytewax.operators as op  # noqa: PLC0415
    from bytewax.connectors.kafka import KafkaSource  # noqa: PLC0415
    from bytewax.dataflow import Dataflow  # noqa: PLC0415
    from bytewax.outputs import DynamicSink, StatelessSinkPartition  # noqa: PLC0415
    from bytewax.testing import run_main  # noqa: PLC0415

    last: dict[str, int] = {}

    class Part(StatelessSinkPartition):  # type: ignore[misc, type-arg]
        def write_batch(self, items: Any) -> None:
            last.update(items)

    class Null(DynamicSink):  # type: ignore[misc, type-arg]
        def build(self, *_arguments: Any) -> Any:
            return Part()

    def add(total: int | None, value: dict[str, Any]) -> tuple[int, int]:
        total = (total or 0) + value["people"]
        return total, total

    flow = Dataflow("sums")
    messages = op.input("in", flow, KafkaSource([servers], [topic], tail=False, **options))
    values = op.map("json", messages, lambda message: json.loads(message.value))
    sums = op.stateful_map("sum", op.key_on("town", values, lambda value: value["town"]), add)
    op.output("out", sums, Null())
    run_main(flow)
    return sum(last.values())


def _bytewax_in_batches(servers: str, topic: str, records: int) -> int:
    return _bytewax(servers, topic, records, batch_size=1000)


def _quix(servers: str, topic: str, records: int) -> int:
    from quixstreams import Application  # noqa: PLC0415

    last: dict[str, int] = {}

    def add(value: dict[str, Any], state: Any) -> None:
        last[value["town"]] = total = state.get("total", 0) + value["people"]
        state.set("total", total)

    with tempfile.TemporaryDirectory() as folder:
        app = Application(
            broker_address=servers,
            consumer_group=uuid4().hex,
            auto_offset_reset="earliest",
            state_dir=folder,
            use_changelog_topics=False,
            loglevel="ERROR",
        )
        frame = app.dataframe(app.topic(topic, value_deserializer="json"))
        frame.update(add, stateful=True)
        app.run(count=records)
    return sum(last.values())


_PEERS: Mapping[str, Callable[[str, str, int], int]] = {
    "bare client": _bare,
    "malflow": _malflow,
    "bytewax, default batches": _bytewax,
    "bytewax, batch_size=1000": _bytewax_in_batches,
    "quix": _quix,
}

if __name__ == "__main__":
    main()

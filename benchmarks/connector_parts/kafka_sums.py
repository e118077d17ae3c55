"""JSON from Kafka through a key and a sum to nowhere, beside the bare client and beside other libraries.

As a program it runs one of these peers, in the interpreter that has its library, and prints seconds of wall and of CPU.
"""

from __future__ import annotations

import json
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

__all__ = ["measure"]


def measure(servers: str, records: int, rounds: int, pythons: Mapping[str, str]) -> None:
    """Run each peer once a round, and print the table.

    Args:
        servers: the broker's address.
        records: how many records the topic has.
        rounds: how often each peer runs.
        pythons: the interpreters of peers, by their library; those that have none are left out.
    """
    topic = _written(servers, records)
    found = {"bare client": sys.executable, "malflow": sys.executable, **pythons}
    runs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(rounds):
        for peer in _PEERS:
            library = peer.split(",")[0]
            if library in found:
                runs[peer].append(_measured(found[library], peer, servers, topic, records))
    _print(runs, records)


def _measured(python: str, peer: str, servers: str, topic: str, records: int) -> tuple[float, float]:
    done = subprocess.run(  # noqa: S603 - this program
        [python, __file__, peer, servers, topic, str(records)], check=True, stdout=subprocess.PIPE, text=True
    )
    wall, cpu = map(float, done.stdout.splitlines()[-1].split())
    return wall, cpu


def _run_peer(peer: str, servers: str, topic: str, records: int) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    total = _PEERS[peer](servers, topic, records)
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
    print("JSON from Kafka to sums of 1,000 keys, medians; 'of bare': against consume(1000) with json.loads\n")
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
    _run_peer(*sys.argv[1:4], int(sys.argv[4]))

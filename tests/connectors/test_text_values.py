"""The law of values for systems that keep bytes: Redis, Kafka and web servers, read by clients of other making."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import numpy as np
import pytest
from confluent_kafka import Producer
from hypothesis import strategies as st

from malflow.connectors.http import HttpSink
from malflow.connectors.kafka import KafkaSink, KafkaSource
from malflow.connectors.redis import RedisSink, RedisStreamSource
from malflow.sinks import SinkOwner, StatelessSinkImpl
from malflow.testing import SinkValues, SourceValues, python_values, same_value
from tests.connectors.kafka.kit import SECONDS, Broker

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"
EXAMPLES = int(os.environ.get("VALUES", "4"))


def same_bytes(wrote: Any, read: Any) -> bool:
    """Whether bytes are those of a value: its own, those of its text, or a number in decimal."""
    if wrote is None or read is None:
        return wrote is read
    if isinstance(wrote, bytes | bytearray | memoryview):
        return bytes(wrote) == read
    if isinstance(wrote, str):
        return str.__str__(wrote).encode("utf-8", "surrogatepass") == read
    if isinstance(wrote, bool) or not isinstance(wrote, int | float):
        return False
    return same_value(wrote, float(read) if isinstance(wrote, float) else int(read))


def same_json(wrote: Any, read: Any) -> bool:
    if isinstance(wrote, str):
        wrote = str.__str__(wrote)  # numpy's own would drop NUL at the end
    return wrote is None if read is None else same_value(wrote, json.loads(read))


def same_text(wrote: Any, read: Any) -> bool:
    return (wrote is None or isinstance(wrote, str)) and same_bytes(wrote, read)


def named(value: Any) -> Any:
    """Return a value with the names of its objects as JSON has them."""
    if isinstance(value, dict):
        return {
            json.loads(json.dumps({name: 0}, allow_nan=False)).popitem()[0]: named(it) for name, it in value.items()
        }
    return [named(it) for it in value] if isinstance(value, list | tuple) else value


def with_text_names(value: Any) -> Any:
    try:
        return named(value)
    except (TypeError, ValueError):
        return value


CODECS: dict[str, dict[str, Any]] = {
    "bytes": {"same": same_bytes},
    "text": {"same": same_text},
    "json": {"same": same_json, "changes": {"The names in an object of JSON are text": with_text_names}},
}


class Resp:
    """A client of Redis of a few lines."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._socket = socket.create_connection((where.hostname, where.port))
        self._file = self._socket.makefile("rb")

    def ask(self, *parts: bytes | str | int) -> Any:
        raw = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
        self._socket.sendall(b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(it), it) for it in raw))
        return self._reply()

    def _reply(self) -> Any:
        line = self._file.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self._file.read(int(rest) + 2)[:-2]
        assert kind != b"-", line
        return int(rest) if kind == b":" else rest

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def value_of(_: int, value: Any) -> Any:
    return value


def check(name: str, make_sink: Callable[[], Any], read: Callable[[], Mapping[int, Any]], **options: Any) -> None:
    values = options.pop("values", python_values())
    options = {"docs": [PAGE], "examples": EXAMPLES, "make_record": value_of, **options}
    SinkValues(name, make_sink, read, values, **options).check()


@pytest.fixture
def resp(redis_url: str) -> Iterator[Resp]:
    with closing(Resp(redis_url)) as client:
        yield client


@pytest.mark.parametrize("place", ["table", "prefix"])
@pytest.mark.parametrize("codec", [None, *CODECS])
def test_values_in_redis(codec: str | None, place: str, redis_url: str, resp: Resp) -> None:
    name = f"v-{uuid4().hex}:"

    def read() -> Mapping[int, Any]:
        if place == "table":
            flat = resp.ask("HGETALL", name)
            return {int(key): value for key, value in zip(flat[::2], flat[1::2], strict=True)}
        return {int(key.removeprefix(name.encode())): resp.ask("GET", key) for key in resp.ask("KEYS", f"{name}*")}

    present = python_values().filter(lambda value: value is not None)  # None removes its key
    where: Any = {place: name, "encode": codec}
    check("Redis", lambda: RedisSink(redis_url, **where), read, values=present, **CODECS[codec or "bytes"])


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("codec", CODECS)
def test_values_in_kafka(codec: Any, delivery: Any, kafka_servers: str) -> None:
    broker = Broker(kafka_servers)
    topic = broker.topic()

    def read() -> Mapping[int, Any]:
        return {int(it.key()): it.value() for it in broker.read(topic)}

    def make() -> KafkaSink[Any, Any, Any]:
        return KafkaSink(topic, servers=kafka_servers, encode=codec, delivery=delivery)

    check("Kafka", make, read, **CODECS[codec])


@pytest.mark.parametrize("codec", ["json", "json-lines"])
def test_values_sent_to_a_web_server(codec: Any) -> None:
    found: dict[int, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            for record in json.loads(text) if codec == "json" else map(json.loads, text.splitlines()):
                found[record["n"]] = json.dumps(record["v"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        record = {"make_record": lambda number, value: {"n": number, "v": value}}
        check("HTTP", lambda: HttpSink(url, encode=codec, retries=0), lambda: found, **record, **CODECS["json"])
        server.shutdown()


_SMALL = st.integers(-3, 3)
KEYS = st.one_of(
    _SMALL | st.integers(-(2**70), 2**70),
    _SMALL.map(float) | st.floats(allow_nan=False),
    _SMALL.map(Decimal) | st.decimals(-3, 3, places=2),
    _SMALL.map(np.int16) | _SMALL.map(np.float32),
    _SMALL.map(str) | st.text(max_size=3),
    _SMALL.map(lambda it: str(it).encode()) | st.binary(max_size=3),
    st.booleans() | st.none(),
    st.tuples(_SMALL, _SMALL.map(float)),
)
ALIKE: list[list[Any]] = [
    [1, 1.0], [1, Decimal("1.00")], [np.int8(1), 1.0], [1, "1"], ["1", b"1"], [True, 1], ["None", None], ["a", "b"],
]  # fmt: skip


class Groups(StatelessSinkImpl[Any, Any, Any]):
    """Write each group of keys by a new sink: a record for each key, whose value is the number of the group."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        del timestamps
        for number, group in zip(keys, values, strict=True):
            sink = self._make(number)
            sink.fence(SinkOwner("job", "out", 1))
            sink.sink_batch(group, [number] * len(group), range(len(group)))
            sink.flush()
            sink.close()


def as_many(wrote: Sequence[Any], read: int) -> bool:
    """Whether there are as many keys as unequal ones were written."""
    return len(set(wrote)) == read


def check_keys(make: Callable[[int], Any], read: Callable[[], Mapping[int, int]], **options: Any) -> None:
    options = {"values": st.lists(KEYS, min_size=1, max_size=3), "always": ALIKE, **options}
    check("keys", lambda: Groups(make), read, same=as_many, **options)


@pytest.mark.parametrize("encode_key", [None, "json"])
@pytest.mark.parametrize("place", ["table", "prefix"])
def test_keys_in_redis(place: str, encode_key: Any, redis_url: str, resp: Resp) -> None:
    name = f"k-{uuid4().hex}:"

    def make(number: int) -> Any:
        where: Any = {place: f"{name}{number}:", "encode_key": encode_key, "delivery": "at-least-once"}
        return RedisSink(redis_url, **where)

    def read() -> Mapping[int, int]:
        found = [it.decode("utf-8", "surrogateescape") for it in resp.ask("KEYS", f"{name}*")]
        if place == "table":
            return {int(key.split(":")[1]): resp.ask("HLEN", key) for key in found}
        return Counter(int(key.split(":")[1]) for key in found)

    check_keys(make, read)


class KeptSink(KafkaSink[Any, Any, Any]):
    """A sink that keeps its producer, since a new one takes half a second to begin."""

    def fence(self, owner: SinkOwner) -> int:
        """Begin no transactions."""
        del owner
        return 0

    def close(self) -> None:
        """Leave it open for the next keys."""


def test_keys_in_kafka(kafka_servers: str) -> None:
    broker = Broker(kafka_servers)
    topic = broker.topic()

    def read() -> Mapping[int, int]:
        return Counter(number for number, _ in {(int(it.value()), it.key()) for it in broker.read(topic)})

    sink = KeptSink(topic, servers=kafka_servers, encode="json", delivery="at-least-once")
    check_keys(lambda _: sink, read)
    KafkaSink.close(sink)


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
READ: list[tuple[Any, st.SearchStrategy[Any], Callable[[Any], bytes]]] = [
    ("bytes", st.binary(), bytes),
    ("text", st.text(), str.encode),
    ("json", DOCUMENTS, lambda value: json.dumps(value).encode()),
]


@pytest.mark.parametrize(("codec", "values", "raw"), READ)
def test_values_of_a_stream_of_redis(codec: Any, values: Any, raw: Any, redis_url: str, resp: Resp) -> None:
    name = f"s-{uuid4().hex}"

    def write(some: Sequence[Any]) -> None:
        resp.ask("DEL", name)
        for number, value in enumerate(some):
            resp.ask("XADD", name, f"{number + 1}-0", "v", raw(value))

    source = lambda: RedisStreamSource(redis_url, name, field="v", decode=codec, stop="latest")  # noqa: E731
    check_source("a stream", source, write, values)


@pytest.mark.parametrize(("codec", "values", "raw"), READ)
def test_values_of_a_topic(codec: Any, values: Any, raw: Any, kafka_servers: str) -> None:
    broker, topics = Broker(kafka_servers), [""]

    def write(some: Sequence[Any]) -> None:
        topics.append(broker.topic())
        producer = Producer({"bootstrap.servers": kafka_servers})
        for value in some:
            producer.produce(topics[-1], raw(value))
        assert producer.flush(SECONDS) == 0

    source = lambda: KafkaSource(topics[-1], servers=kafka_servers, decode=codec, stop="latest")  # noqa: E731
    check_source("a topic", source, write, values)


def check_source(name: str, make: Callable[[], Any], write: Callable[[Sequence[Any]], object], values: Any) -> None:
    """Check the law for a source whose records are values, in the order in which they were written."""
    read: list[int] = []

    def fresh(some: Sequence[Any]) -> None:
        read.clear()
        write(some)

    def cell(record: Any) -> tuple[int, Any]:
        read.append(0)
        return len(read) - 1, record

    SourceValues(name, make, fresh, values, cell=cell, examples=EXAMPLES).check()

"""The laws of sources and sinks, kept by tables and streams of Redis."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from typing import Any

import redis

from malflow.connectors.redis import RedisSink, RedisStreamSource
from malflow.testing import assert_sink, assert_source
from malflow.testing.sink_laws import SINK_LAWS
from malflow.testing.source_laws import SOURCE_LAWS
from tests.kit.going_back import copied
from tests.servers.redis_server import RedisServer


def test_laws_of_a_table_as_a_sink(redis_url: str, client: Any, name: str) -> None:
    assert_sink(
        lambda: RedisSink(redis_url, table=name), lambda: [int(value) for value in client.hgetall(name).values()]
    )


def test_laws_of_streams_as_a_source(redis_url: str, client: Any, name: str) -> None:
    for stream, size in {f"{name}-a": 20, f"{name}-b": 3}.items():
        for number in range(size):
            client.xadd(stream, {"n": number})
    assert_source(lambda: RedisStreamSource(redis_url, [f"{name}-a", f"{name}-b"]), count=23)
    assert_source(lambda: RedisStreamSource(redis_url, [f"{name}-a", f"{name}-b"], stop="latest"))


def test_laws_of_a_server_that_goes_back(own_redis: Callable[[], RedisServer]) -> None:
    server = own_redis()

    def read() -> list[int]:
        with redis.Redis.from_url(server.address) as client:
            return [int(value) for value in client.hgetall("table").values()]

    assert_sink(
        lambda: RedisSink(server.address, table="table"),
        read,
        copy_output=lambda: copied(server),
        without=[law for law in SINK_LAWS if law != "restored"],
    )


def test_laws_of_a_stream_whose_server_goes_back(own_redis: Callable[[], RedisServer]) -> None:
    server, numbers = own_redis(), count()

    def add(size: int) -> None:
        with redis.Redis.from_url(server.address) as client:
            for number in islice(numbers, size):
                client.xadd(f"s-{number % 2}", {"n": number})

    add(10)
    assert_source(
        lambda: RedisStreamSource(server.address, ["s-0", "s-1"]),
        count=10,
        add_records=add,
        copy_input=lambda: copied(server),
        without=[law for law in SOURCE_LAWS if law not in ("parts", "records", "restored")],
    )

"""The laws of sources and sinks, kept by tables and streams of Redis."""

from __future__ import annotations

from typing import Any

from malflow.connectors.redis import RedisSink, RedisStreamSource
from malflow.testing import assert_sink, assert_source


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

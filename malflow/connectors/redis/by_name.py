"""Streams and tables by their URL: ``redis://host:6379/0/name``."""

from __future__ import annotations

from functools import wraps
from typing import Any

from malflow.connectors.address import Address
from malflow.connectors.redis.lookup import RedisLookup
from malflow.connectors.redis.sink import RedisSink
from malflow.connectors.redis.stream_source import RedisStreamSource

__all__ = ["lookup", "sink", "source"]


@wraps(RedisStreamSource)
def source(address: Address, /, **options: Any) -> RedisStreamSource:
    """Return a source of the streams that the path names, separated by commas."""
    url, names = _taken_apart(address)
    return RedisStreamSource(url, names.split(",") if names else [], **options)


@wraps(RedisSink)
def sink(address: Address, /, **options: Any) -> RedisSink[Any, Any, Any]:
    """Return a sink of the hash that the path names."""
    url, name = _taken_apart(address)
    if name:
        options["table"] = name
    return RedisSink(url, **options)


@wraps(RedisLookup)
def lookup(address: Address, /, **options: Any) -> RedisLookup:
    """Return the table of the hash that the path names."""
    url, name = _taken_apart(address)
    if name:
        options["table"] = name
    return RedisLookup(url, **options)


def _taken_apart(address: Address) -> tuple[str, str]:
    """Return the URL of the database, and the name after it."""
    database, _, name = address.path.partition("/")
    if not database.isdigit():
        database, name = "0", address.path
    return f"{address.scheme}://{address.authority}/{database}", name

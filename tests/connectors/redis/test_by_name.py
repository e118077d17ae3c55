"""Streams and tables of Redis by their URL."""

from __future__ import annotations

from typing import Any

import pytest

from malflow.connectors.address import Address
from malflow.connectors.option_texts import options_for
from malflow.connectors.redis import by_name


def made(make: Any, url: str) -> Any:
    address = Address.parse(url)
    return make(address, **options_for(make, "connect", address.query, {}))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:hush@h:7/3/a,b?field=n&start=latest", "RedisStreamSource('a', 'b' at h:7/3)"),
        ("rediss://h/orders", "RedisStreamSource('orders' at h:6379/0)"),
        ("redis://h/0/eu/orders?settings.client_name=x&retry_for=5s", "RedisStreamSource('eu/orders' at h:6379/0)"),
    ],
)
def test_sources(url: str, shown: str) -> None:
    assert repr(made(by_name.source, url)) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:hush@h:7/3/totals?encode=json&delivery=at-least-once", "RedisSink('totals' at h:7/3)"),
        ("redis://h/1?prefix=total:", "RedisSink('total:*' at h:6379/1)"),
    ],
)
def test_sinks(url: str, shown: str) -> None:
    assert repr(made(by_name.sink, url)) == shown


def test_values_go_through(redis_url: str, client: Any, name: str) -> None:
    client.xadd(name, {"n": "[1]"}, id="5-0")
    source = made(by_name.source, f"{redis_url}/{name}?field=n&decode=json&stop=latest")
    assert source.build_part(name, None).poll() == ([1], 5)

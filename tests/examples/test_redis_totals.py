"""The example on a real server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import redis

from examples import redis_totals
from tests.servers.redis_server import RedisServer


def test_redis_totals(own_redis: Callable[[], RedisServer], tmp_path: Path) -> None:
    url = own_redis().address
    with redis.Redis.from_url(url) as client:
        for times in (1, 2):
            redis_totals.main(url, str(tmp_path))
            assert client.hgetall("totals") == {b"Ulm": str(8 * times).encode(), b"Bonn": str(4 * times).encode()}

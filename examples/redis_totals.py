"""Sum orders from a Redis stream in a table of totals, exactly once.

Needs `pip install 'malflow[redis]'`. Start a Redis (``redis-server --appendonly yes --appendfsync always``), then run

    python examples/redis_totals.py redis://localhost:6379/0 state

Interrupt it, kill it, and run it again: no order is lost or counted twice. See the totals with ``HGETALL totals``.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.redis import RedisSink, RedisStreamSource
from malflow.snapshot import FsspecBackend

import redis

ORDERS = [{"town": "Ulm", "amount": 3}, {"town": "Bonn", "amount": 4}, {"town": "Ulm", "amount": 5}]


def add_orders(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        for order in ORDERS:
            client.xadd("orders", {"order": json.dumps(order)})


def add(town: str, order: dict[str, Any], total: int) -> tuple[int, int]:
    del town
    return total + order["amount"], total + order["amount"]


def main(url: str, state: str) -> None:
    """Add a few orders, and sum all orders in the stream."""
    add_orders(url)

    def build_dataflow(provider: StreamProvider) -> None:
        source = RedisStreamSource(url, "orders", field="order", decode="json", stop="latest")
        orders = provider.new_stream().source("orders", source)
        towns = orders.key_distribute("town", "town")
        towns.stateful_map("total", add, default=int).sink("totals", RedisSink(url, table="totals"))

    SingleThreadRuntime(build_dataflow, FsspecBackend(state), timedelta(seconds=1)).execute()


if __name__ == "__main__":
    main(*sys.argv[1:])

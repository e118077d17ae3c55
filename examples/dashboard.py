"""A dashboard that asks a running job: sales by shop, live, over HTTP.

The job keeps a total for each shop, and its sales by day; the server answers each request with a question to the job,
from a thread of its own. Nothing is stored outside the job. ``python examples/dashboard.py 8000`` serves until Ctrl-C.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import unquote
from urllib.request import urlopen

from malflow import MalflowError, RunHandle, SingleThreadRuntime, StreamProvider, agg
from malflow.sources import StatelessSource, StatelessSourceImpl, StatelessSourcePartition


class Order(NamedTuple):
    """An order of a shop."""

    shop: str
    time: datetime
    amount: int


START = datetime(2026, 3, 28, tzinfo=UTC)
ORDERS = [Order(("books", "tea")[number % 3 == 0], START + timedelta(hours=5 * number), number) for number in range(12)]


class Till(StatelessSourcePartition[Order, int]):
    """Rings up the orders of a list, and then waits for more."""

    def __init__(self, orders: list[Order]) -> None:
        self.orders = iter(enumerate(orders))

    def poll(self) -> tuple[Order, int] | None:
        """Return the next order, or None while there is none."""
        at, order = next(self.orders, (0, None))
        return None if order is None else (order, at)

    def is_finished(self) -> bool:
        """Return False: shops never close."""
        return False


class Tills(StatelessSourceImpl[str, Order, int]):
    """A shop's only till."""

    def list_parts(self) -> list[str]:
        """List the till."""
        return ["till"]

    def build_part(self, part: str) -> Till:
        """Open the till."""
        return Till(ORDERS)


def sales_by_shop(provider: StreamProvider) -> None:
    timed = (
        provider.new_stream()
        .source("orders", StatelessSource(Tills()))
        .event_time("time", "time", out_of_orderness=timedelta(minutes=1))
    )
    by_shop = timed.key_distribute("shop", "shop")
    by_shop.stateful_map("total", lambda _shop, order, total: (None, total + order.amount), default=int)
    by_shop.rollup("sales", ["hour", "day"], agg.sum("amount"), keep={"day": timedelta(days=30)})


class Dashboard(BaseHTTPRequestHandler):
    """Answers ``/`` with all totals, and ``/<shop>`` with the days of a shop."""

    job: RunHandle

    def do_GET(self) -> None:
        """Ask the job, and answer in JSON."""
        shop = unquote(self.path.strip("/"))
        try:
            found = self.days_of(shop) if shop else self.totals()
        except MalflowError as error:  # the job has ended
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def totals(self) -> dict[str, int]:
        """Return the total of each shop."""
        return dict(sorted(self.job.state("total").items(limit=100).result(timeout=10)))

    def days_of(self, shop: str) -> list[dict[str, Any]]:
        """Return the days of a shop, closed ones and the open one."""
        days = self.job.windows("sales").get(shop, unit="day").result(timeout=10)
        return [{"day": f"{day.start:%d %B}", "amount": day.value, "timing": day.timing.name} for day in days]

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def serving(job: RunHandle, port: int) -> Iterator[str]:
    """Serve the dashboard of a job in the background; yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", port), type("OfJob", (Dashboard,), {"job": job})) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def main(port: int = 0) -> None:
    job = SingleThreadRuntime(sales_by_shop, parallelism=2).start()
    try:
        with serving(job, port) as address:
            if port:
                print(f"{address}/ and {address}/tea; Ctrl-C ends it")
                job.await_termination()
            while job.progress.records.get("total", 0) < len(ORDERS):
                time.sleep(0.01)
            for path in ("/", "/tea"):
                with urlopen(address + path) as response:  # noqa: S310 - its own server
                    print(path, response.read().decode())
    finally:
        job.stop()
        job.await_termination()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

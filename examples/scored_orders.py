"""Orders, each with the risk that a service computes: many calls at a time, no faster than the service allows.

The service is a server in this process. It is overloaded now and then, so calls are repeated; while most calls fail,
a breaker holds them back. An order that the service refuses becomes a dead letter, which people review; the others
continue.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

from malflow import Breaker, DeadLetter, Rate, Retry, SingleThreadRuntime, StreamProvider
from malflow.sinks import StdOutSink, VecSink
from malflow.sources import SingleIteratorSource


class Order(NamedTuple):
    """An order of a customer."""

    customer: str
    amount: int


class Scored(NamedTuple):
    """An order with its risk."""

    order: Order
    risk: int


ORDERS = [Order("Ada", 70), Order("Bob", 15), Order("Eve", -3), Order("Ada", 42), Order("Bob", 99), Order("Eve", 7)]


class Scores(BaseHTTPRequestHandler):
    """Answers ``/<amount>`` with the risk of an order; refuses the first call for every amount divisible by three."""

    seen: Counter[str]

    def do_GET(self) -> None:
        """Answer in JSON."""
        self.seen[self.path] += 1
        amount = int(self.path.strip("/"))
        if amount < 0:
            self.send_error(HTTPStatus.UNPROCESSABLE_ENTITY, "an amount can't be negative")
        elif amount % 3 == 0 and self.seen[self.path] == 1:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "too many calls")
        else:
            self.send_response(HTTPStatus.OK)
            self.end_headers()
            self.wfile.write(json.dumps(amount // 10).encode())

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class Score:
    """Asks the service for the risk of an order."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, order: Order) -> Scored:
        """Return the order with its risk.

        Raises:
            ConnectionError: if the service is overloaded, so it is worth asking again.
            ValueError: if it refuses the order.
        """
        try:
            with urlopen(f"{self.address}/{order.amount}", timeout=5) as answer:  # noqa: S310 - its own server
                return Scored(order, json.load(answer))
        except HTTPError as error:
            with error:
                if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                    raise ConnectionError(error.reason) from None
                raise ValueError(error.reason) from None


def scoring(address: str, review: VecSink[Any, str, Any]) -> Callable[[StreamProvider], None]:
    """Return the function that builds the dataflow, for the address of a service and a sink for orders to review."""

    def build_dataflow(provider: StreamProvider) -> None:
        orders = provider.new_stream().source("orders", SingleIteratorSource(ORDERS))
        scored = orders.map_async(
            "score",
            Score(address),
            threads=8,
            rate=Rate(per_second=200, burst=8),
            retry=Retry(attempts=3, first=0.01, on=(ConnectionError, TimeoutError)),
            breaker=Breaker(failures=20, of=40, open_for=timedelta(seconds=1)),
            on_error="dead_letter",
        )
        scored.sink("out", StdOutSink())
        provider.on_dead_letters(lambda letters: letters.map("told", told).sink("review", review))

    return build_dataflow


def told(letter: DeadLetter) -> str:
    return f"{letter.value.customer}: {letter.message}, after {letter.attempts} attempt(s)"


@contextmanager
def serving() -> Iterator[str]:
    """Serve scores in the background; yield the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Fresh", (Scores,), {"seen": Counter()})) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def main() -> None:
    review: VecSink[Any, str, Any] = VecSink()
    with serving() as address:
        runtime = SingleThreadRuntime(scoring(address, review))
        runtime.execute()
    print(*review.values, sep="\n")
    counts = runtime.progress.counts["score"]
    print({name: counts[name] for name in ("calls", "retried", "opened", "letters")})


if __name__ == "__main__":
    main()

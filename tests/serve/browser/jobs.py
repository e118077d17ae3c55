"""Jobs for a page to show: one with everything, one with a stalled part, one with hostile names, and a large one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from malflow import OnError, agg, limit_out_of_orderness
from malflow.sinks import StatelessSinkImpl
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.windows import tumbling
from tests.kit.dripping import Drip, Stamps

__all__ = ["HOSTILE", "NAMES", "Forget", "Prices", "chain", "failing", "hostile", "large", "orders", "stalled"]

HOSTILE = (
    "<img src=x onerror=\"document.title='hacked'\">",
    "</script><script>document.title='hacked'</script>",
    "\"'&<b>bold</b>",
    "name \u202egnp.exe\u202c \u200b\x1b[31m",
    "x" * 10_000,
)
"""Texts with markup, quotes, direction marks and an escape code, and a very long one."""

NAMES = tuple(it.replace("/", "|") for it in HOSTILE if it.isprintable())
"""The ones that an operator may have as its name."""


class Forget(StatelessSinkImpl[Any, Any, Any]):
    """A sink that keeps nothing."""

    def sink(self, msg: Any) -> None:
        """Take a record."""


class Prices:
    """Prices that are missing until they are added: a cause of letters that can be mended."""

    def __init__(self) -> None:
        self.missing = {13, 113}

    def __call__(self, number: int) -> int:
        """Return the price of an order."""
        if number in self.missing:
            raise KeyError(f"no price for order {number}")
        return number % 90


def orders(prices: Prices) -> Callable[[Any], None]:
    """Return a healthy dataflow with lag, late records, letters, keys and windows."""

    def build(provider: Any) -> None:
        parts = {name: Stamps((1, 2, 30, 1, 31), 1) for name in ("a.csv", "b.csv", "c.csv")}
        lines = provider.new_stream().source("orders", StatefulSource(Drip(parts, lag=1200)))
        priced = lines.map("price", prices, on_error=OnError("dead_letter"))
        on_time, _ = priced.generate_epochs("epochs", limit_out_of_orderness(5))
        keyed = on_time.key_distribute("shop", lambda msg: f"shop {msg.value % 7}")
        keyed.aggregate("totals", agg.count()).sink("board", Forget())
        keyed.window(tumbling(20)).aggregate("sales", agg.count()).sink("report", Forget())

    return build


def stalled(provider: Any) -> None:
    """Build a dataflow in which a silent part of a source holds back all windows."""
    parts = {"a.csv": Stamps((1,), 1), "b.csv": Stamps((1,), 1), "c.csv": Stamps((1, 2, 3))}
    lines = provider.new_stream().source("lines", StatefulSource(Drip(parts)))
    timed = lines.map("split", int).generate_epochs("epochs", limit_out_of_orderness(5))[0]
    words = timed.key_distribute("word", lambda msg: msg.value % 5)
    words.window(tumbling(10)).aggregate("count", agg.count()).map("row", str).sink("counts", Forget())


def hostile(provider: Any) -> None:
    """Build a dataflow whose names, keys, values and errors contain markup and worse."""

    def fail(text: str) -> str:
        raise ValueError(text)

    def texts() -> Iterator[str]:
        yield from HOSTILE
        while True:
            time.sleep(0.05)
            yield "plain"

    stream = provider.new_stream().source("texts", SingleIteratorSource(texts()))
    for name in NAMES:
        stream = stream.map(name, lambda it: it)
    keyed = stream.key_distribute("key", lambda msg: msg.value)
    failing = keyed.filter("only hostile", lambda it: it != "plain")
    failing.map("fail", fail, on_error=OnError("dead_letter")).sink("nothing", Forget())


def failing(provider: Any) -> None:
    """Build a dataflow in which every other record becomes a dead letter."""

    def texts() -> Iterator[str]:
        for number in count():
            time.sleep(0.02)
            yield str(number) if number % 2 else "none"

    stream = provider.new_stream().source("texts", SingleIteratorSource(texts()))
    stream.map("parse", int, on_error=OnError("dead_letter", keep=50, full="drop_oldest")).sink("numbers", Forget())


def chain(operators: int) -> Callable[[Any], None]:
    """Return a dataflow of so many operators in a row."""

    def numbers() -> Iterator[int]:
        for number in count():
            time.sleep(0.02)
            yield number

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("numbers of a source", SingleIteratorSource(numbers()))
        for step in range(operators - 2):
            stream = stream.map(f"the step number {step}", abs)
        stream.sink("the place where they go", Forget())

    return build


def large(provider: Any) -> None:
    """Build a dataflow of 200 operators."""

    def numbers() -> Iterator[int]:
        at = 0
        while True:
            if at % 20 == 0:
                time.sleep(0.02)
            yield at
            at += 1

    for branch in range(10):
        stream = provider.new_stream().source(f"source {branch}", SingleIteratorSource(numbers()))
        for step in range(9):
            stream = stream.map(f"before {branch}.{step}", abs)
        stream = stream.key_distribute(f"key {branch}", lambda msg: msg.value % 7)
        for step in range(8):
            stream = stream.map(f"after {branch}.{step}", abs)
        stream.sink(f"sink {branch}", Forget())

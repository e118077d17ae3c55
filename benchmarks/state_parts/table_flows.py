"""Tables and joins with them, beside stateful maps, as-of joins, and bytewax by hand."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from random import Random
from typing import Any

from malflow import SingleThreadRuntime, TableChange, limit_out_of_orderness
from malflow.sinks import StatelessSink
from malflow.sources import SingleIteratorSource

__all__ = ["measure_flows"]

_KEYS = 10_000
_BATCH = 10_000

Row = tuple[Any, ...]


class _Ignored:
    """A sink that drops everything."""

    def sink(self, msg: Any) -> None:
        """Drop a record."""

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Drop a batch."""


def _rows(count: int) -> list[Row]:
    random = Random(7)
    return [(random.randrange(_KEYS), n, n / 7, f"abc{n}", True, n + 1, 2.5) for n in range(count)]


def _key(msg: Any) -> int:
    key: int = msg.value[0]
    return key


def _keyed(provider: Any, name: str, rows: Sequence[Row], *, timed: bool = False) -> Any:
    stream = provider.new_stream().source(name, SingleIteratorSource(rows))
    if timed:
        stream = stream.generate_epochs(f"{name} epochs", limit_out_of_orderness(0), every=1_000).on_time
    return stream.key_distribute(f"{name} key", _key)


def _remember(_key: int, row: Row, old: Row | None) -> tuple[tuple[Row | None, Row], Row]:
    """Remember the row, and emit both."""
    return (old, row), row


def _change(_key: int, row: Row, old: Row | None) -> tuple[TableChange[Row] | None, Row]:
    """Keep the last row of each key by hand."""
    return None if old == row else TableChange(old, row), row


def _pair(order: Row, row: Row | None) -> tuple[Row, Row | None]:
    return order, row


def _of_one(add: Callable[[Any], Any]) -> Callable[[Any, Sequence[Row]], Any]:
    return lambda provider, rows: add(_keyed(provider, "rows", rows))


def _of_two(add: Callable[[Any, Any], Any], *, timed: bool = False) -> Callable[[Any, Sequence[Row]], Any]:
    """Return a flow of which half of the records are rows, and half are joined with them."""

    def build(provider: Any, rows: Sequence[Row]) -> Any:
        left = _keyed(provider, "orders", rows[::2], timed=timed)
        return add(left, _keyed(provider, "rows", rows[1::2], timed=timed))

    return build


_MALFLOW: dict[str, Callable[[Any, Sequence[Row]], Any]] = {
    "stateful_map": _of_one(lambda keyed: keyed.stateful_map("map", _remember)),
    "the same by hand": _of_one(
        lambda keyed: keyed.stateful_map("map", _change).filter("changed", lambda change: change is not None)
    ),
    "to_table": _of_one(lambda keyed: keyed.to_table("table").changes()),
    "to_table, rows": _of_one(lambda keyed: keyed.to_table("table").rows()),
    "join_table, arrival": _of_two(lambda left, right: left.join_table("join", right, _pair, at="arrival")),
    "asof_join": _of_two(lambda left, right: left.asof_join("join", right), timed=True),
    "join_table, time": _of_two(lambda left, right: left.join_table("join", right, _pair), timed=True),
}

_BYTEWAX = ["bytewax, table", "bytewax, join"]


def measure_flows(count: int) -> dict[str, float]:
    """Run each flow over so many records, bytewax if it is installed; return the processor time of a record in ns."""
    rows = _rows(count)
    runs = {name: _malflow(name, rows) for name in _MALFLOW}
    if find_spec("bytewax") is not None:
        runs |= {name: _bytewax(name, rows) for name in _BYTEWAX}
    return {name: _seconds(run) / count * 1e9 for name, run in runs.items()}


def _seconds(run: Callable[[], object]) -> float:
    gc.collect()
    begin = time.process_time()
    run()
    return time.process_time() - begin


def _malflow(name: str, rows: Sequence[Row]) -> Callable[[], object]:
    def build(provider: Any) -> None:
        _MALFLOW[name](provider, rows).sink("out", StatelessSink(_Ignored()))

    return SingleThreadRuntime(build).execute


def _bytewax(name: str, rows: Sequence[Row]) -> Callable[[], object]:
    peers: Any = import_module("workloads.peers")  # needs bytewax
    op = peers.op

    def table(stream: Any) -> Any:
        return op.stateful_map("table", op.key_on("key", stream, key_of), remember)

    def join(stream: Any) -> Any:
        return op.stateful_flat_map("join", op.key_on("key", stream, key_of), enrich)

    def key_of(row: Row) -> str:
        return str(row[0])

    def remember(old: Row | None, row: Row) -> tuple[Row, int]:
        return row, len((old, row))  # the sink adds numbers up

    def enrich(known: Row | None, row: Row) -> tuple[Row | None, list[int]]:
        return (known, [len((row, known))]) if row[1] % 2 == 0 else (row, [])

    add = table if name == "bytewax, table" else join
    return lambda: peers.run_bytewax(rows, _BATCH, add)

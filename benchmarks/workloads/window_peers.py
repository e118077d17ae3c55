"""The same windows by bytewax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

__all__ = ["bytewax_pairs", "bytewax_windows"]

_BATCH = 1_000


class Reader(StatelessSourcePartition[Any]):
    """Reads slices of a list."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = rows
        self._at = 0

    def next_batch(self) -> Sequence[Any]:
        """Return the next slice."""
        found = self._rows[self._at : self._at + _BATCH]
        self._at += _BATCH
        if not found:
            raise StopIteration
        return found


class Rows(DynamicSource[Any]):
    """The records of a list."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = rows

    def build(self, *_: Any) -> Reader:
        """Return the reader."""
        return Reader(self._rows)


class Adder(StatelessSinkPartition[Any]):
    """Counts the results, and adds them up."""

    def __init__(self, amount_of: Callable[[Any], int]) -> None:
        self._amount_of = amount_of
        self.count = 0
        self.total = 0.0

    def write_batch(self, items: Sequence[Any]) -> None:
        """Add results, each of which is a key, and the number of a window with a value."""
        self.count += len(items)
        self.total += sum(self._amount_of(item[1][1]) for item in items)


class Sums(DynamicSink[Any]):
    """A sink that has one part."""

    def __init__(self, adder: Adder) -> None:
        self._adder = adder

    def build(self, *_: Any) -> Adder:
        """Return the part."""
        return self._adder


def bytewax_windows(rows: Sequence[dict[str, Any]], start: datetime, kind: str) -> tuple[int, float]:
    """Sum in windows by `fold_window`; return the number of results and their sum."""
    minute = timedelta(minutes=1)
    windowers: dict[str, Any] = {
        "tumbling": win.TumblingWindower(length=minute, align_to=start),
        "sliding": win.SlidingWindower(length=minute, offset=timedelta(seconds=1), align_to=start),
        "session": win.SessionWindower(gap=timedelta(seconds=5)),
    }
    flow = Dataflow("windows")
    keyed = op.key_on("key", op.input("rows", flow, Rows(rows)), _key_of)
    found: Any = win.fold_window(
        "sum",
        keyed,
        _clock(),
        windowers[kind],
        int,
        lambda total, row: total + row["amount"],
        lambda one, other: one + other,
    )
    return _run(flow, found, Adder(lambda total: total))


def bytewax_pairs(sides: Sequence[Sequence[dict[str, Any]]], start: datetime, length: timedelta) -> tuple[int, float]:
    """Join two streams by `join_window`: the pairs in one tumbling window, which is as near as it comes.

    Return the number of pairs and the sum of their left amounts.
    """
    flow = Dataflow("pairs")
    keyed = [op.key_on(f"key {at}", op.input(f"rows {at}", flow, Rows(rows)), _key_of) for at, rows in enumerate(sides)]
    windower = win.TumblingWindower(length=length, align_to=start)
    found: Any = win.join_window("join", _clock(), windower, *keyed, insert_mode="product", emit_mode="final")
    return _run(flow, found, Adder(_left_amount))


def _key_of(row: dict[str, Any]) -> str:
    key: str = row["key"]
    return key


def _left_amount(pair: Sequence[Any]) -> int:
    return pair[0]["amount"] if pair[0] and pair[1] else 0


def _clock() -> Any:
    return win.EventClock(lambda row: row["at"], wait_for_system_duration=timedelta(seconds=3))


def _run(flow: Dataflow, found: Any, adder: Adder) -> tuple[int, float]:
    op.output("sums", found.down, Sums(adder))
    run_main(flow)
    return adder.count, adder.total

"""The same windows by bytewax."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

__all__ = ["bytewax_windows"]

_BATCH = 1_000


def bytewax_windows(rows: Sequence[dict[str, Any]], start: datetime, kind: str) -> tuple[int, float]:
    """Sum in windows by `fold_window`; return the number of results and their sum."""

    class Reader(StatelessSourcePartition[Any]):
        def __init__(self) -> None:
            self.at = 0

        def next_batch(self) -> Sequence[Any]:
            found = rows[self.at : self.at + _BATCH]
            self.at += _BATCH
            if not found:
                raise StopIteration
            return found

    class Rows(DynamicSource[Any]):
        def build(self, *_: Any) -> Reader:
            return Reader()

    sums = [0, 0.0]

    class Adder(StatelessSinkPartition[Any]):
        def write_batch(self, items: Sequence[Any]) -> None:
            sums[0] += len(items)
            sums[1] += sum(item[1][1] for item in items)

    class Sums(DynamicSink[Any]):
        def build(self, *_: Any) -> Adder:
            return Adder()

    minute = timedelta(minutes=1)
    windowers: dict[str, Any] = {
        "tumbling": win.TumblingWindower(length=minute, align_to=start),
        "sliding": win.SlidingWindower(length=minute, offset=timedelta(seconds=1), align_to=start),
        "session": win.SessionWindower(gap=timedelta(seconds=5)),
    }
    flow = Dataflow("windows")
    keyed = op.key_on("key", op.input("rows", flow, Rows()), lambda row: row["key"])
    clock: Any = win.EventClock(lambda row: row["at"], wait_for_system_duration=timedelta(seconds=3))
    found: Any = win.fold_window(
        "sum",
        keyed,
        clock,
        windowers[kind],
        int,
        lambda total, row: total + row["amount"],
        lambda one, other: one + other,
    )
    op.output("sums", found.down, Sums())
    run_main(flow)
    return int(sums[0]), float(sums[1])

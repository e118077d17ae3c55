"""The programs in bytewax, on a hundredth of the records, as it takes microseconds for each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from column_parts.child import BOUND, SIZE

SHARE = 100
"""One in so many records. A run of all of them would take minutes; its start counts a hundred times, too."""


def program(name: str, peer: str, path: str, table: Any) -> Callable[[], object] | None:
    """Return a function that runs a program; None if there is no such one."""
    del peer, path
    if table is None or name in ("read", "derive"):
        return None
    import bytewax.operators as op  # noqa: PLC0415 - a peer
    import bytewax.operators.windowing as win  # noqa: PLC0415 - a peer
    from bytewax.dataflow import Dataflow  # noqa: PLC0415 - a peer
    from bytewax.testing import TestingSink, TestingSource, run_main  # noqa: PLC0415 - a peer

    field = "price" if name == "runningf" else "qty"
    rows = table.slice(0, len(table) // SHARE).to_pylist()
    start = datetime(2024, 1, 1, tzinfo=UTC)

    flow = Dataflow("benchmark")
    stream = op.input("trades", flow, TestingSource(rows, batch_size=8192))
    keyed = op.key_on("symbol", stream, lambda row: row["symbol"])
    if name.startswith("running"):
        results: Any = op.stateful_map("sums", keyed, lambda held, row: ((held or 0) + row[field],) * 2)
    else:
        clock = win.EventClock(
            ts_getter=lambda row: start + timedelta(microseconds=row["ts"]),
            wait_for_system_duration=timedelta(microseconds=BOUND),
        )
        tumbler = win.TumblingWindower(length=timedelta(microseconds=SIZE), align_to=start)
        results = win.fold_window("bars", keyed, clock, tumbler, lambda: None, _folded, lambda one, _: one).down
    op.output("out", results, TestingSink([]))

    return lambda: run_main(flow)


def _folded(acc: Any, row: Any) -> Any:
    if acc is None:
        return [1, row["qty"], row["price"], row["price"]]
    return [acc[0] + 1, acc[1] + row["qty"], min(acc[2], row["price"]), max(acc[3], row["price"])]

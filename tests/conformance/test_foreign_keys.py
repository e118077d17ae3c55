"""Joins of tables by a foreign key, on every runtime."""

from __future__ import annotations

from typing import Any

from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, read_state
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource
from tests.conformance.dataflow import Started
from tests.kit.waiting import wait_until
from tests.tables.test_foreign_keys import expected, flow_of, table_of

SECONDS = 300.0

ITEMS = [
    ("right", n % 7, n % 5 or None) if n % 3 == 0 else ("left", f"k{n * 5 % 11}", (n * 7 % 9, n) if n % 8 else None)
    for n in range(150)
]


def test_rows_and_references_continue_from_snapshots(any_parallelism: Any, store: FsspecBackend) -> None:
    source = StatefulSource(ScriptedSource([*ITEMS[:50], END, *ITEMS[50:100], PAUSE, *ITEMS[100:]]))
    sink: VecSink[Any, Any, Any] = VecSink()
    for _ in range(2):
        any_parallelism(flow_of(source, StatelessSink(sink), "left"), store, at_end="keep").execute()
    assert table_of(sink) == expected(ITEMS, "left")
    assert {key: row for (side, key), row in read_state(store, "joined") if side == 0} == _last("left")


def _last(side: str) -> dict[Any, Any]:
    rows = {key: row for found, key, row in ITEMS if found == side}
    return {key: row for key, row in rows.items() if row is not None}


def test_a_running_join_is_rescaled(any_parallelism: Any) -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    pauses = [PAUSE] * 20
    script = [*ITEMS[:60], *pauses, *ITEMS[60:], *([PAUSE] * 10_000)]
    with Started(any_parallelism(flow_of(ScriptedSource(script), StatelessSink(sink)))) as started:
        wait_until(lambda: started.run.progress.records.get("items", 0) >= 60, SECONDS)
        started.run.rescale(3).result(SECONDS)
        wait_until(lambda: started.run.progress.records.get("items", 0) == len(ITEMS), SECONDS)
        started.run.rescale(1).result(SECONDS)
        assert table_of(sink) == expected(ITEMS, "inner")

"""Rows that all workers have, on every runtime."""

from __future__ import annotations

from typing import Any

from malflow import StreamProvider
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, read_state
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource
from tests.conformance.dataflow import Started
from tests.kit.waiting import wait_until

SECONDS = 300.0


def with_rows(value: Any, rows: Any) -> Any:
    """Pair a value with all rows, in the order of their keys."""
    return value, tuple(sorted(rows.items()))


def flow(source: Any, sink: Any, *, keyed: bool = True) -> Any:
    """Return a dataflow that pairs numbers with the rows, which are given as pairs of a key and a row."""

    def build_dataflow(provider: StreamProvider) -> None:
        items = provider.new_stream().source("items", source)
        rows = items.filter("rows", lambda it: isinstance(it, tuple)).key_distribute(
            "row key", lambda msg: msg.value[0]
        )
        numbers = items.filter("numbers", lambda it: isinstance(it, int))
        records = numbers.key_distribute("key", lambda msg: msg.value) if keyed else numbers
        table = rows.map("row", lambda it: it[1]).to_table("table")
        records.join_broadcast("joined", table, with_rows).sink("out", sink)

    return build_dataflow


SCRIPT = [1, PAUSE, ("a", 1), ("b", 2), *range(10), PAUSE, ("a", None), ("c", 3), PAUSE, *range(10, 20)]
EXPECTED = [
    (1, ()),
    *((number, (("a", 1), ("b", 2))) for number in range(10)),
    *((number, (("b", 2), ("c", 3))) for number in range(10, 20)),
]


def test_records_of_all_workers_see_all_rows(any_parallelism: Any) -> None:
    for keyed in (True, False):
        sink: VecSink[Any, Any, Any] = VecSink()
        any_parallelism(flow(ScriptedSource(SCRIPT), StatelessSink(sink), keyed=keyed)).execute()
        assert sorted(sink.values) == sorted(EXPECTED)


def test_rows_are_stored_once_and_loaded_by_any_number_of_workers(any_parallelism: Any, store: FsspecBackend) -> None:
    source = StatefulSource(ScriptedSource([*SCRIPT[:14], END, *SCRIPT[14:17], END, *SCRIPT[17:]]))
    sink: VecSink[Any, Any, Any] = VecSink()
    for rows, parallelism in (({"a": 1, "b": 2}, None), ({"b": 2, "c": 3}, 3), ({"b": 2, "c": 3}, None)):
        runtime = any_parallelism
        if parallelism is not None and "spark" not in runtime.keywords:
            runtime = type(runtime)(
                runtime.func, **{**runtime.keywords, "parallelism": parallelism, **_processes(runtime)}
            )
        runtime(flow(source, StatelessSink(sink)), store, at_end="keep").execute()
        found = list(read_state(store, "joined"))
        assert dict(found) == rows
        assert len(found) == len(rows)
    assert sorted(sink.values) == sorted(EXPECTED)


def _processes(runtime: Any) -> dict[str, int]:
    return {"processes": 3} if "processes" in runtime.keywords else {}


def test_a_running_job_is_rescaled_and_asked_for_rows(any_parallelism: Any) -> None:
    pauses = [PAUSE] * 200
    sink: VecSink[Any, Any, Any] = VecSink()
    script = [("a", 1), ("b", 2), 0, *pauses, *([PAUSE] * 10_000)]
    with Started(any_parallelism(flow(ScriptedSource(script), StatelessSink(sink)))) as started:
        wait_until(lambda: started.run.progress.records.get("out") == 1, SECONDS)
        for workers in (3, 1, 2):
            started.run.rescale(workers).result(SECONDS)
            assert dict(started.run.state("joined").items().result(SECONDS)) == {"a": 1, "b": 2}
            assert started.run.state("joined").get("b").result(SECONDS) == 2

"""Functions of batches on all runtimes: their results are those of functions of records, and so are the bad rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from malflow import RunHandle, StreamProvider, agg
from malflow.connectors.parquet import ArrowSource
from malflow.failures import Replayed
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import PAUSE, ScriptedSource
from malflow.windows import tumbling
from tests.kit.waiting import wait_until

SECONDS = 120.0

TRADES = pa.table(
    {
        "at": [at // 2 for at in range(200)],
        "symbol": pa.array(["a", "b", "c", "a", "d"] * 40).dictionary_encode(),
        "price": [None if at % 17 == 3 else at % 13 for at in range(200)],
        "note": ["x"] * 200,
    }
)


def priced(batch: Any) -> Any:
    return batch.append_column("twice", pc.multiply(batch["price"], 2))


def marked(batch: Any) -> Any:
    return batch.append_column("own", pc.equal(batch["key"], batch["symbol"])).append_column("time", batch["stamp"])


def by_columns(trades: Any) -> Any:
    few = trades.select_columns("few", "at", "price", symbol="symbol").map_batches("priced", priced)
    known = few.filter_batches("known", lambda batch: pc.greater(batch["twice"], 3))
    keyed = known.event_time("time", "at", out_of_orderness=2).key_distribute("symbol", "symbol")
    own = keyed.map_batches("marked", marked, with_key="key", with_time="stamp")
    return own.select_columns("fields", "twice", "own", "time", "symbol")


def by_records(trades: Any) -> Any:
    known = trades.filter("known", lambda row: row["price"] is not None and row["price"] * 2 > 3)
    keyed = known.event_time("time", "at", out_of_orderness=2).key_distribute("symbol", "symbol")
    return keyed.map(
        "fields", lambda row: {"twice": row["price"] * 2, "own": True, "time": row["at"], "symbol": row["symbol"]}
    )


def bars(rows: Any) -> Any:
    results = rows.window(tumbling(20)).aggregate("bars", agg.sum("twice"), agg.max("time"))
    return results.to_columns("flat", key="symbol", timestamp="at").map_batches("last", lambda batch: batch)


def results_of(runtime: Any, build: Any) -> list[Any]:
    sink = VecSink[Any, Any, Any]()

    def build_dataflow(provider: StreamProvider) -> None:
        trades = provider.new_stream().source("trades", ArrowSource(TRADES))
        build(trades).sink("out", StatelessSink(sink))

    runtime(build_dataflow).execute()
    return sorted((repr(it.key), it.timestamp, repr(it.value)) for it in sink)


def test_functions_of_batches_give_what_functions_of_records_give(any_parallelism: Any) -> None:
    found = results_of(any_parallelism, by_columns)
    assert found == results_of(any_parallelism, by_records)
    assert len(found) == sum(it is not None and it > 1 for it in TRADES["price"].to_pylist())


def test_results_of_windows_become_columns(any_parallelism: Any) -> None:
    found = results_of(any_parallelism, lambda trades: bars(by_columns(trades)))
    assert found == results_of(any_parallelism, lambda trades: bars(by_records(trades)))
    assert "'start': 0, 'end': 20, 'value_0': " in found[0][2]


def test_demotions_are_counted_where_they_happen(any_parallelism: Any) -> None:
    sink = VecSink[Any, Any, Any]()

    def build_dataflow(provider: StreamProvider) -> None:
        rows = [{"word": word, "n": n} for word, n in [("a", 1), ("b", 1), ("a", 2**62), ("a", 2**62), ("b", 2)]]
        source = provider.new_stream().source("rows", ScriptedSource([it for row in rows for it in (row, PAUSE)]))
        keyed = source.to_columns("columns").key_distribute("word", "word")
        keyed.aggregate("totals", agg.sum("n")).sink("out", StatelessSink(sink))

    handle = any_parallelism(build_dataflow).start()
    assert handle.await_termination(SECONDS)
    assert handle.progress.demotions == {"totals": 1}
    assert [it.value for it in sink if it.key == "a"] == [1, 2**62 + 1, 2**63 + 1]


class Parse:
    """Parses the texts of a batch; others than numbers fail until a file is there."""

    def __init__(self, mended: Path) -> None:
        self._mended = mended

    def __call__(self, batch: Any) -> Any:
        """Return the numbers, or the lengths of other texts."""
        is_mended = self._mended.exists()
        texts = batch["text"].to_pylist()
        return pa.record_batch({"n": [len(it) if is_mended and not it.isdigit() else int(it) for it in texts]})


def started(runtime: Any, store: Any, mended: Path, sink: Any, on_error: Any) -> RunHandle:
    """Start a run, and wait until it has taken all records."""

    def build_dataflow(provider: StreamProvider) -> None:
        items = [{"text": text} for text in ["1", "x", "5", "2", "xyz", "3", "7"]]
        texts = provider.new_stream().source("texts", ScriptedSource([*items, *[PAUSE] * 10_000]))
        keyed = texts.key_distribute("key", lambda msg: len(msg.value["text"])).to_columns("columns")
        keyed.map_batches("parse", Parse(mended), on_error=on_error).sink("out", StatelessSink(sink))

    handle: RunHandle = runtime(build_dataflow, store).start()
    wait_until(lambda: handle.progress.records.get("parse") == 7, SECONDS)
    return handle


@pytest.mark.parametrize(("on_error", "numbers", "letters"), [("dead_letter", 5, 2), ("park", 1, 6)])
def test_rows_of_letters_are_replayed(
    any_parallelism: Any, store: FsspecBackend, tmp_path: Path, on_error: Any, numbers: int, letters: int
) -> None:
    mended, sink = tmp_path / "mended", VecSink[Any, Any, Any]()
    handle = started(any_parallelism, store, mended, sink, on_error)
    try:
        wait_until(lambda: len(sink) == numbers, SECONDS)
        found = handle.letters("parse").result(SECONDS)
        assert len(found) == letters
        assert {"x", "xyz"} <= {it.value["text"] for it in found}
        assert sum(it.error == "ValueError" for it in found) == 2
        assert handle.progress.counts["parse"]["letters"] == letters
        mended.touch()
        handle.rescale(2).result(SECONDS)
        assert handle.replay("parse").result(SECONDS) == Replayed(done=letters)
        wait_until(lambda: len(sink) == 7, SECONDS)
        assert sorted(it.value["n"] for it in sink) == [1, 1, 2, 3, 3, 5, 7]
        assert [it.value["n"] for it in sink if it.key == 1] == [1, 1, 5, 2, 3, 7] or on_error == "dead_letter"
    finally:
        handle.stop()
        assert handle.await_termination(SECONDS)

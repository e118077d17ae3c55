"""The marks of drawings and plans: the operators that they show make rows, and no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import malflow
from malflow import SingleThreadRuntime, StreamProvider, agg
from malflow.connectors.parquet import ArrowSource, ParquetSink, ParquetSource
from malflow.sinks import JsonLinesSink, VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import CsvSource, JsonLinesSource
from malflow.windows import counting, session, sliding, tumbling

TABLE = pa.table({"word": ["a", "b", "c"] * 20, "at": list(range(60)), "n": list(range(60))})


class Row(NamedTuple):
    word: str
    at: int
    n: int


@dataclass
class Checked:
    word: str
    at: int
    n: int

    def __post_init__(self) -> None:
        self.n += 1


class Total(NamedTuple):
    n: int


def keyed(stream: Any) -> Any:
    return stream.event_time("time", "at", out_of_orderness=0, every=5).key_distribute("key", "word")


def window(stream: Any, windows: Any, *aggregators: Any, **options: Any) -> Any:
    return keyed(stream).window(windows, **options).aggregate("op", *aggregators)


def late(stream: Any) -> Any:
    timed = stream.event_time("time", "at", out_of_orderness=0, every=5)
    again = timed.late.key_distribute("late key", "word")
    return timed.key_distribute("key", "word").window(tumbling(10)).allow_late(again, until=5)


STEPS: dict[str, Callable[[Any], Any]] = {
    "a function of batches": lambda s: s.map_batches("op", lambda batch: batch),
    "a filter of batches": lambda s: s.filter_batches("op", lambda batch: pc.greater(batch["n"], 3)),
    "chosen columns": lambda s: s.select_columns("op", "word", "at", "n"),
    "flat rows": lambda s: s.to_columns("op"),
    "a function of a value": lambda s: s.map("op", lambda row: row),
    "a filter": lambda s: s.filter("op", lambda row: True),
    "a key by a field": lambda s: s.key_distribute("op", "word"),
    "a local key by a field": lambda s: s.key_local("op", "word"),
    "a key by a function": lambda s: s.key_distribute("op", lambda msg: msg.value["word"]),
    "a timestamp by a field": lambda s: s.event_time("op", "at", out_of_orderness=0),
    "a timestamp by a function": lambda s: s.event_time("op", lambda msg: msg.value["at"], out_of_orderness=0),
    "an inspector": lambda s: s.inspect("op", lambda msg, context: None),
    "an inspector of epochs": lambda s: keyed(s).inspect_frontier("op", lambda epoch, context: None),
    "a union": lambda s: s.union(s.select_columns("fields", "word", "at", "n"), name="op"),
    "a union with rows": lambda s: s.union(s.map("objects", lambda row: row), name="op"),
    "running totals": lambda s: keyed(s).aggregate("op", agg.sum("n"), agg.count()),
    "running totals of a function": lambda s: keyed(s).aggregate("op", agg.sum(lambda row: row["n"])),
    "running sums without a kernel": lambda s: keyed(s).aggregate("op", agg.fsum("n")),
    "tumbling windows": lambda s: window(s, tumbling(10), agg.into(Total, n=agg.sum("n"))),
    "sliding windows": lambda s: window(s, sliding(10, 5), agg.mean("n")),
    "early results": lambda s: window(s, tumbling(10), agg.sum("n"), early=2),
    "sessions": lambda s: window(s, session(2), agg.sum("n")),
    "sessions of a function": lambda s: window(s, session(2), agg.sum(lambda row: row["n"])),
    "windows of counts": lambda s: window(s, counting(3), agg.sum("n")),
    "late records": lambda s: late(s).aggregate("op", agg.sum("n")).results,
    "converted timestamps": lambda s: keyed(s).convert_timestamps("op", lambda at: at * 2),
    "a state": lambda s: keyed(s).stateful_map("op", lambda key, row, state: (row, state), default=int),
}
"""Steps after a source of columns."""

ENDS: dict[str, Callable[[Any], Any]] = {
    "columns": lambda s: s.to_columns("flat"),
    "rows": lambda s: s.map("text", repr),
    "nothing": lambda s: s,
}


def marks_of(build: Any) -> dict[str, set[str | None]]:
    """Return the forms in which columns arrive at each operator, of its inputs."""
    drawn = json.loads(malflow.draw(build, "json"))
    names = {node["id"]: node["name"] for node in drawn["nodes"]}
    found: dict[str, set[str | None]] = {}
    for edge in drawn["edges"]:
        found.setdefault(names[edge["target"]], set()).add(edge["form"])
    return found


def check(build: Callable[[StreamProvider], None], *backend: Any) -> None:
    """Check that operators make rows where the drawing says so."""
    handle = SingleThreadRuntime(build, *backend).start()
    assert handle.await_termination(60)
    marked = {name for name, forms in marks_of(build).items() if "rows" in forms}
    assert marked == {*handle.progress.rows_made}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("step", STEPS)
def test_marks_say_who_makes_rows(step: str, end: str) -> None:
    def build(provider: StreamProvider) -> None:
        stream = STEPS[step](provider.new_stream().source("source", ArrowSource(TABLE)))
        ENDS[end](stream).sink("out", VecSink())

    check(build)


@pytest.mark.parametrize(
    "row",
    [dict, tuple, Row, "n", Checked, lambda word, at, n: n],
    ids=["dict", "tuple", "class", "column", "checked class", "function"],
)
def test_sources_emit_columns_where_no_code_makes_their_rows(row: Any, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "in.parquet")
    for source in (ArrowSource(TABLE, row=row), ParquetSource(tmp_path / "in.parquet", row=row)):

        def build(provider: StreamProvider, source: Any = source) -> None:
            provider.new_stream().source("source", source).map("op", repr).sink("out", VecSink())

        is_plain = row is not Checked and (isinstance(row, str) or row in (dict, tuple, Row))
        assert marks_of(build)["op"] == {"rows" if is_plain else None}
        check(build)


@pytest.mark.parametrize("schema", [None, TABLE.schema], ids=["without", "with"])
def test_lines_are_columns_with_a_schema(schema: Any, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("".join(f"{json.dumps(row)}\n" for row in TABLE.to_pylist()))
    (tmp_path / "in.csv").write_text(
        "word,at,n\n" + "".join(f"{it['word']},{it['at']},{it['n']}\n" for it in TABLE.to_pylist())
    )
    for source in (JsonLinesSource(tmp_path / "in.json", schema=schema), CsvSource(tmp_path / "in.csv", schema=schema)):

        def build(provider: StreamProvider, source: Any = source) -> None:
            provider.new_stream().source("source", source).map("op", repr).sink("out", VecSink())

        assert marks_of(build)["op"] == {"rows" if schema else None}


def test_sinks_take_columns_or_rows(tmp_path: Path) -> None:
    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", ArrowSource(TABLE))
        for name, sink in (
            ("files", ParquetSink(tmp_path / "out")),
            ("lines", JsonLinesSink(tmp_path / "out.json")),
            ("list", VecSink[Any, Any, Any]()),
        ):
            stream.sink(name, sink)

    assert marks_of(build) == {"files": {"columns"}, "lines": {"rows"}, "list": {"columns"}}
    check(build, FsspecBackend(tmp_path / "state", job="job"))


@pytest.mark.parametrize("form", ["boxes", "mermaid", "dot", "svg"])
def test_every_format_shows_the_marks(form: Any) -> None:
    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", ArrowSource(TABLE)).select_columns("fields", "n")
        stream.map("text", repr).sink("out", VecSink())

    drawn = malflow.draw(build, form).replace("#91;", "[").replace("#93;", "]")
    assert (drawn.count("[columns]"), drawn.count("[rows]")) == (1, 1)

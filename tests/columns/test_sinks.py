"""Sinks and columns: who gets columns, who gets lists, and that a policy is one of rows."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import lz4.frame
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import DataMessage, MalflowError, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.columns import Column, Frame
from malflow.connectors.delta import DeltaSink
from malflow.connectors.parquet import ArrowSource, ParquetSink, ParquetSource
from malflow.message import NoKey
from malflow.records.batch import Batch
from malflow.records.columnar import rows_made
from malflow.runtime.spark.tasks.stage_output import packed_pieces
from malflow.runtime.transport.chunks import ChunkBuffer
from malflow.runtime.transport.sink_proxies import PieceEncoder, SinkProxy
from malflow.sinks import SinkOwner, StatelessSink, VecSink
from malflow.snapshot import FsspecBackend

TABLE = pa.table({"town": ["Ulm", "Bonn", "Ulm"], "people": [1, 2, 3]})


def run(sink: Any, data: Any = TABLE, *, store: Any = None, build: Any = lambda rows: rows, **options: Any) -> None:
    source = data if isinstance(data, ParquetSource) else ArrowSource(data)

    def build_dataflow(provider: StreamProvider) -> None:
        build(provider.new_stream().source("rows", source)).sink("out", StatelessSink(sink), **options)

    kept: Any = () if store is None else (store, timedelta(days=1))
    SingleThreadRuntime(build_dataflow, *kept).execute()


def keyed(rows: Any) -> Any:
    return rows.key_distribute("town", "town")


class Lists:
    """A user's sink, which gets lists."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        raise AssertionError(msg)

    def sink_batch(self, keys: Any, values: Any, timestamps: Any) -> None:
        self.calls.append((keys, values, timestamps))


class Singly:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        self.calls.append((msg.key, msg.value, msg.timestamp))


class Columns(Lists):
    def sink_columns(self, keys: Any, batch: Any, timestamps: Any) -> None:
        self.calls.append((keys, batch, timestamps))


class Overriding(Columns):
    def sink_batch(self, keys: Any, values: Any, timestamps: Any) -> None:
        super().sink_batch(keys, values, timestamps)


class Declining(Columns):
    takes_columns = False


@pytest.mark.parametrize("kind", [Lists, Overriding, Declining])
@pytest.mark.parametrize("options", [{}, {"on_error": "skip"}])
def test_sinks_of_lists(kind: type, options: Any) -> None:
    sink = kind()
    run(sink, TABLE.append_column("at", pa.array([7, 8, 9])), build=keyed, **options)
    assert {type(it) for call in sink.calls for it in call} <= {list, range, tuple}
    assert [value for _, values, _ in sink.calls for value in values] == [
        {"town": "Ulm", "people": 1, "at": 7},
        {"town": "Bonn", "people": 2, "at": 8},
        {"town": "Ulm", "people": 3, "at": 9},
    ]
    assert {type(it) for call in sink.calls for column in call for it in column} == {str, dict, int}


def test_timestamps_of_lists() -> None:
    sink: Any = Lists()

    def build(provider: StreamProvider) -> None:
        rows = provider.new_stream().source("rows", ArrowSource(TABLE, timestamp="people"))
        keyed(rows).sink("out", StatelessSink(sink))

    SingleThreadRuntime(build).execute()
    assert {type(it) for call in sink.calls for it in call} == {list}
    assert [it for keys, *_ in sink.calls for it in keys] == ["Ulm", "Bonn", "Ulm"]
    assert [it for *_, timestamps in sink.calls for it in timestamps] == [1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"on_error": "skip"}])
def test_sinks_of_messages(options: Any) -> None:
    sink = Singly()
    run(sink, **options)
    assert sink.calls == [(NoKey, row, at) for at, row in enumerate(TABLE.to_pylist())]


def test_sinks_of_columns() -> None:
    sink = Columns()
    before = rows_made()
    run(sink)
    assert [at for *_, timestamps in sink.calls for at in timestamps] == [0, 1, 2]
    assert pa.Table.from_batches([batch for keys, batch, _ in sink.calls if keys is None]).equals(TABLE)
    assert rows_made() == before


@dataclass
class Town:
    name: str
    people: int
    river: str = ""


def test_records_with_more_fields_than_columns_are_rows() -> None:
    sink: Any = Columns()

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("rows", ArrowSource(TABLE, row=Town)).sink("out", StatelessSink(sink))

    SingleThreadRuntime(build).execute()
    assert [row for _, rows, _ in sink.calls for row in rows] == [Town("Ulm", 1), Town("Bonn", 2), Town("Ulm", 3)]


# VecSink


def test_frames_of_a_sink_in_memory() -> None:
    vec: VecSink[Any, Any, Any] = VecSink()
    before = rows_made()
    run(vec)
    assert pa.Table.from_batches([it.batch for it in vec.frames()]).equals(TABLE)
    assert (len(vec), rows_made()) == (3, before)
    assert vec.values == TABLE.to_pylist()
    assert list(vec) == [DataMessage(NoKey, row, at) for at, row in enumerate(TABLE.to_pylist())]
    assert rows_made() == before + 3
    assert vec.frames()[0].batch is not None
    vec.sink(DataMessage("a", 1, 0))
    assert [*vec.values[-2:], len(vec)] == [{"town": "Ulm", "people": 3}, 1, 4]
    with pytest.raises(MalflowError, match=r"VecSink got 1, which is a Python object .*\.to_columns\(name\)"):
        vec.frames()
    assert len(vec.drain()) == 4
    assert (vec.frames(), vec.values) == ([], [])


def test_rows_of_a_class_in_memory() -> None:
    vec: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("rows", ArrowSource(TABLE, row=Town)).sink("out", vec)

    SingleThreadRuntime(build).execute()
    assert vec.values == [Town("Ulm", 1), Town("Bonn", 2), Town("Ulm", 3)]
    assert isinstance(vec.frames()[0], Frame)


# Files and tables


def rows_in(folder: Path) -> list[Any]:
    return pq.read_table(folder).to_pylist() if [*folder.glob("*.parquet")] else []


def delta_rows_in(folder: Path) -> list[Any]:
    deltalake = pytest.importorskip("deltalake")
    table: Any = deltalake.DeltaTable(folder).to_pyarrow_table()
    return sorted(table.to_pylist(), key=str)


SINKS = pytest.mark.parametrize(("make", "read"), [(ParquetSink, rows_in), (DeltaSink, delta_rows_in)])


@SINKS
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_files_of_columns(make: Any, read: Any, delivery: Any, tmp_path: Path) -> None:
    given = pa.table({"small": pa.array([1, 2], pa.int32()), "town": pa.array(["Ulm", None]).dictionary_encode()})
    pq.write_table(given, tmp_path / "in.parquet")
    before = rows_made()
    store = FsspecBackend(str(tmp_path / "job"))
    run(make(tmp_path / "out", delivery=delivery), ParquetSource(tmp_path / "in.parquet"), store=store)
    assert rows_made() == before
    assert read(tmp_path / "out") == [{"small": 1, "town": "Ulm"}, {"small": 2, "town": None}]
    (file,) = [*(tmp_path / "out").rglob("*.parquet")]
    assert pq.read_schema(file).types == [pa.int32(), pa.string()]


@SINKS
def test_columns_after_rows(make: Any, read: Any, tmp_path: Path) -> None:
    sink = make(tmp_path / "out")
    sink.fence(SinkOwner("job", "out", 1))
    sink.abort([])
    sink.sink_batch([0], [{"n": 1, "m": None}], [0])
    sink.sink_batch([0], [{"n": 1, "m": 2.5}], [0])
    sink.sink_columns(None, pa.record_batch({"m": pa.array([7], pa.int8()), "n": pa.array([2], pa.int8())}), [0])
    sink.sink_columns(None, pa.record_batch({"n": [3]}), [0])
    sink.sink_batch([0], [{"n": 4}], [0])
    sink.commit([sink.prepare(1)])
    rows = [(row["n"], row["m"]) for row in read(tmp_path / "out")]
    assert sorted(rows, key=str) == sorted([(1, None), (1, 2.5), (2, 7.0), (3, None), (4, None)], key=str)


def test_schema_of_the_first_worker(tmp_path: Path) -> None:
    first: Any = ParquetSink(tmp_path / "out")
    first.fence(SinkOwner("job", "out", 1))
    first.abort([])
    others = [pickle.loads(pickle.dumps(first)) for _ in range(2)]
    small, large = (pa.record_batch({"n": pa.array([1], kind)}) for kind in (pa.int32(), pa.int64()))
    assert others[0].encode_columns(None, small, [0]).schema.field("n").type == pa.int32()
    assert others[1].encode_columns(None, large, [0]).schema.field("n").type == pa.int32()
    assert others[1].encode([0], [{"n": 2}], [0]).schema.field("n").type == pa.int32()


def test_formatters_get_rows(tmp_path: Path) -> None:
    sink: Any = ParquetSink(
        tmp_path / "out", delivery="at-least-once", formatter=lambda msg: {"n": msg.value["people"]}
    )
    run(sink)
    assert rows_in(tmp_path / "out") == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_row_that_does_not_fit_ends_the_run(tmp_path: Path) -> None:
    sink: Any = ParquetSink(tmp_path / "out", schema=pa.schema({"n": pa.int8()}), delivery="at-least-once")
    with pytest.raises(OperatorError, match=r"operator 'out' failed.*cannot store \{'n': 300\} in column 'n'"):
        run(sink, pa.table({"n": [1, 300, 301]}))


@given(st.lists(st.integers(-200, 200), min_size=1, max_size=40), st.integers(1, 40))
def test_policies_are_of_rows(numbers: list[int], size: int) -> None:
    """The same rows are refused as of lists, and the others are written in order."""
    schema = pa.schema({"n": pa.int8()})
    found: list[Any] = []
    table = pa.table({"n": numbers})
    for as_columns in (True, False):
        sink = Files(schema)

        def build(provider: StreamProvider, sink: Any = sink, as_columns: bool = as_columns) -> None:
            rows = provider.new_stream().source("rows", ArrowSource(table.to_batches(max_chunksize=size)))
            (rows if as_columns else rows.map("same", dict)).sink("out", sink, on_error="skip")

        handle = SingleThreadRuntime(build).start()
        handle.await_termination()
        found.append((sink.rows, handle.progress.operators["out"].skipped))
    assert found[0] == found[1]
    assert found[0][0] == [{"n": it} for it in numbers if -128 <= it <= 127]


class Files(ParquetSink[Any, Any, Any]):
    """Keeps the pieces of a sink of files."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__("memory://nowhere", schema=schema, delivery="at-least-once")
        self.rows: list[Any] = []

    def write_piece(self, piece: Any) -> None:
        self.rows += piece.to_pylist()


# Pieces


def test_records_for_the_driver_stay_columns() -> None:
    proxy = SinkProxy(0)
    before = rows_made()
    run(proxy)
    buffer = ChunkBuffer("out")
    buffer.add(proxy.take())
    vec: VecSink[Any, Any, Any] = VecSink()
    for chunk in buffer.take():
        batch = chunk.batch()
        vec.keep(batch.keys, batch.values, batch.timestamps)
    assert pa.Table.from_batches([it.batch for it in vec.frames()]).equals(TABLE)
    assert rows_made() == before


def test_columns_of_several_schemas_for_the_driver_stay_columns() -> None:
    ints, floats = pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": [0.5]})
    buffer = ChunkBuffer("out")
    before = rows_made()
    empty = Batch(None, (), (), [(0, 5)])
    buffer.add(Batch(None, Frame(it), range(len(it))) for it in (ints, ints, floats))
    buffer.add([empty, Batch(None, Frame(floats), [3], [(1, 6)]), Batch(None, [{"n": None}], [4])])
    found = [chunk.batch() for chunk in buffer.take()]
    assert [len(it) for it in found] == [4, 2, 1]
    assert [it.values.has_arrays for it in found[:2]] == [True, True]  # type: ignore[attr-defined] # they are frames
    assert rows_made() == before
    assert [[*it.epochs] for it in found] == [[], [(1, 5), (2, 6)], []]
    assert [row["n"] for it in found for row in it.values] == [1, 2, 1, 2, 0.5, 0.5, None]


def encoder(impl: Any) -> Any:
    return PieceEncoder(0, impl)


def test_pieces_of_columns(tmp_path: Path) -> None:
    sink = encoder(ParquetSink(tmp_path / "out", schema=pa.schema({"n": pa.int64()})))
    before = rows_made()
    for at in range(3):
        sink.keep(None, Frame(pa.record_batch({"n": [at, at]})), range(2))
    sink.keep(["a"], [{"n": 7}], [0])
    sink.keep(None, Frame(pa.record_batch({"n": pa.array([8], pa.int8())})), [0])
    sink.keep(None, Frame(pa.record_batch({"n": list(range(70_000))})), range(70_000))
    sink.flush()
    pieces = sink.take()
    assert [it.to_pydict()["n"][:6] for it in pieces] == [[0, 0, 1, 1, 2, 2], [7], [8], [0, 1, 2, 3, 4, 5]]
    assert rows_made() == before


class Pieces(ParquetSink[Any, Any, Any]):
    """A subclass that overrides the simpler method."""

    def encode(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> Any:
        return [type(keys), type(values), type(timestamps), len(values)]


def test_pieces_of_lists(tmp_path: Path) -> None:
    sink = encoder(Pieces(tmp_path / "out"))
    numbers = Column(pa.array([1, 2]))
    sink.keep(numbers, Frame(pa.record_batch({"n": [1, 2]})), numbers)
    sink.flush()
    assert sink.take() == [[list, list, list, 2]]


@given(st.integers(0, 999), st.integers(1, 50))
def test_stored_pieces_have_the_size_of_their_rows(start: int, rows: int) -> None:
    words = pa.array([f"{at * 7919 % 1000:04}" for at in range(100_000)])
    schema = pa.schema(
        [
            pa.field("n", pa.int64(), nullable=False, metadata={"a": "b"}),
            pa.field("word", pa.string()),
            pa.field("shared", pa.dictionary(pa.int16(), pa.string())),
            pa.field("nested", pa.struct({"of": pa.list_(pa.string())})),
        ]
    )
    lists = pa.StructArray.from_arrays([pa.ListArray.from_arrays(range(100_001), words)], names=["of"])
    whole = pa.record_batch(
        [pa.array(range(100_000)), words, words.dictionary_encode().cast(schema.types[2]), lists], schema=schema
    )
    piece = whole.slice(start * 50, rows)
    data = packed_pieces([piece, b"other"])
    assert len(data) <= 200 * rows + 3000
    again, other = pickle.loads(lz4.frame.decompress(data))
    assert (again.to_pylist(), again.schema, other) == (piece.to_pylist(), piece.schema, b"other")
    assert again.schema.field("n").metadata == {b"a": b"b"}

"""Frames are lists of rows, and columns lists of items, whatever is done with them: cut, joined, packed or read."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import OperatorError, SingleThreadRuntime, StreamProvider
from malflow.columns import Column, Frame
from malflow.columns.arrays import UnreadableItem
from malflow.columns.column import Constant, join_columns
from malflow.columns.row_classes import fields_of
from malflow.records.batch import Batch, concat, interleave
from malflow.records.columnar import rows_made
from malflow.records.rows import SomeFields, only_fields
from malflow.runtime.transport.chunks import ChunkBuffer
from malflow.sinks import VecSink
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from tests.columns.batches import batches, same, tables


@given(tables(), st.data())
def test_frames_are_lists_of_rows(table: pa.Table, data: Any) -> None:
    frame: Any = Frame(table.combine_chunks().to_batches()[0]) if len(table) else Frame(pa.record_batch({"a": [1]}))[:0]
    rows = table.to_pylist()
    acts = ["slice", "select", "take", "pickle", "read one", "iterate", "apart"]
    for act in data.draw(st.lists(st.sampled_from(acts), max_size=5)):
        size = len(rows)
        if act == "slice":
            part = data.draw(st.slices(size))
            frame, rows = frame[part], rows[part]
        elif act == "select" and isinstance(frame, Frame):
            mask = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
            form = data.draw(st.sampled_from([list, bytes]))
            frame, rows = frame.select(form(mask)), list(compress(rows, mask))
        elif act == "take" and isinstance(frame, Frame) and size > 1:
            at = data.draw(st.lists(st.integers(0, size - 1), min_size=2).map(sorted))
            frame, rows = frame.take(at), [rows[it] for it in at]
        elif act == "pickle":
            frame = pickle.loads(pickle.dumps(frame, 5))
        elif act == "read one" and size:
            at = data.draw(st.integers(-size, size - 1))
            assert same(_alone([frame[at]]), _alone([rows[at]]))
        elif act == "apart" and isinstance(frame, Frame):
            frame = frame.apart()
        elif act == "iterate":
            assert same(_alone(frame), _alone(rows))
        assert len(frame) == len(rows)
    assert same(_alone(frame), _alone(rows))


def _alone(rows: Any) -> Batch:
    return Batch(None, rows, range(len(rows)))


@given(batches(3), st.booleans())
def test_joined_batches_have_the_order_of_lists(pairs: list[tuple[Batch, Batch]], in_turn: bool) -> None:
    columns, lists = ([pair[at] for pair in pairs] for at in (0, 1))
    if in_turn:
        columns, lists = ([Batch(it.keys, it.values, it.timestamps) for it in them] for them in (columns, lists))
    join: Any = interleave if in_turn else concat
    found = join(columns)
    assert same(found, join(lists))


def test_joined_batches_stay_columns() -> None:
    def part(name: str, rows: int) -> Batch:
        return Batch(Constant(name, rows), Frame(pa.record_batch({"n": list(range(rows))})), range(rows))

    before = rows_made()
    for found in (interleave([part("a", 3), part("b", 5), part("c", 1)]), concat([part("a", 3), part("b", 5)])):
        assert isinstance(found.values, Frame)
        assert isinstance(found.keys, Column)
        assert isinstance(found.timestamps, Column)
        chosen = found.select([at % 2 for at in range(len(found))]).take([0, 1])
        assert isinstance(chosen.values, Frame)
    assert rows_made() == before


@given(batches())
def test_packed_batches_are_the_same(pairs: list[tuple[Batch, Batch]]) -> None:
    ((columns, lists),) = pairs
    buffer = ChunkBuffer("sender")
    buffer.add([columns])
    (chunk,) = buffer.take()
    assert same(chunk.batch(), lists)


@given(st.integers(0, 50), st.integers(0, 50))
def test_packed_slices_have_the_size_of_their_rows(start: int, rows: int) -> None:
    words = pa.array([f"word {at}" for at in range(100_000)])
    whole = Frame(pa.record_batch({"n": pa.array(range(100_000)), "word": words, "shared": words.dictionary_encode()}))
    part = whole[start * 100 : start * 100 + rows]
    buffer = ChunkBuffer("sender")
    buffer.add([Batch(part.column("shared"), part, part.column("n"))])
    (chunk,) = buffer.take()
    assert len(chunk.data) <= 2 * rows * 40 + 3000
    assert chunk.batch().values == part


class Town(NamedTuple):
    name: str
    people: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    people: int


@dataclass
class Counted:
    name: str
    people: int

    def __post_init__(self) -> None:
        self.people += 1


@pytest.mark.parametrize("row", [Town, Place, tuple, "people"])
def test_rows_of_classes(row: Any) -> None:
    names = fields_of(row, ["town", "people"])
    assert names is not None
    batch = pa.record_batch([pa.array(["Ulm", "Bonn"]), pa.array([1, 2])], names=names)
    frame = Frame(batch, row)
    expected = [1, 2] if row == "people" else [("Ulm", 1), ("Bonn", 2)]
    assert list(frame) == (expected if row in ("people", tuple) else [row(*it) for it in expected])  # type: ignore[misc]
    assert (Frame(batch, row).column("people") is None) == (row in ("people", tuple))


@pytest.mark.parametrize("row", [Counted, lambda name, people: (name, people), complex])
def test_rows_of_functions_are_made_by_the_source(row: Any) -> None:
    assert fields_of(row, ["name", "people"]) is None


def test_fields_alone() -> None:
    frame = Frame(pa.record_batch({"n": [1, 2], "word": ["a", "b"]}))
    part: Any = only_fields(frame, {"n": "n"})
    assert isinstance(part, Frame)
    assert list(part) == [{"n": 1}, {"n": 2}]
    assert type(part[0]) is SomeFields
    assert only_fields(frame, {"m": "m"}) is frame
    none: Any = only_fields(frame, {})
    assert (len(none), type(none), list(none)) == (2, Frame, [{}, {}])


def test_readers_of_one_frame_keep_the_columns() -> None:
    frame = Frame(pa.record_batch({"n": [1, 2]}))
    other = frame.apart()
    before = rows_made()
    assert [frame[0], frame[1]] == [{"n": 1}, {"n": 2}]  # single rows, as for an error
    assert rows_made() == before
    assert list(frame) == [{"n": 1}, {"n": 2}]
    assert rows_made() == before + 2
    assert frame.column("n") is None
    assert other.column("n") == [1, 2]


def test_item_that_python_cannot_hold() -> None:
    frame = Frame(pa.record_batch({"n": [1, 2], "at": pa.array([0, 2**62], pa.timestamp("us"))}))
    with pytest.raises(UnreadableItem, match=r"column 'at' .* row 1 of 2 .* out of range"):
        list(frame)


def test_two_columns_of_one_name() -> None:
    with pytest.raises(ValueError, match="two columns of one name: 'n'"):
        Frame(pa.record_batch([pa.array([1]), pa.array([2])], names=["n", "n"]))


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([range(2), range(5, 6)], Column),
        ([Constant("a", 1), Constant("a", 2)], Constant),
        ([Constant("a", 1), Constant("b", 2)], Column),
        ([Constant(1, 1), Constant(True, 2)], list),
        ([Constant(("a", 1), 1), Constant(("b", 2), 1)], list),
        ([Column(pa.array([1])), Column(pa.array([1.5]))], list),
        ([Column(pa.array(["a"])), Column(pa.array(["b", "a"]).dictionary_encode())], Column),
    ],
)
def test_joined_columns(parts: Any, kind: type) -> None:
    for in_turn in (False, True):
        found = join_columns(parts, in_turn=in_turn)
        assert type(found) is kind
        assert sorted(map(repr, found)) == sorted(repr(it) for part in parts for it in part)


def anything(data: Any) -> Any:
    return data


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Frame(anything(pa.table({"n": [1]}))),
            "a frame needs a pyarrow.RecordBatch; got an object of type Table",
        ),
        (lambda: Frame(anything({"n": [1]})), "got an object of type dict"),
        (
            lambda: Frame(pa.record_batch({"n": [1]}), row=5),
            "row= must be dict, tuple, the name of a column or a class",
        ),
        (lambda: Column(anything([1])), "or one of numpy with .*; got an object of type list"),
        (lambda: Column(np.zeros((2, 2))), "one of numpy with one dimension"),
    ],
)
def test_data_that_are_no_columns(make: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make()


@pytest.mark.parametrize("data", [pa.record_batch({"n": [1, 2]}), pa.table({"n": [1, 2]})])
def test_columns_that_a_source_returns_bare(data: Any) -> None:
    """Its items are columns, and not rows."""

    class Bare(StatefulSourceImpl[str, Any, int, None]):
        def list_parts(self) -> list[str]:
            return ["part"]

        def build_part(self, part: str, state: None) -> Any:
            return BarePart()

    class BarePart(StatefulSourcePartition[Any, int, None]):
        def poll(self) -> Any:
            raise NotImplementedError

        def poll_batch(self, limit: int) -> Any:
            return data, range(2)

        def is_finished(self) -> bool:
            return False

        def snapshot(self) -> None:
            return None

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("rows", StatefulSource(Bare())).sink("out", VecSink())

    words = f"poll_batch returned an object of type {type(data).__name__} as values; return a list, or malflow.columns"
    with pytest.raises(OperatorError, match=words):
        SingleThreadRuntime(build).execute()

"""Rows of CSV that other readers, and CsvSource, read as they were."""

from __future__ import annotations

import csv
import enum
import gzip
import io
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, NoKey, SingleThreadRuntime, StreamProvider
from malflow.connectors.lost_output import SinkFileError
from malflow.errors import MalflowError
from malflow.sinks import CsvSink, SinkOwner, UnwritableValue
from malflow.snapshot import FsspecBackend
from malflow.sources import CsvSource, SingleIteratorSource, StatefulSource
from malflow.testing import ScriptedSource, assert_exactly_once, assert_sink
from tests.kit.going_back import copied_folder


def send(sink: Any, *values: Any) -> None:
    sink.sink_batch([NoKey] * len(values), values, range(len(values)))


def written(path: Path, *records: Any, **options: Any) -> str:
    sink = CsvSink[Any, Any, Any](path, **options)
    send(sink, *records)
    sink.close()
    return path.read_bytes().decode()


def read_back(path: Any, **options: Any) -> list[Any]:
    reader = CsvSource(path, **options).build_part(str(path), None)
    values: list[Any] = []
    while not reader.is_finished():
        values += reader.poll_batch(3)[0]
    return values


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
whole_times = st.times().map(lambda it: it.replace(fold=0))
instants = st.datetimes(timezones=st.just(UTC)).map(lambda it: it.replace(fold=0))
hostile = texts | st.text(st.sampled_from(",;\t'\"\r\n \ufeffé\\"), max_size=4)


@given(
    st.lists(hostile.filter(str.strip), min_size=1, max_size=4, unique=True),
    st.lists(st.lists(hostile | st.none(), min_size=4, max_size=4), min_size=1, max_size=5),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(['"', "'"]),
)
def test_texts_come_back_by_two_readers(
    tmp_path_factory: pytest.TempPathFactory, fields: list[str], rows: list[list[Any]], delimiter: str, quotechar: str
) -> None:
    path = tmp_path_factory.mktemp("out") / "out.csv"
    records = [dict(zip(fields, row, strict=False)) for row in rows]
    text = written(path, *records, delimiter=delimiter, quotechar=quotechar)
    expected = [{name: value or "" for name, value in record.items()} for record in records]
    assert read_back(path, delimiter=delimiter, quotechar=quotechar) == expected
    found = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quotechar, strict=True)
    assert list(found) == expected


@given(st.floats(), st.integers(), st.decimals(), instants, st.dates(), whole_times)
@pytest.mark.slow
def test_values_of_types_come_back(
    tmp_path_factory: pytest.TempPathFactory, f: float, n: int, d: Decimal, at: datetime, day: date, hour: time
) -> None:
    path = tmp_path_factory.mktemp("out") / "out.csv"
    record = {"f": f, "n": n, "d": d, "at": at, "day": day, "hour": hour, "ok": n > 0, "id": UUID(int=7), "none": None}
    written(path, record)
    types: Any = {name: type(value) for name, value in record.items()} | {"none": int | None}
    [read] = read_back(path, types=types)
    assert repr(read) == repr(record)


def test_none_and_an_empty_text_are_told_apart(tmp_path: Path) -> None:
    assert written(tmp_path / "a.csv", {"a": None, "b": ""}) == 'a,b\n,""\n'
    assert written(tmp_path / "b.csv", {"a": None}, {"a": ""}) == 'a\n""\n""\n'


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Town:
    name: str
    level: Level


Place = namedtuple("Place", ["name", "level"])


def test_records_of_other_kinds(tmp_path: Path) -> None:
    rows = "name,level\nUlm,1\n"
    assert written(tmp_path / "a.csv", Town("Ulm", Level.LOW)) == rows
    assert written(tmp_path / "b.csv", Place("Ulm", np.int64(1))) == rows
    assert written(tmp_path / "c.csv", ["Ulm", True], fields=["name", "level"]) == "name,level\nUlm,true\n"
    assert written(tmp_path / "d.csv", ("Ulm", np.float32(0.1)), header=False) == "Ulm,0.10000000149011612\n"
    fine = "2024-02-29T00:00:00.000000001"
    assert written(tmp_path / "f.csv", [np.datetime64(fine), pd.Timestamp(fine)], header=False) == f"{fine},{fine}\n"
    assert written(tmp_path / "e.csv", {"level": 1, "name": "Ulm"}, fields=["name", "level"]) == rows


@pytest.mark.parametrize(
    ("record", "options", "problem"),
    [
        ({"a": 1}, {"fields": ["a", "b"]}, "it lacks 'b', or has it beyond"),
        ({"a": 1, "c": 2}, {"fields": ["a"]}, "it lacks 'c', or has it beyond"),
        ({1: 2}, {}, "the name of a field must be a text"),
        ({}, {}, "it has no fields"),
        ([1], {}, "its fields have no names; pass fields="),
        ([1, 2], {"fields": ["a"]}, "it has 2 values for 1 field"),
        (7, {}, "a row is a dict, a dataclass"),
        ({"a": b"x"}, {}, "CSV has no bytes"),
        ({"a": [1]}, {}, "CSV has no list"),
        ({"a": pd.NaT}, {}, "CSV has no NaTType"),
        ({"a": np.datetime64("NaT", "ns")}, {}, "CSV has no datetime64"),
        ({"a": np.timedelta64(1, "ns")}, {}, "CSV has no timedelta64"),
        ({"a": "x\0"}, {}, "it contains a NUL character"),
        ({"a": "\ud800"}, {}, "surrogates not allowed in utf-8"),
        ({"a": "1,2"}, {"quotechar": None}, "'1,2' needs quotes; pass quotechar"),
        ({"a": None}, {"quotechar": None}, "an empty line is not a row"),
    ],
)
def test_records_that_are_no_rows(record: Any, options: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UnwritableValue, match=problem):
        send(CsvSink[Any, Any, Any](tmp_path / "out.csv", **options), record)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fields": ["a", "a"]}, "CsvSink fields .*'a'"),
        ({"delimiter": '"'}, "CsvSink cannot write with delimiter"),
        ({"header": 1}, "header"),
    ],
)
def test_options_that_are_refused(options: Any, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        CsvSink("out.csv", **options)


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz"])
def test_a_file_that_is_appended_to_keeps_its_one_header(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for number in (1, 2):
        sink = CsvSink[Any, Any, Any](path, append=True)
        send(sink, {"n": number, "m": 0})
        send(sink, {"m": 1, "n": number})
        sink.close()
    text = path.read_bytes()
    assert (gzip.decompress(text) if name.endswith("gz") else text) == b"n,m\n1,0\n1,1\n2,0\n2,1\n"
    other = CsvSink[Any, Any, Any](path, append=True)
    with pytest.raises(SinkFileError, match=r"the rows have the header b'm,n.n'; pass fields="):
        send(other, {"m": 1, "n": 3})
    other.close()


def test_a_resumed_run_writes_no_second_header(tmp_path: Path) -> None:
    backend = FsspecBackend(str(tmp_path / "kept"))
    for size in (0, 2, 4):

        def build(provider: StreamProvider, size: int = size) -> None:
            numbers = provider.new_stream().source("numbers", StatefulSource(ScriptedSource(list(range(size)))))
            numbers.map("row", lambda n: {"n": n}).sink("out", CsvSink(tmp_path / "out.csv"))

        SingleThreadRuntime(build, backend).execute()
    assert (tmp_path / "out.csv").read_text() == "n\n0\n1\n2\n3\n"


def test_each_file_of_a_folder_has_a_header(tmp_path: Path) -> None:
    sink: Any = CsvSink[Any, Any, Any](f"{tmp_path}/out/", suffix=".csv.gz")
    sink.fence(SinkOwner("job", "out", 1))
    for transaction in (1, 2):
        send(sink, {"n": transaction})
        send(sink, {"n": transaction})
        sink.commit([sink.prepare(transaction)])
    files = sorted((tmp_path / "out").glob("part-*"))
    assert [gzip.decompress(file.read_bytes()) for file in files] == [b"n\n1\n1\n", b"n\n2\n2\n"]
    writer = sink.open_writer.__self__
    send(sink, {"n": 3})
    with pytest.raises(MalflowError, match="below the header"):
        writer.write_headed(type(sink.encode([0], [{"n": 3}], [0]))(b"m\n", b"3\n"))
    sink.close()


@pytest.mark.slow
@pytest.mark.nightly
def test_laws_of_rows_in_a_folder(tmp_path: Path) -> None:
    def rows() -> list[Any]:
        files = sorted((tmp_path / "out").glob("part-*"))
        return [int(row["n"]) for file in files for row in csv.DictReader(io.StringIO(file.read_text()))]

    assert_sink(
        lambda: CsvSink(f"{tmp_path}/out/", formatter=lambda msg: {"n": msg.value}),
        rows,
        copy_output=lambda: copied_folder(tmp_path / "out"),
        make_value=lambda number: number,
    )


@pytest.mark.slow
def test_a_dataflow_with_such_a_sink_is_exactly_once(tmp_path: Path) -> None:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource([1, 2, 3]))
        sums = numbers.key_distribute("key", lambda msg: msg.value % 2).stateful_map(
            "sum", lambda _key, value, total: ({"n": total + value}, total + value), int
        )
        sums.sink("out", CsvSink(tmp_path / "out.csv"))

    assert_exactly_once(build, [1, 2, 3, 4], max_examples=10)

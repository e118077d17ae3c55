"""Parquet files as a source: values, positions, changed files, odd files."""

from __future__ import annotations

import datetime as dt
import math
import os
import pickle
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime
from malflow.connectors.parquet import ArrowSource, ParquetSource
from malflow.connectors.parquet.arrow_source import ArrowSourceError
from malflow.errors import GraphError, OperatorError
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import InputFileError


def write(folder: Path, name: str = "t.parquet", rows: int = 100, group: int = 30, **columns: Any) -> str:
    data = columns or {"n": list(range(rows)), "town": [f"town {n % 7}" for n in range(rows)]}
    pq.write_table(pa.table(data), folder / name, row_group_size=group)
    return str(folder / name)


def read(source: ParquetSource, part: str, state: Any = None, limit: int = 1_000) -> list[tuple[Any, Any]]:
    partition, found = source.build_part(part, state), []
    while not partition.is_finished():
        found += zip(*partition.poll_batch(limit), strict=True)
    partition.suspend()
    return found


def values(path: str, **options: Any) -> list[Any]:
    return [value for value, _ in read(ParquetSource(path, **options), path)]


class Town(NamedTuple):
    n: int
    town: str


@dataclass
class Place:
    town: str


def test_record_as_dict_tuple_class_or_column(tmp_path: Path) -> None:
    path = write(tmp_path, rows=2)
    assert values(path) == [{"n": 0, "town": "town 0"}, {"n": 1, "town": "town 1"}]
    assert values(path, columns=["town", "n"], row=tuple) == [("town 0", 0), ("town 1", 1)]
    assert values(path, row=Town)[1] == Town(1, "town 1")
    assert values(path, columns=["town"], row=Place) == [Place("town 0"), Place("town 1")]
    assert values(path, row="town") == ["town 0", "town 1"]


def test_dicts_of_odd_column_names(tmp_path: Path) -> None:
    names = ["a.b", 'quo"te', "line\nbreak", "{x}", "", "import", "Köln"]
    path = write(tmp_path, **{name: [index] for index, name in enumerate(names)})
    assert values(path) == [{name: index for index, name in enumerate(names)}]
    assert values(path, columns=["a.b"]) == [{"a.b": 0}]


def test_timestamps_by_index_column_or_function(tmp_path: Path) -> None:
    path = write(tmp_path, n=[5, 6], at=[dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 2)
    assert [at for _, at in read(ParquetSource(path), path)] == [0, 1]
    assert read(ParquetSource(path, row="n", timestamp="at"), path)[0] == (5, dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    assert read(ParquetSource(path, row="n", timestamp=lambda n: 10 * n), path) == [(5, 50), (6, 60)]


def test_null_timestamp_named_with_its_row(tmp_path: Path) -> None:
    path = write(tmp_path, n=[1, 2, 3], at=[1, None, 3])
    with pytest.raises(InputFileError, match=r"t.parquet' has no timestamp in row 1: column 'at' is null"):
        values(path, timestamp="at")
    assert values(path, row="n", timestamp="at", filter=pc.field("at").is_valid()) == [1, 3]


schedules = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@given(schedule=schedules, group=st.integers(1, 50), filtered=st.booleans())
@pytest.mark.slow
def test_reading_with_stops_anywhere(tmp_path_factory: Any, schedule: list[int], group: int, filtered: bool) -> None:
    folder = tmp_path_factory.mktemp("stops")
    path = write(folder, rows=100, group=group)
    condition = pc.field("town") == "town 3" if filtered else None
    source = ParquetSource(path, row="n", filter=condition)
    expected = [n for n in range(100) if not filtered or n % 7 == 3]
    state: Any = None
    found: list[tuple[int, int]] = []
    for limit in schedule:
        partition = source.build_part(path, pickle.loads(pickle.dumps(state)))
        found += zip(*partition.poll_batch(limit), strict=True)
        state = partition.snapshot()
        partition.suspend()
    found += read(source, path, state)
    assert found == [(n, n) for n in expected]


def test_reader_that_goes_on_from_another_position(tmp_path: Path) -> None:
    path = write(tmp_path, rows=100, group=30)
    source = ParquetSource(path, row="n")
    first, second = source.build_part(path, None), source.build_part(path, None)
    first.poll_batch(10)
    for _ in range(5):
        second.poll_batch(9)
    assert first.go_on_from(second.snapshot())
    assert first.poll_batch(1)[0] == second.poll_batch(1)[0]
    write(tmp_path, rows=90, group=30)
    third = source.build_part(path, None)
    third.poll_batch(1)
    assert not first.go_on_from(third.snapshot())
    for partition in (first, second, third):
        partition.suspend()


def test_filter_skips_row_groups_by_their_statistics(tmp_path: Path) -> None:
    path = write(tmp_path, rows=1_000, group=100)
    source = ParquetSource(path, columns=["town"], filter=[("n", ">=", 950)])
    partition = source.build_part(path, None)
    assert len(partition.poll_batch(1_000)[0]) == 50
    assert partition.snapshot()[:2] == (10, 0)
    assert partition._groups == frozenset({9})
    partition.suspend()
    assert values(path, filter=pc.field("n") > 5_000) == []
    with pytest.raises(InputFileError, match=r"does not fit filter="):
        values(path, filter=pc.field("gone") > 5)
    with pytest.raises(GraphError, match=r"filter must be an expression"):
        ParquetSource(path, filter="n > 3")


def test_hostile_values(tmp_path: Path) -> None:
    berlin = pa.timestamp("us", "Europe/Berlin")
    columns = {
        "null": pa.nulls(2),
        "huge": pa.array([2**64 - 1, 0], pa.uint64()),
        "nan": [math.nan, None],
        "inf": [math.inf, -math.inf],
        "money": pa.array([Decimal("12345678901234567890.123456789"), None], pa.decimal128(38, 9)),
        "zone": pa.array([0, None], berlin),
        "day": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
        "nested": [{"a": [1, None], "b": {"c": "x"}}, None],
        "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        "bytes": [b"\x00\xff", b""],
        "text": ["\x00é😀", ""],
        "coded": pa.array(["x", None]).dictionary_encode(),
    }
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table(columns), path)
    first, second = values(path)
    assert math.isnan(first.pop("nan"))
    assert first.pop("zone") == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert first == {
        "null": None,
        "huge": 2**64 - 1,
        "inf": math.inf,
        "money": Decimal("12345678901234567890.123456789"),
        "day": dt.date(1, 1, 1),
        "nested": {"a": [1, None], "b": {"c": "x"}},
        "map": [("k", 1)],
        "bytes": b"\x00\xff",
        "text": "\x00é😀",
        "coded": "x",
    }
    assert {name for name, value in second.items() if value is None} >= {"nan", "money", "zone", "nested", "coded"}


NANOS = pa.timestamp("ns")
AT = dt.datetime(1970, 1, 1, microsecond=1)


def test_nanoseconds_that_python_cannot_hold(tmp_path: Path) -> None:
    deep = pa.array([[{"at": 1_001}], []], pa.list_(pa.struct([("at", pa.timestamp("ns", "UTC"))])))
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"at": pa.array([1_000, 2_000], pa.timestamp("ns")), "deep": deep}), path)
    assert type(values(path, row="at")[0]) is dt.datetime
    assert values(path, row="at")[1] == dt.datetime(1970, 1, 1, microsecond=2)
    with pytest.raises(InputFileError, match=r"column 'deep' with a fraction of a microsecond.*nanoseconds='truncate'"):
        values(path)
    whole = values(path, nanoseconds="truncate")[0]
    assert whole["deep"] == [{"at": dt.datetime(1970, 1, 1, microsecond=1, tzinfo=dt.UTC)}]


@pytest.mark.parametrize(
    ("kind", "good", "python", "bad"),
    [
        (pa.map_(pa.string(), NANOS), [[("k", 1_000)], None], [[("k", AT)], None], [("k", 2_001)]),
        (pa.map_(NANOS, pa.int8()), [[(1_000, 1)], []], [[(AT, 1)], []], [(1, 1)]),
        (pa.list_(NANOS, 2), [[1_000, None], None], [[AT, None], None], [0, 1]),
        (pa.list_(pa.list_(pa.duration("ns"))), [[[1_000]], []], [[[dt.timedelta(microseconds=1)]], []], [[1]]),
        (pa.dictionary(pa.int8(), NANOS), [1_000, None], [AT, None], 1),
    ],
)
def test_nanoseconds_inside_other_values(tmp_path: Path, kind: pa.DataType, good: Any, python: Any, bad: Any) -> None:
    for rows, refused in ((good, False), ([*good, bad], True)):
        coded = pa.types.is_dictionary(kind)
        column = pa.array(rows, NANOS).dictionary_encode() if coded else pa.array(rows, kind)
        pq.write_table(pa.table({"at": column}), tmp_path / "t.parquet")
        sources: Any = [
            ParquetSource(tmp_path / "t.parquet", row="at"),
            ArrowSource(pa.table({"at": column}), row="at"),
        ]
        for source in sources:
            reader = source.build_part(source.list_parts()[0], None)
            if refused:
                with pytest.raises((InputFileError, ArrowSourceError), match=r"a fraction of a microsecond"):
                    reader.poll_batch(3)
                continue
            got = [reader.poll()[0], reader.poll()[0]]
            assert got == python
            assert "Time" not in repr(got)  # as in the names of the types of pandas
            reader.suspend()


def test_staged_files_of_a_sink_that_a_glob_matches(tmp_path: Path) -> None:
    staged = tmp_path / "out" / ".malflow" / "job-out" / "staged"
    staged.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), tmp_path / "out" / "part-1.parquet")
    pq.write_table(pa.table({"n": [2]}), staged / "part-2.parquet.part")
    assert ParquetSource(tmp_path / "out" / "**" / "part-*").list_parts() == [str(tmp_path / "out" / "part-1.parquet")]
    assert ParquetSource(staged / "part-*").list_parts() == [str(staged / "part-2.parquet.part")]


def test_value_that_python_cannot_hold(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"n": [1], "at": pa.array([2**62], pa.timestamp("us"))}), path)
    with pytest.raises(InputFileError, match=r"t.parquet' has a value in column 'at' \(timestamp\[us\]\) that Python"):
        values(path)
    assert values(path, columns=["n"]) == [{"n": 1}]


def test_missing_and_doubled_columns(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(InputFileError, match=r"t.parquet' has no column 'twon'; did you mean 'town'"):
        values(path, columns=["twon"])
    double = str(tmp_path / "double.parquet")
    pq.write_table(pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"]), double)
    with pytest.raises(InputFileError, match=r"has 2 columns named 'a'"):
        values(double)
    assert values(double, row="b") == [3]


def test_empty_files_and_row_groups(tmp_path: Path) -> None:
    path = write(tmp_path, n=pa.array([], pa.int64()))
    assert values(path) == []
    schema = pa.schema([("n", pa.int64())])
    with pq.ParquetWriter(tmp_path / "groups.parquet", schema) as writer:
        for rows in ([], [1], [], [2, 3], []):
            writer.write_table(pa.table({"n": pa.array(rows, pa.int64())}))
    assert read(ParquetSource(tmp_path / "groups.parquet", row="n"), str(tmp_path / "groups.parquet")) == [
        (1, 0),
        (2, 1),
        (3, 2),
    ]
    pq.write_table(pa.table({"n": [1, 2]}).select([]), tmp_path / "bare.parquet")
    assert values(str(tmp_path / "bare.parquet")) in ([], [{}, {}])


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not a parquet file at all, but long enough", b"PAR1" * 20])
def test_file_that_is_no_parquet_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(content)
    with pytest.raises(InputFileError, match=r"t.parquet' cannot be read as Parquet"):
        values(str(path))


def test_damaged_row_group(tmp_path: Path) -> None:
    path = Path(write(tmp_path, rows=10_000, group=5_000))
    data = bytearray(path.read_bytes())
    data[10:2_000] = os.urandom(1_990)
    path.write_bytes(data)
    with pytest.raises(InputFileError, match=r"t.parquet' is damaged in row group 0"):
        values(str(path))


def test_file_that_changed_before_a_resume(tmp_path: Path) -> None:
    path = write(tmp_path, rows=100, group=30)
    source = ParquetSource(path, row="n")
    partition = source.build_part(path, None)
    partition.poll_batch(40)
    state = partition.snapshot()
    partition.suspend()
    write(tmp_path, rows=120, group=30)
    with pytest.raises(InputFileError, match=r"was changed since it was read: it had \d+ bytes"):
        read(source, path, state)
    restarted = ParquetSource(path, row="n", on_replaced="restart")
    assert [value for value, _ in read(restarted, path, state)] == list(range(120))


def test_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, rows=100, group=30)
    partition = ParquetSource(path, row="n").build_part(path, None)
    partition.poll_batch(30)
    write(tmp_path, rows=100, group=30)
    with pytest.raises(InputFileError, match=r"was changed while it was read"):
        partition.poll_batch(30)


def test_finished_file_that_was_removed_or_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, rows=10)
    source = ParquetSource(path, row="n")
    partition = source.build_part(path, None)
    while not partition.is_finished():
        partition.poll_batch(100)
    end = partition.snapshot()
    assert read(source, path, end) == []
    write(tmp_path, rows=11)
    with pytest.raises(InputFileError, match=r"was changed since it was read"):
        read(source, path, end)
    Path(path).unlink()
    assert source.build_part(path, end).is_finished()
    assert not source.build_part(path, None).is_finished()


@pytest.mark.slow
def test_large_rows_in_small_batches(tmp_path: Path) -> None:
    path = write(tmp_path, group=100, n=list(range(100)), blob=[os.urandom(1 << 20)] * 100)
    partition = ParquetSource(path).build_part(path, None)
    sizes = []
    while not partition.is_finished():
        sizes.append(len(partition.poll_batch(1_000)[0]))
    assert sum(sizes) == 100


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"does not exist"):
        ParquetSource(tmp_path / "gone.parquet").list_parts()
    with pytest.raises(InputFileError, match=r"gone.parquet' does not exist"):
        values(str(tmp_path / "gone.parquet"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "n"}, "columns must be a list of names; got .*; write \\['n'\\]"),
        ({"columns": []}, "columns must have one column or more"),
        ({"columns": ["n", "n"]}, "columns must be .*'n' more than once in"),
        ({"columns": ["n"], "row": "town"}, "row is the column 'town', which is not in columns"),
        ({"row": 3}, "row must be the name of a column or a plain function; got 3"),
        ({"timestamp": 3}, "timestamp must be the name of a column or a plain function; got 3"),
        ({"nanoseconds": "no"}, "nanoseconds must be 'fail' or 'truncate'; got 'no'"),
        ({"on_replaced": "no"}, "on_replaced must be 'fail' or 'restart'; got 'no'"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        ParquetSource("x.parquet", **options)


def test_dataflow_that_is_stopped_and_resumed(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path, f"{name}.parquet", rows=2_000, group=170)
    found: VecSink[Any, Any, Any] = VecSink()
    failing = {"at": 2_500}

    def fail(value: int) -> int:
        failing["at"] -= 1
        if failing["at"] == 0:
            raise RuntimeError("crash")
        return value

    def build(provider: Any) -> None:
        source = ParquetSource(tmp_path / "*.parquet", row="n")
        stream = provider.new_stream().source("rows", source).map("fail", fail).key_distribute("one", lambda _: 0)
        stream.stateful_map("sum", lambda _, value, total: (total + value, total + value), int).sink("out", found)

    jobs = FsspecBackend(str(tmp_path / "jobs"))
    first = SingleThreadRuntime(build, jobs, dt.timedelta(milliseconds=1), parallelism=2)
    with pytest.raises(OperatorError):
        first.execute()
    SingleThreadRuntime(build, jobs, parallelism=3).execute()
    assert max(found.values) == 3 * sum(range(2_000))

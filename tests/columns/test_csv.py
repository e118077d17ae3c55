"""Rows of CSV as columns: many together are as each is alone, whatever the text is."""

from __future__ import annotations

import csv
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malflow import GraphError, SingleThreadRuntime
from malflow.columns import Frame
from malflow.connectors.files.csv_source import _CsvColumnsParser
from malflow.connectors.files.lines import LineBuffer
from malflow.connectors.files.parser import BadRecord
from malflow.records.columnar import rows_made
from malflow.sinks import VecSink
from malflow.sources import CsvSource
from tests.columns.test_json import read

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("f", pa.float64())])


class Singly(_CsvColumnsParser):
    """The oracle: rows are split by the `csv` module, and converted alone."""

    buffer = LineBuffer
    singly = None

    def parse(self, lines: LineBuffer, limit: int) -> None:
        del lines, limit


class OneByOne(CsvSource):
    def _new_parser(self, more: Any) -> Any:
        return Singly(self._dialect, self._fields, self._header, more, self._columns)


LINES = st.lists(
    st.sampled_from(
        [b"1,a,1.5", b"2,b,", b",,", b"3, c ,nan", b"4,\xc3\xa4,inf", b"", b"5,d,1e3\r", b'6,"e",1', b'7,"e,\n""f",2']
    )
    | st.sampled_from(
        [b"x,a,1", b"1.5,a,1", b"1,a", b"1,a,1,1", b'1,"a', b'1,"a"b,1', b'1,a"b,1', b"1,\xff,1", b"\0", b"\r", b" "]
    )
    | st.sampled_from(
        [b"1,a\rb,1", b"9223372036854775808,a,1", b"1,a,1e400", b"\xef\xbb\xbf8,a,1", b"'1',a,1", b"-0,a,-0.0"]
    ),
    max_size=20,
)


@pytest.mark.filterwarnings("ignore")
@given(
    LINES,
    st.booleans(),
    st.booleans(),
    st.integers(1, 9),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from(['"', None, "'"]),
)
@example([b"1,a,1\r2,b,1"], False, True, 1, 60, False, '"')
@example([b"1,a,1", b"\xef\xbb\xbf8,a,1"], False, True, 1, 60, False, '"')
def test_rows_are_read_as_one_by_one(
    lines: list[bytes], header: bool, ends: bool, limit: int, chunk: int, restarts: bool, quote: Any
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr("malflow.connectors.files.lines.CHUNK", chunk)
        path = Path(folder, "rows.csv")
        path.write_bytes(b"\n".join([b"n,s,f"] * header + lines) + b"\n" * ends)
        options: Any = {"schema": SCHEMA, "on_error": "dead_letter", "quotechar": quote}
        options["fields"] = None if header else ["n", "s", "f"]
        expected = read(OneByOne(path, **options), str(path), limit, False)
        found = read(CsvSource(path, **options), str(path), limit, restarts)
    assert (found[0], found[2]) == (expected[0], expected[2])
    assert found[3] == expected[3]
    same = found[1].keys() & expected[1].keys()
    assert [found[1][at] for at in same] == [expected[1][at] for at in same]


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1), st.text(st.characters(codec="utf-8")), st.none() | st.floats()
        ),
        max_size=9,
    ),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_rows_that_were_written_are_read(rows: list[Any], quoting: Any) -> None:
    rows = [(n, text.replace("\0", "").replace("\r", ""), f) for n, text, f in rows]
    text = StringIO()
    csv.writer(text, quoting=quoting, lineterminator="\n").writerows([["n", "s", "f"], *rows])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        path.write_text(text.getvalue(), encoding="utf-8", newline="")
        records, *_ = read(CsvSource(path, schema=SCHEMA), str(path), 4, False)
    assert [record for record, _ in records] == [repr(dict(zip(SCHEMA.names, row, strict=True))) for row in rows]


@pytest.mark.parametrize("quoted", [False, True])
def test_rows_to_memory_stay_columns(tmp_path: Path, quoted: bool) -> None:
    path = tmp_path / "a.csv"
    mark = '"' * quoted
    path.write_text("other,s,n,f\n" + "".join(f"x,{mark}a{at}{mark},{at},0.5\n" for at in range(20_000)))
    vec: VecSink[Any, Any, Any] = VecSink()
    before = rows_made()
    source = CsvSource(path, schema=SCHEMA)
    SingleThreadRuntime(lambda provider: provider.new_stream().source("rows", source).sink("out", vec)).execute()
    assert [n for frame in vec.frames() for n in frame.column("n") or ()] == list(range(20_000))
    assert rows_made() == before
    assert vec.values[-1] == {"n": 19_999, "s": "a19999", "f": 0.5}


def test_columns_around_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n\n" + "".join(f"{at}\n" if at % 1000 != 500 else "x\n" for at in range(4000)))
    source = CsvSource(path, schema=pa.schema({"n": pa.int64()}), on_error="skip")
    reader = source.build_part(source.list_parts()[0], None)
    found = 0
    while not reader.is_finished():
        values, _ = reader.poll_batch(4096)
        found += len(values) if isinstance(values, Frame) else 0
    assert (found, source.skipped) == (3996, {f"{path}": 4})


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("x,a,1", "line 2: it does not fit the schema: .*int64: invalid value 'x'"),
        ("1,a", "line 2: 2 fields, expected 3"),
        ("1,a,1e400", "line 2: field 'f' is too large: '1e400'"),
        ('1,"a,1', "line 2: a quote is opened and not closed"),
    ],
)
def test_bad_rows(row: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"n,s,f\n{row}\n")
    source = CsvSource(tmp_path / "a.csv", schema=SCHEMA)
    with pytest.raises(BadRecord, match=problem):
        source.build_part(source.list_parts()[0], None).poll_batch(10)


def test_fields_that_a_file_lacks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,t\n1,2\n")
    source = CsvSource(tmp_path / "a.csv", schema=SCHEMA)
    with pytest.raises(BadRecord, match="no field 's', which is in schema; the fields are n, t"):
        source.build_part(source.list_parts()[0], None).poll_batch(10)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"schema": {"n": int}}, "must be a pyarrow.Schema; got"),
        ({"schema": pa.schema([])}, "must have fields"),
        ({"schema": pa.schema({"l": pa.list_(pa.int8())})}, "can't read CSV with this schema"),
        ({"schema": pa.schema({"t": pa.timestamp("ns")})}, "pass the unit 'us'"),
        ({"schema": SCHEMA, "types": {"n": int}}, "takes schema= without types="),
        ({"schema": SCHEMA, "partitions": True}, "takes schema= without types= and partitions="),
        ({"schema": SCHEMA, "header": False}, r"there is no field name; pass fields"),
        ({"schema": SCHEMA, "fields": ["n"]}, None),
    ],
)
def test_options(options: Any, problem: str | None) -> None:
    if problem is None:
        options, problem = {**options, "header": False}, "no field 's', which is in schema"
    with pytest.raises(GraphError, match=problem):
        CsvSource("x.csv", **options)


def test_fields_that_nobody_reads_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('n,s,f\n1,a,x\n2,"b",y\n')
    source = CsvSource(tmp_path / "a.csv", schema=SCHEMA).reading(frozenset({"n"}))
    (values, _) = source.build_part(source.list_parts()[0], None).poll_batch(5)
    assert [f"{row}" for row in values] == ["{'n': 1, ...}", "{'n': 2, ...}"]

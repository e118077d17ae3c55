"""JSON as columns: a parse of many records gives what a parse of each gives, whatever the bytes are."""

from __future__ import annotations

import json
import math
import pickle
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malflow import DataMessage, GraphError, SingleThreadRuntime, StreamProvider, agg
from malflow.columns import Frame
from malflow.connectors.codecs import JsonColumns
from malflow.connectors.files.json_source import _ColumnsParser
from malflow.connectors.files.lines import LineBuffer
from malflow.connectors.files.parser import BadRecord
from malflow.records.columnar import rows_made
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.sources import JsonLinesSource

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("small", pa.int8()),
        pa.field("f", pa.float64()),
        pa.field("s", pa.string()),
        pa.field("b", pa.bool_()),
        pa.field("l", pa.list_(pa.int64())),
        pa.field("o", pa.struct([("x", pa.int64())])),
    ]
)
DECODER = JsonColumns(SCHEMA)

_ANY = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3)
_FITTING = {
    "n": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(-128, 127),
    "f": st.floats() | st.integers(-(2**60), 2**60),
    "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    "b": st.booleans(),
    "l": st.lists(st.none() | st.integers(-9, 9), max_size=3),
    "o": st.fixed_dictionaries({"x": st.integers(-9, 9)}, optional={"y": _ANY}),
}
_OBJECTS = st.fixed_dictionaries({}, optional={**{k: v | st.none() for k, v in _FITTING.items()}, "more": _ANY})
_INDENTS = st.sampled_from([None, None, 1])
_GOOD = st.builds(
    lambda it, indent, escaped: json.dumps(it, indent=indent, ensure_ascii=escaped).encode("utf-8", "replace"),
    _OBJECTS,
    _INDENTS,
    st.booleans(),
)
_WRONG = st.builds(lambda name, value: json.dumps({name: value}).encode(), st.sampled_from(SCHEMA.names), _ANY)
_PARTS = [
    *(b'{"n":1}', b'{"n":1', b',"s":"a"}', b"null", b"{}", b"[1]", b"5", b" ", b"\n", b"\r", b"\0", b"}", b"{", b'"'),
    *(b"\xff", b"\xef\xbb\xbf", b'{"s":"\xc3\xa4"}', b'{"s":"\\ud800"}', b'{"n":1,"n":2}', b"/**/", b'{"s":"a\nb"}'),
    *(b'{"f":1e400}', b'{"f":NaN}', b'{"n":1.0}', b'{"n":01}', b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}"),
]
_PIECES = st.lists(st.sampled_from(_PARTS), max_size=3).map(b"".join)
RAWS = st.lists(_GOOD | _GOOD | _WRONG | _PIECES, min_size=1, max_size=6)


def outcome(raw: bytes) -> Any:
    try:
        return DECODER.decode(raw)
    except ValueError as error:
        return error


def bits(value: Any) -> str:
    return repr(value)


@given(RAWS)
@example([b'{"n":1}{"n":2}', b" "])
@example([b'{"n":1', b',"s":"a"}', b'{"n":1}{"n":2}'])
@example([b'{"o":{"x":1}', b',"n":1}', b'{"n":1}{"n":2}'])
@example([b"null"])
@example([b"{}", b"null"])
@example([b'{"s":"\xff"}', b"{}"])
def test_a_parse_of_many_is_that_of_each(raws: list[bytes]) -> None:
    each = list(map(outcome, raws))
    if any(isinstance(it, ValueError) for it in each):
        with pytest.raises(ValueError):  # noqa: PT011 - the connector looks for the record, and has its error
            DECODER.decode_column(raws)
        return
    found = DECODER.decode_column(raws)
    assert isinstance(found, Frame)
    assert found.batch is not None
    found.batch.validate(full=True)
    assert bits(list(found)) == bits(each)


@given(_OBJECTS)
def test_records_are_those_of_json(given: dict[str, Any]) -> None:
    expected = {name: given.get(name) for name in SCHEMA.names}
    expected["o"] = expected["o"] and {"x": expected["o"].get("x")}
    if isinstance(expected["f"], int):
        expected["f"] = float(expected["f"])
    assert bits(DECODER.decode(json.dumps(given).encode())) == bits(expected)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b'{"n": 9223372036854775808}', "int64, couldn't parse:9223372036854775808"),
        (b'{"small": 128}', "int8, couldn't parse:128"),
        (b'{"n": 1.0}', "int64, couldn't parse:1.0"),
        (b'{"s": 1}', "from string to number"),
        (b'{"n": "1"}', "from number to string"),
        (b'{"n": 1, "n": 2}', "specified twice"),
        (b'{"n": 1} {"n": 2}', "it has 2 JSON objects instead of 1"),
        (b"null", "it is not a JSON object"),
        (b"", "it is not a JSON object"),
        (b'\xef\xbb\xbf{"n": 1}', "it is not a JSON object"),
        (b'{"s": "\xff"}', "can't decode byte 0xff"),
        (b'{"other": "\xff"}', "can't decode byte 0xff"),
        (b'{"s": "a\nb"}', "Invalid encoding in string"),
        (b'{"n": 1}\0{"n": 2}', "document is empty"),
    ],
)
def test_bad_records(raw: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        DECODER.decode(raw)


def test_times_and_required_fields() -> None:
    decoder = JsonColumns(
        pa.schema([pa.field("at", pa.timestamp("us"), nullable=False), ("price", pa.decimal128(9, 2))])
    )
    again = pickle.loads(pickle.dumps(decoder))
    assert again.decode(b'{"at": "2026-01-02T03:04:05.000006", "price": 1.5}')["at"] == datetime(2026, 1, 2, 3, 4, 5, 6)
    for bad in (b'{"price": 1.5}', b'{"at": null}', b'{"at": 5}', b'{"at": "0000-01-01"}'):
        with pytest.raises(ValueError):  # noqa: PT011 - each has its reason
            again.decode(bad)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"n": "int"}, "must be a pyarrow.Schema; got"),
        (pa.schema([]), "must have fields"),
        (pa.schema([("n", pa.int8()), ("n", pa.int8())]), "with a name of its own"),
        (pa.schema({"at": pa.timestamp("ns")}), r"can't have 'at' as timestamp\[ns\]; pass the unit 'us'"),
        (pa.schema({"s": pa.dictionary(pa.int8(), pa.string())}), "pass string, which"),
        (pa.schema({"m": pa.map_(pa.string(), pa.int8())}), "can't read JSON as map"),
    ],
)
def test_schemas_that_json_lacks(schema: Any, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        JsonColumns(schema)


def test_many_records_are_parsed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    raws = [b'{"n": %d}' % at for at in range(70_000)]
    assert DECODER.decode_column(raws).column("n") == list(range(70_000))  # type: ignore[attr-defined] # a frame
    monkeypatch.setattr("malflow.connectors.codecs.json_columns._BYTES", 25)
    assert list(DECODER.decode_column(raws[:9])) == list(map(DECODER.decode, raws[:9]))


# Files


class Singly(_ColumnsParser):
    """The oracle: lines are text, and each is parsed alone."""

    buffer = LineBuffer
    singly = None

    def parse(self, lines: LineBuffer, limit: int) -> None:
        del lines, limit


class OneByOne(JsonLinesSource):
    def _new_parser(self, more: Any) -> Any:
        return Singly(self._columns)


LINES = st.lists(
    st.sampled_from([b'{"n": 1}', b'{"n": 2}', b'{"s": "\xc3\xa4"}', b'{"n": 3, "s": "b"}', b'{"n": 4}\r', b"", b" "])
    | st.sampled_from(
        [b'{"n": 1.5}', b"null", b'{"n":1}{"n":2}', b'{"s":"\xff"}', b'{"n":1', b',"n":1}', b"\0", b"\r"]
    ),
    max_size=30,
)


def read(source: Any, path: str, limit: int, restarts: bool) -> Any:
    """Return the records, positions, rejected records and counts of a file."""
    part, position = source.list_parts()[0], None
    reader = source.build_part(part, None)
    records: list[Any] = []
    positions: dict[int, Any] = {}
    rejected: list[Any] = []
    while not reader.is_finished():
        values, timestamps = reader.poll_batch(limit)
        records += zip(map(bits, values), timestamps, strict=True)
        rejected += [(it.value, it.timestamp, it.place, it.reason) for it in reader.take_rejected()]
        position = reader.snapshot()
        positions[position.at.offset] = position
        if restarts and not reader.is_finished():
            reader.suspend()
            reader = source.build_part(part, position)
    return records, positions, rejected, source.skipped


@given(
    LINES, st.booleans(), st.integers(1, 9), st.integers(1, 40), st.booleans(), st.sampled_from(["utf-8", "latin-1"])
)
@example([b'{"n": 1}', b'\xef\xbb\xbf{"n": 1}'], True, 1, 40, False, "utf-8")
def test_lines_are_read_as_one_by_one(
    lines: list[bytes], ends: bool, limit: int, chunk: int, restarts: bool, encoding: str
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr("malflow.connectors.files.lines.CHUNK", chunk)
        path = Path(folder, "lines.jsonl")
        path.write_bytes(b"\n".join(lines) + b"\n" * ends)
        options: Any = {"schema": SCHEMA, "on_error": "dead_letter", "encoding": encoding}
        expected = read(OneByOne(path, **options), str(path), limit, False)
        found = read(JsonLinesSource(path, **options), str(path), limit, restarts)
    assert (found[0], found[2]) == (expected[0], expected[2])
    assert found[3] == expected[3]
    same = found[1].keys() & expected[1].keys()
    assert [found[1][at] for at in same] == [expected[1][at] for at in same]


def test_lines_of_a_failing_run(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n": 2}\n{"n": "x"}\n{"n": 4}\n')
    source = JsonLinesSource(path, schema=SCHEMA)
    reader = source.build_part(source.list_parts()[0], None)
    assert [row["n"] for row in reader.poll_batch(10)[0]] == [1, 2]
    with pytest.raises(BadRecord, match=r"a.jsonl line 3: it does not fit the schema: .*; got '\{\"n\": \"x\"\}'"):
        reader.poll_batch(10)


def test_lines_to_memory_stay_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"n": {at}}}\n' for at in range(30_000)))
    vec: VecSink[Any, Any, Any] = VecSink()
    before = rows_made()
    SingleThreadRuntime(
        lambda provider: provider.new_stream().source("lines", JsonLinesSource(path, schema=SCHEMA)).sink("out", vec)
    ).execute()
    numbers = [n for frame in vec.frames() for n in frame.column("n") or ()]
    assert numbers == list(range(30_000))
    assert rows_made() == before
    assert math.prod(map(len, vec.frames())) > 0


def test_columns_around_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"n": {at if at % 1000 != 500 else 1.5}}}\n' for at in range(4000)))
    source = JsonLinesSource(path, schema=SCHEMA, on_error="skip")
    reader = source.build_part(source.list_parts()[0], None)
    before, found = rows_made(), 0
    while not reader.is_finished():
        values, _ = reader.poll_batch(4096)
        found += len(values) if isinstance(values, Frame) else 0
    assert (found, rows_made() - before, source.skipped) == (3996, 0, {f"{path}": 4})


def test_dead_letters_of_lines_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n": 1.5}\n{"n": 3}\n')
    vec: VecSink[Any, Any, Any] = VecSink()
    store = FsspecBackend(str(tmp_path / "job"))

    def build(provider: StreamProvider) -> None:
        source = JsonLinesSource(path, schema=pa.schema({"n": pa.int64()}), on_error="dead_letter")
        provider.new_stream().source("lines", source).sink("out", vec)

    SingleThreadRuntime(build, store).execute()
    assert [DataMessage(it.key, it.value, it.timestamp) for it in vec] == [
        DataMessage(f"{path}", {"n": 1}, 0),
        DataMessage(f"{path}", {"n": 3}, 2),
    ]
    (letter,) = dead_letters(store)
    assert (letter.value, letter.timestamp) == ('{"n": 1.5}', 1)
    source = JsonLinesSource(path, schema=pa.schema({"n": pa.float64()}))
    assert source.read_again(f"{path}", letter.value) == {"n": 1.5}


@pytest.mark.parametrize("options", [{"types": {"n": int}}, {"partitions": {"day": str}}])
def test_options_that_do_not_go_with_a_schema(options: Any) -> None:
    with pytest.raises(GraphError, match="schema="):
        JsonLinesSource("x", schema=SCHEMA, **options)


def test_fields_that_nobody_reads_are_not_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1, "small": 1}\n{"n": 2, "small": 1000}\n{"n": "x"}\n')
    source = JsonLinesSource(path, schema=SCHEMA, on_error="skip")
    narrow = source.reading(frozenset({"n", "s"}))
    (values, _) = narrow.build_part(f"{path}", None).poll_batch(2)
    assert isinstance(values, Frame)
    assert values.column("small") is None
    assert f"{values[1]}" == "{'n': 2, 's': None, ...}"
    assert source.reading(frozenset({"n", "nowhere"})).build_part(f"{path}", None).poll_batch(1)[0][0].keys() == {
        *SCHEMA.names
    }
    reader = narrow.build_part(f"{path}", None)
    while not reader.is_finished():
        reader.poll_batch(9)
    assert source.skipped == {f"{path}": 1}


def test_dataflows_of_fields_read_no_more(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1, "s": "a", "small": 1000}\n{"n": 2, "s": "a"}\n')
    vec: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        lines = provider.new_stream().source("lines", JsonLinesSource(path, schema=SCHEMA))
        lines.key_distribute("word", "s").aggregate("sum", agg.sum("n")).sink("out", vec)

    SingleThreadRuntime(build, parallelism=2).execute()
    assert vec.values[-1] == 3

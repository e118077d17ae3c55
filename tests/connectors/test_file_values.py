"""The law of values for Parquet, Delta, CSV, JSON lines and Avro, read by pyarrow, deltalake, Python and fastavro."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import deltalake
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from malflow import DataMessage
from malflow.connectors.codecs import AvroDecoder, AvroEncoder, SchemaRegistry
from malflow.connectors.delta import DeltaSink
from malflow.connectors.parquet import ParquetSink, ParquetSource
from malflow.sinks import CsvSink, JsonLinesSink, SinkOwner, StatelessSinkImpl
from malflow.sources import CsvSource, JsonLinesSource
from malflow.testing import ScriptedSource, SinkValues, SourceValues, python_values, same_value
from tests.connectors.codecs.fake_registry import running_registry
from tests.connectors.test_text_values import DOCUMENTS, same_json, with_text_names

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = int(os.environ.get("VALUES", "2"))
NAMES = {"The names in an object of JSON are text": with_text_names}

_EVERY = python_values()
_NUMBERS = st.integers(-300, 300) | st.decimals(-9999, 9999, places=2) | st.floats(-300, 300) | _EVERY
_TIMES = (
    st.datetimes().map(lambda it: it.replace(microsecond=it.microsecond // 1000 * 1000))
    | st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.timezones())
    | _EVERY
)
_HOURS = st.times().map(lambda it: it.replace(microsecond=it.microsecond // 1000 * 1000)) | st.times() | _EVERY

KINDS: dict[str, dict[pa.DataType, st.SearchStrategy[Any]]] = {
    "numbers": {
        pa.int8(): _NUMBERS,
        pa.int64(): _NUMBERS,
        pa.uint64(): _NUMBERS,
        pa.float16(): st.floats(width=16) | _NUMBERS,
        pa.float32(): st.floats(width=32) | _NUMBERS,
        pa.float64(): st.floats() | _NUMBERS,
        pa.decimal128(6, 2): _NUMBERS,
        pa.decimal256(60, 5): _NUMBERS,
        pa.bool_(): st.booleans() | st.integers(0, 2) | _EVERY,
        pa.null(): st.none() | _EVERY,
    },
    "texts": {
        pa.string(): st.text() | _EVERY,
        pa.large_string(): st.text() | _EVERY,
        pa.binary(): st.binary() | st.text() | _EVERY,
        pa.binary(3): st.binary(min_size=3, max_size=3) | st.text(max_size=3) | _EVERY,
        pa.dictionary(pa.int32(), pa.string()): st.text() | _EVERY,
        pa.uuid(): st.uuids() | _EVERY,
    },
    "times": {
        pa.date32(): st.dates() | _TIMES,
        pa.date64(): st.dates() | _TIMES,
        pa.time32("ms"): _HOURS,
        pa.time64("us"): _HOURS,
        pa.timestamp("s"): _TIMES,
        pa.timestamp("ms"): _TIMES,
        pa.timestamp("us"): _TIMES,
        pa.timestamp("us", "UTC"): _TIMES,
        pa.timestamp("ns"): _TIMES,
        pa.timestamp("ms", "Europe/Berlin"): _TIMES,
        pa.duration("ms"): st.timedeltas() | st.integers(0, 9).map(timedelta) | _EVERY,
        pa.duration("us"): st.timedeltas() | _EVERY,
    },
    "nested": {
        pa.list_(pa.int64()): st.lists(_NUMBERS, max_size=3) | _EVERY,
        pa.list_(pa.float32()): st.lists(_NUMBERS, max_size=3) | _EVERY,
        pa.list_(pa.string()): st.lists(st.text() | st.none(), max_size=3) | _EVERY,
        pa.list_(pa.timestamp("ms")): st.lists(_TIMES, max_size=3) | _EVERY,
        pa.struct([("a", pa.date32())]): st.fixed_dictionaries({"a": st.dates() | _TIMES}) | _EVERY,
        pa.map_(pa.string(), pa.int64()): st.dictionaries(st.text(max_size=3), _NUMBERS, max_size=3) | _EVERY,
    },
}
EVERY_KIND = {kind: values for group in KINDS.values() for kind, values in group.items()}


def cells_of(rows: Iterable[Mapping[str, Any]]) -> dict[int, Any]:
    return {row["n"]: row["v"] for row in rows}


def rounded(kind: np.dtype[Any]) -> Callable[[Any], Any]:
    def becomes(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [becomes(it) for it in value]
        return float(kind.type(value)) if isinstance(value, float) and abs(value) < np.finfo(kind).max else value

    return becomes


def check(name: str, make_sink: Callable[[], Any], read: Callable[[], Mapping[int, Any]], **options: Any) -> None:
    options = {"values": python_values(), "examples": EXAMPLES, "docs": [DOCS / "parquet.md"], **options}
    SinkValues(name, make_sink, read, **options).check()


def same_in_arrow(kind: pa.DataType) -> Callable[[Any, Any], bool]:
    def same(wrote: Any, read: Any) -> bool:
        if pa.types.is_map(kind) and isinstance(wrote, dict) and isinstance(read, list):
            return same_value(wrote, dict(read))
        return same_value(wrote, read)

    return same


def changes_in_arrow(kind: pa.DataType) -> dict[str, Callable[[Any], Any]]:
    leaf = kind.value_type if pa.types.is_list(kind) else kind
    if pa.types.is_float16(leaf) or pa.types.is_float32(leaf):
        return {
            "A column of `float16` or `float32` rounds fractions, as its type says.": rounded(
                np.dtype(leaf.to_pandas_dtype())
            )
        }
    if pa.types.is_binary(leaf) or pa.types.is_fixed_size_binary(leaf):
        return {"A text in a column of bytes is stored in UTF-8, if `schema` is passed.": encoded}
    if pa.types.is_struct(leaf):
        return {"A missing column, or a missing field of a struct, is null.": filled(leaf)}
    return {}


def filled(kind: pa.DataType) -> Callable[[Any], Any]:
    missing = dict.fromkeys(kind.field(at).name for at in range(kind.num_fields))
    return lambda value: {**missing, **value} if isinstance(value, dict) else value


def encoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return str.__str__(value).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("group", KINDS)
def test_values_in_columns_of_parquet(tmp_path: Path, group: str) -> None:
    for at, (kind, values) in enumerate(KINDS[group].items()):
        folder = tmp_path / f"{at}"
        schema = pa.schema([("n", pa.int64()), ("v", kind)])

        def read(folder: Path = folder) -> Mapping[int, Any]:
            return cells_of(row for file in folder.glob("part-*") for row in pq.read_table(file).to_pylist())

        make = lambda folder=folder, schema=schema: ParquetSink(folder, schema=schema)  # noqa: E731
        check(str(kind), make, read, values=values, same=same_in_arrow(kind), changes=changes_in_arrow(kind))


class EachAlone(StatelessSinkImpl[Any, Any, Any]):
    """Write each batch by a new sink, which infers its schema."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        sink = self._make()
        sink.fence(SinkOwner("job", "out", 1))
        sink.sink_batch(keys, values, timestamps)
        sink.commit([sink.prepare(1)])
        sink.close()


def test_values_of_inferred_columns_of_parquet(tmp_path: Path) -> None:
    folders = [tmp_path / "0"]

    def make() -> Any:
        folders.append(tmp_path / f"{len(folders)}")
        return ParquetSink(folders[-1])

    def read() -> Mapping[int, Any]:
        return cells_of(row for file in folders[-1].glob("part-*") for row in pq.read_table(file).to_pylist())

    kinds: list[st.SearchStrategy[Any]] = [st.integers(), st.floats(), st.text(), _TIMES, _EVERY]
    similar: Any = st.one_of([st.lists(it, min_size=1) for it in kinds])
    options: Any = {"values": _EVERY | similar, "examples": EXAMPLES * 3, "same": same_to_the_nanosecond}
    check("inferred", lambda: EachAlone(make), read, **options)


def same_to_the_nanosecond(wrote: Any, read: Any) -> bool:
    """Whether two values are equal; pyarrow returns moments with nanoseconds as those of pandas."""
    if isinstance(wrote, np.datetime64) and hasattr(read, "to_datetime64"):
        return bool(wrote == read.to_datetime64())
    return same_value(wrote, read)


DELTA = {
    kind: values
    for kind, values in EVERY_KIND.items()
    if kind in (pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(6, 2), pa.bool_(), pa.string())
    or kind in (pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.list_(pa.int64()))
}


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("kind", DELTA, ids=str)
def test_values_of_delta(tmp_path: Path, kind: pa.DataType, partitioned: bool) -> None:
    if partitioned and pa.types.is_nested(kind):
        pytest.skip("no such partitions")
    settings: Any = {"settings": {"partition_by": ["v"]}} if partitioned else {}
    schema = pa.schema([("n", pa.int64()), ("v", kind)])
    make = lambda: DeltaSink(str(tmp_path), schema=schema, **settings)  # noqa: E731
    read = lambda: cells_of(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist())  # noqa: E731
    check(str(kind), make, read, values=DELTA[kind], same=same_in_arrow(kind), changes=changes_in_arrow(kind))


@pytest.mark.parametrize("int96", [False, True])
def test_values_read_from_columns_of_parquet(tmp_path: Path, int96: bool) -> None:
    path = tmp_path / "in.parquet"
    instants = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 30))
    kinds = {pa.timestamp("us"): instants, pa.list_(pa.timestamp("us")): st.lists(instants, max_size=3)}
    always = [datetime(9999, 12, 23, 23, 59, 59), datetime(1000, 1, 1), datetime(2024, 5, 1, 12, 0, 0, 250_000)]
    for kind, values in (kinds if int96 else _stored_kinds()).items():

        def write(some: Sequence[Any], kind: pa.DataType = kind) -> None:
            table = pa.table({"n": range(len(some)), "v": pa.array(some, kind)})
            pq.write_table(table, path, use_deprecated_int96_timestamps=int96)

        SourceValues(
            f"{kind}",
            lambda: ParquetSource(path),
            write,
            values | st.none(),
            same=same_in_arrow(kind),
            examples=EXAMPLES,
            always=[] if not int96 else [always] if pa.types.is_list(kind) else always,
        ).check()


def _stored_kinds() -> dict[pa.DataType, st.SearchStrategy[Any]]:
    small = st.integers(-128, 127)
    return {
        pa.int8(): small,
        pa.uint64(): st.integers(0, 2**64 - 1),
        pa.float32(): st.floats(width=32),
        pa.float64(): st.floats(),
        pa.decimal128(6, 2): st.decimals(-9999, 9999, places=2),
        pa.bool_(): st.booleans(),
        pa.string(): st.text(),
        pa.binary(): st.binary(),
        pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["a", "", "\0", "é"]),
        pa.date32(): st.dates(),
        pa.time64("us"): st.times().map(lambda it: it.replace(fold=0)),
        pa.timestamp("us"): st.datetimes().map(lambda it: it.replace(fold=0)),
        pa.timestamp("us", "Europe/Berlin"): st.datetimes(
            datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.timezones()
        ),
        pa.duration("us"): st.timedeltas(timedelta(-(10**6)), timedelta(10**6)),
        pa.list_(pa.int8()): st.lists(small, max_size=3),
        pa.map_(pa.string(), pa.int8()): st.dictionaries(st.text(max_size=2), small, max_size=3),
        pa.struct([("a", pa.string())]): st.fixed_dictionaries({"a": st.text() | st.none()}),
    }


def same_text_in_csv(wrote: Any, read: str) -> bool:
    if isinstance(wrote, Enum) and not isinstance(wrote, int | str):
        wrote = wrote.value
    if wrote is None or isinstance(wrote, str):
        return read == ("" if wrote is None else str.__str__(wrote))
    if isinstance(wrote, np.datetime64) or getattr(wrote, "nanosecond", 0):
        return bool(wrote == np.datetime64(read))
    if isinstance(wrote, bool | np.bool_):
        return read == ("true" if wrote else "false")
    parse: Any = next((of for kind, of in PARSERS.items() if isinstance(wrote, kind)), None)
    return parse is not None and same_value(wrote, parse(read))


PARSERS: dict[Any, Callable[[str], Any]] = {
    int | np.integer: int,
    float | np.floating: float,
    Decimal: Decimal,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
}


UNPACKED: Mapping[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}
"""The decompressors of Python, which read all members of a file, by suffix."""


def texts_below(folder: Path, suffix: str) -> list[str]:
    """Return the texts of the finished files in a folder, decompressed."""
    files = [it for it in folder.rglob(f"*{suffix}*") if ".malflow" not in it.parts]
    return [UNPACKED.get(it.suffix, bytes)(it.read_bytes()).decode() for it in files]


@pytest.mark.parametrize(
    "where", [{"path": "out.csv", "append": True}, {"path": "folder/", "suffix": ".csv.gz"}], ids=str
)
@pytest.mark.parametrize("options", [{}, {"delimiter": ";", "quotechar": "'"}], ids=["", "other"])
def test_values_in_csv(tmp_path: Path, where: Mapping[str, Any], options: Any) -> None:
    dialect: Any = {"strict": True, **options}

    def read() -> Mapping[int, Any]:
        texts = texts_below(tmp_path, ".csv")
        rows = (row for it in texts for row in csv.reader(io.StringIO(it, newline=""), **dialect))
        return {int(row[0]): row[1] for row in rows if row[0] != "n"}

    more = {**where, **options, "path": f"{tmp_path}/{where['path']}"}
    check("CSV", lambda: CsvSink(**more), read, same=same_text_in_csv)


@pytest.mark.parametrize(
    "where",
    [{"path": "folder/"}, {"path": "out.jsonl", "append": True}, {"path": "folder/", "suffix": ".jsonl.bz2"}],
    ids=str,
)
def test_values_in_json_lines(tmp_path: Path, where: Mapping[str, Any]) -> None:
    def read() -> Mapping[int, Any]:
        rows = (json.loads(line) for it in texts_below(tmp_path, ".jsonl") for line in it.splitlines())
        return {row["n"]: json.dumps(row["v"]) for row in rows}

    make = lambda: JsonLinesSink(**{**where, "path": f"{tmp_path}/{where['path']}"})  # noqa: E731
    check("JSON lines", make, read, same=same_json, changes=NAMES, docs=[DOCS / "files.md"])


FAST = {"name": "b", "type": "int", "default": 0}
AVRO: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("int", _NUMBERS),
    ("long", _NUMBERS),
    ("double", _NUMBERS),
    ("boolean", st.booleans() | _NUMBERS),
    ("string", _EVERY),
    ("bytes", _EVERY),
    ("null", _EVERY),
    ({"type": "fixed", "name": "F", "size": 2}, st.binary(max_size=3) | _EVERY),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, st.sampled_from("ABC") | _EVERY),
    ({"type": "int", "logicalType": "date"}, st.dates() | _TIMES),
    ({"type": "int", "logicalType": "time-millis"}, _HOURS),
    ({"type": "long", "logicalType": "time-micros"}, _HOURS),
    ({"type": "long", "logicalType": "timestamp-millis"}, _TIMES),
    ({"type": "long", "logicalType": "timestamp-micros"}, _TIMES),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, _TIMES),
    ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, _NUMBERS),
    ({"type": "fixed", "name": "D", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 2}, _NUMBERS),
    ({"type": "string", "logicalType": "uuid"}, st.uuids() | st.uuids().map(str) | _EVERY),
    (["null", "long", "string"], _EVERY),
    (["null", "double", "bytes"], _EVERY),
    ({"type": "array", "items": "long"}, st.lists(_NUMBERS, max_size=3) | _EVERY),
    (
        {"type": "map", "values": ["null", "string"]},
        st.dictionaries(st.text(max_size=2), st.text(), max_size=2) | _EVERY,
    ),
    (
        {"type": "record", "name": "I", "fields": [{"name": "a", "type": "int", "default": 0}]},
        st.fixed_dictionaries({}, optional={"a": _NUMBERS, "b": _NUMBERS}) | _EVERY,
    ),
    (
        [
            {"type": "record", "name": "Cat", "fields": [{"name": "a", "type": "int"}]},
            {"type": "record", "name": "Dog", "fields": [{"name": "a", "type": "int"}, FAST]},
        ],
        st.fixed_dictionaries({}, optional={"a": st.integers(-9, 9), "b": st.integers(-9, 9)}) | _EVERY,
    ),
]
UNFIT = [
    1.5, True, Decimal("1.005"), datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1999, UTC), time(0, 0, 0, 1),
    {"a": 1, "c": 2}, {"a": 1}, {"a": 1, "b": 2}, "x", b"x",
]  # fmt: skip
"""Values that an encoder may change, or take for others."""


def of_avro(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}, {"name": "v", "type": kind}]}


class Encoding(StatelessSinkImpl[Any, Any, Any]):
    """Encode each value."""

    def __init__(self, encoder: AvroEncoder, found: dict[int, bytes]) -> None:
        self._encoder, self._found = encoder, found

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        self._found[msg.key] = self._encoder.encode(msg.value)


@pytest.mark.parametrize(("kind", "values"), AVRO, ids=lambda it: it if isinstance(it, str) else "")
def test_values_in_avro(kind: Any, values: Any) -> None:
    schema, found = of_avro(kind), dict[int, bytes]()
    parsed = fastavro.parse_schema(schema)

    def read() -> Mapping[int, Any]:
        rows: dict[int, Any] = {
            n: fastavro.schemaless_reader(io.BytesIO(raw), parsed, None, return_record_name=is_record_union(kind))
            for n, raw in found.items()
        }
        return {number: row["v"] for number, row in rows.items()}

    known: Any = {"docs": [DOCS / "kafka.md"], "changes": changes_in_avro(kind), "names": shown_in_avro}
    known["same"] = as_its_record if is_record_union(kind) else same_value
    check(f"{kind}", lambda: Encoding(AvroEncoder(schema), found), read, values=values, always=UNFIT, **known)


def is_record_union(kind: Any) -> bool:
    return isinstance(kind, list) and isinstance(kind[0], dict)


def as_its_record(wrote: Any, read: Any) -> bool:
    """Whether a record of a union is one that could only be of the branch that was read: a cat may be a dog, too."""
    name, record = read
    return bool(name == "Dog") and "b" in wrote and same_value(wrote, record)


def shown_in_avro(value: Any, text: str) -> bool:
    """Whether an error has the field, the record or the value."""
    return any(it in text for it in ("R.v", "field v", "'v.", "'v': ", repr(value)))


def changes_in_avro(kind: Any) -> dict[str, Callable[[Any], Any]]:
    line = "a number may stand for the date or time that it encodes, a UUID for its text, and a field with a default"
    if not isinstance(kind, dict) or not ("logicalType" in kind or "fields" in kind):
        return {}
    whole = fastavro.parse_schema(kind)

    def becomes(value: Any) -> Any:
        if isinstance(value, dict):
            return {"a": 0, **value}
        if isinstance(value, str) and kind.get("logicalType") == "uuid":
            return UUID(value)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or kind["type"] not in ("int", "long"):
            return value
        raw = io.BytesIO()
        fastavro.schemaless_writer(raw, fastavro.parse_schema(kind["type"]), int(value))
        return fastavro.schemaless_reader(io.BytesIO(raw.getvalue()), whole, None)

    return {line: becomes}


DEFAULTS: list[tuple[Any, st.SearchStrategy[Any], Callable[[Any], Any], list[Any]]] = [
    ("int", st.integers(-(2**31), 2**31 - 1), int, [7]),
    ("bytes", st.binary(), lambda it: it.decode("latin-1"), [b"\xff"]),
    ({"type": "fixed", "name": "F", "size": 1}, st.binary(min_size=1, max_size=1), lambda it: it.decode("latin-1"), []),
    ({"type": "int", "logicalType": "date"}, st.dates(), lambda it: (it - date(1970, 1, 1)).days, [date(2024, 2, 29)]),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        st.datetimes(timezones=st.just(UTC)),
        lambda it: (it - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1),
        [datetime(2024, 2, 29, tzinfo=UTC)],
    ),
    (
        {"type": "int", "logicalType": "time-millis"},
        st.times().map(lambda it: it.replace(microsecond=it.microsecond // 1000 * 1000, fold=0)),
        lambda it: ((it.hour * 60 + it.minute) * 60 + it.second) * 1000 + it.microsecond // 1000,
        [time(0, 0, 1, 500_000)],
    ),
    ({"type": "string", "logicalType": "uuid"}, st.uuids(), str, [UUID(int=5)]),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda it: Decimal(it).scaleb(-2)),
        lambda it: int(it.scaleb(2)).to_bytes(5, "big", signed=True).decode("latin-1"),
        [Decimal("1.23")],
    ),
    (
        {"type": "array", "items": {"type": "int", "logicalType": "date"}},
        st.lists(st.dates(), max_size=2),
        lambda it: [(day - date(1970, 1, 1)).days for day in it],
        [[date(2024, 2, 29)]],
    ),
]
"""Types, their values, and the JSON of these as the defaults of fields."""


@pytest.mark.parametrize(("kind", "values", "encode", "always"), DEFAULTS, ids=lambda it: it if it == "int" else "")
def test_defaults_of_avro(kind: Any, values: Any, encode: Callable[[Any], Any], always: list[Any]) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    defaults: list[Any] = []

    def write(some: Sequence[Any]) -> None:
        defaults[:] = map(encode, some)

    with running_registry() as server:
        registry = SchemaRegistry(server.url)
        frame = b"\0" + registry.register("old", json.dumps(old)).to_bytes(4, "big")

        def decoded(number: int, default: Any) -> Any:
            schema = of_avro(kind)
            schema["fields"][1]["default"] = default
            raw = io.BytesIO()
            fastavro.schemaless_writer(raw, fastavro.parse_schema(old), {"n": number})
            return AvroDecoder(schema, registry=registry).decode(frame + raw.getvalue())

        make = lambda: ScriptedSource([decoded(*it) for it in enumerate(defaults)])  # noqa: E731
        law = SourceValues(f"{kind}", make, write, values, same=exactly, always=always, examples=EXAMPLES)
        law.check()


PROMOTED: list[tuple[Any, Any, st.SearchStrategy[Any], Callable[[Any], Any]]] = [
    ("int", "long", st.integers(-(2**31), 2**31 - 1), int),
    ("int", "double", st.integers(-(2**31), 2**31 - 1), float),
    ("long", "double", st.integers(-(2**53), 2**53), float),
    ("float", "double", st.floats(width=32), float),
    ("string", "bytes", st.text(st.characters(exclude_categories=["Cs"])), str.encode),
    ("bytes", "string", st.text(st.characters(exclude_categories=["Cs"])).map(str.encode), bytes.decode),
    ("long", ["null", "string", "long"], st.integers(-(2**63), 2**63 - 1), int),
    (
        ["null", "int"],
        ["null", "double"],
        st.none() | st.integers(-(2**31), 2**31 - 1),
        lambda it: None if it is None else float(it),
    ),
    (
        {"type": "array", "items": "int"},
        {"type": "array", "items": "float"},
        st.lists(st.integers(-9, 9)),
        lambda it: [*map(float, it)],
    ),
]
"""A type of the writer, one of the reader, values, and what Avro's rules of resolution make of each."""


@pytest.mark.parametrize(("old", "new", "values", "promote"), PROMOTED)
def test_values_of_an_older_schema_in_avro(old: Any, new: Any, values: Any, promote: Callable[[Any], Any]) -> None:
    """The reader also has the fields in another order, one of them by an alias, and lacks one."""
    writers = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "gone", "type": "string"}, {"name": "before", "type": old}, {"name": "n", "type": "long"}],
    }
    readers = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "long"}, {"name": "v", "type": new, "aliases": ["before"]}],
    }
    raws: list[bytes] = []

    def write(some: Sequence[Any]) -> None:
        raws[:] = []
        for number, value in enumerate(some):
            raw = io.BytesIO()
            record = {"gone": "x" * number, "before": value, "n": number}
            fastavro.schemaless_writer(raw, fastavro.parse_schema(writers), record)
            raws.append(raw.getvalue())

    with running_registry() as server:
        registry = SchemaRegistry(server.url)
        frame = b"\0" + registry.register("old", json.dumps(writers)).to_bytes(4, "big")
        decoder = AvroDecoder(readers, registry=registry)
        make = lambda: ScriptedSource([decoder.decode(frame + raw) for raw in raws])  # noqa: E731
        same = lambda wrote, read: exactly(promote(wrote), read)  # noqa: E731
        SourceValues(f"{old} as {new}", make, write, values, same=same, examples=EXAMPLES).check()


def exactly(wrote: Any, read: Any) -> bool:
    return type(wrote) is type(read) and same_value(wrote, read)


def one_by_one(make: Callable[[], Any]) -> Any:
    """Return a function that numbers the values of records as they come."""
    read: list[int] = []

    def cell(record: Any) -> tuple[int, Any]:
        read.append(0)
        return len(read) - 1, record

    def fresh() -> Any:
        read.clear()
        return make()

    return {"make_source": fresh, "cell": cell}


TYPED: dict[Any, tuple[st.SearchStrategy[Any], Callable[[Any], str]]] = {
    str: (st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), str),
    int: (st.integers(), str),
    float: (st.floats(), repr),
    bool: (st.booleans(), lambda value: "true" if value else "FALSE"),
    Decimal: (st.decimals(allow_nan=False), str),
    datetime: (st.datetimes(timezones=st.none() | st.timezones()), datetime.isoformat),
    date: (st.dates(), date.isoformat),
    time: (st.times(), time.isoformat),
    UUID: (st.uuids(), str),
    int | None: (st.integers() | st.none(), lambda value: "" if value is None else str(value)),
}


PACKED: Mapping[str, Callable[..., Any]] = {"": open, ".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}
"""Python's functions that open a file for writing, by suffix."""


@pytest.mark.parametrize("kind", TYPED, ids=str)
def test_values_read_from_csv_and_json_lines(tmp_path: Path, kind: Any) -> None:
    values, text = TYPED[kind]
    packing = sorted(PACKED)[list(TYPED).index(kind) % len(PACKED)]
    path = tmp_path / f"in{packing}"

    def write_csv(some: Sequence[Any]) -> None:
        with PACKED[packing](path, "wt", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["n", "v"], *([number, text(it)] for number, it in enumerate(some))])

    SourceValues(
        "CSV", lambda: CsvSource(path, types={"n": int, "v": kind}), write_csv, values, examples=EXAMPLES
    ).check()

    def write_json(some: Sequence[Any]) -> None:
        own = kind in (str, int, float, bool, int | None)
        lines = (f'{{"n": {number}, "v": {json.dumps(it if own else text(it))}}}' for number, it in enumerate(some))
        with PACKED[packing](path, "wt", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    source = lambda: JsonLinesSource(path, types={"n": int, "v": kind})  # noqa: E731
    SourceValues("JSON lines", source, write_json, values, examples=EXAMPLES).check()


def test_digits_read_from_json_lines(tmp_path: Path) -> None:
    numbers = st.decimals(allow_nan=False, allow_infinity=False).map(lambda it: it.normalize())
    path = tmp_path / "in"

    def write(some: Sequence[Any]) -> None:
        path.write_text("".join(f'{{"n": {number}, "v": {it}}}\n' for number, it in enumerate(some)))

    source = lambda: JsonLinesSource(path, types={"n": int, "v": Decimal})  # noqa: E731
    SourceValues("digits", source, write, numbers, examples=EXAMPLES).check()


def test_documents_read_from_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "in"

    def write(some: Sequence[Any]) -> None:
        path.write_text("".join(f"{json.dumps(it)}\n" for it in some))

    options = one_by_one(lambda: JsonLinesSource(path))
    SourceValues("JSON lines", write=write, values=DOCUMENTS, examples=EXAMPLES, **options).check()


@pytest.mark.parametrize(("kind", "values"), AVRO[:-1], ids=lambda it: it if isinstance(it, str) else "")
def test_values_read_from_avro(kind: Any, values: Any) -> None:
    schema, raws = of_avro(kind), list[bytes]()
    parsed = fastavro.parse_schema(schema)

    def write(some: Sequence[Any]) -> None:
        raws[:] = []
        for number, value in enumerate(some):
            raw = io.BytesIO()
            fastavro.schemaless_writer(raw, parsed, {"n": number, "v": value})
            raws.append(raw.getvalue())

    def read_by_fastavro(value: Any) -> Any:
        raw = io.BytesIO()
        try:
            fastavro.schemaless_writer(raw, parsed, {"n": 0, "v": value})
            row: Any = fastavro.schemaless_reader(io.BytesIO(raw.getvalue()), parsed, None)
            return row["v"]
        except Exception:  # noqa: BLE001 - Avro has no such value
            return OMITTED

    written = values.map(read_by_fastavro).filter(lambda it: it is not OMITTED)
    make = lambda: ScriptedSource(list(map(AvroDecoder(schema).decode, raws)))  # noqa: E731
    SourceValues(f"{kind}", make, write, written, examples=EXAMPLES).check()


OMITTED = object()

"""Doors, chains and exits as one function: the rows and errors are as those of single steps."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import make_dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime
from malflow.connectors.parquet import ArrowSource
from malflow.errors import OperatorError
from malflow.records.columnar import rows_made
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.sql.bind.scope import Field
from malflow.sql.build.chains import chain, every
from malflow.sql.build.doors import Door, Exit
from malflow.sql.parser.statements import parse_columns
from malflow.sql.syntax.queries import ColumnDef
from malflow.sql.text import Source
from malflow.sql.types import BIGINT, STRING, SqlType
from malflow.words import short_repr
from tests.sql.drawn import EXPRESSIONS, ROWS, SCHEMA

NAMES = [it.split()[0] for it in SCHEMA.replace(", 2", " 2").split(", ")]
Row = NamedTuple("Row", [(it, Any) for it in NAMES])  # type: ignore[misc]  # of the columns above
Other = make_dataclass("Other", NAMES)
KINDS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "dicts": lambda row: dict(zip(NAMES, row, strict=True)),
    "mappings": lambda row: OrderedDict(zip(reversed(NAMES), reversed(row), strict=True)),
    "tuples": tuple,
    "named": lambda row: Row(*row),
    "objects": lambda row: Other(*row),
}
"""The kinds of values that rows are made of."""

APART = "(SELECT * FROM t UNION ALL SELECT * FROM nothing)"
"""The rows of t after a step of their own: a union has no door."""


def rows_of(values: Sequence[Any], text: str, as_: Any = dict, schema: str = SCHEMA) -> list[Any]:
    sink = VecSink[Any, Any, Any]()

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        sql.table("t", provider.new_stream().source("values", SingleIteratorSource(values)), schema)
        sql.table("nothing", provider.new_stream().source("nothing", SingleIteratorSource([])), schema)
        sql.query("q", text).rows(as_).sink("out", sink)

    SingleThreadRuntime(build).execute()
    return sink.values


@given(st.tuples(*EXPRESSIONS.values()), EXPRESSIONS["b"], st.lists(st.sampled_from([*KINDS]), min_size=1, max_size=3))
def test_a_chain_with_its_door_and_exit_is_the_same_as_single_steps(
    expressions: Sequence[str], where: str, kinds: Sequence[str]
) -> None:
    values = [KINDS[kinds[at * len(kinds) // len(ROWS)]](row) for at, row in enumerate(ROWS)]
    text = f"SELECT {', '.join(f'{it} AS c{at}' for at, it in enumerate(expressions))} FROM {{}} WHERE {where}"
    fused, apart = (rows_of(values, text.format(table), tuple) for table in ("t", APART))
    assert fused == apart


FIELDS = [Field("i", BIGINT), Field("s", STRING), Field("p", SqlType("DECIMAL", False, 4, 1))]
GOOD: list[Any] = [{"i": 1, "s": "a", "p": 1}, (2, None, "2.5"), {"i": None, "s": "c", "p": 3.5}]
BAD: list[Any] = [
    {"i": 1 << 63, "s": "a", "p": 1},
    {"i": -(1 << 63) - 1, "s": "a", "p": 1},
    {"i": True, "s": "a", "p": 1},
    {"i": 1, "s": 2, "p": 1},
    {"i": 1, "s": "a", "p": None},
    {"i": 1, "s": "a"},
    {"i": 1, "s": "a", "p": 1000},
    (1, "a"),
    (1, "a", 1, 2),
    [1, "a", 1],
    "abc",
    None,
]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, len(BAD) - 1)), max_size=8))
def test_a_value_that_is_no_row_is_left_out_alone(chosen: list[tuple[bool, int]]) -> None:
    values = [GOOD[at % len(GOOD)] if is_good else BAD[at] for is_good, at in chosen]
    good = [it for it, (is_good, _) in zip(values, chosen, strict=True) if is_good]
    sink, door = VecSink[Any, Any, Any](), Door(FIELDS, "t")
    made = chain(door, every(FIELDS), Source(""), leaving=Exit(FIELDS))

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("values", SingleIteratorSource(values))
        stream.filter_map_many("rows", made, on_error="skip").sink("out", sink)

    SingleThreadRuntime(build).execute()
    names = [it.name for it in FIELDS]
    assert sink.values == [dict(zip(names, door.row(it), strict=True)) for it in good]


@pytest.mark.parametrize("value", BAD, ids=repr)
@pytest.mark.parametrize("before", [GOOD[:1], GOOD[1:2], []], ids=["dict", "tuple", "nothing"])
def test_a_value_that_is_no_row_fails_as_in_a_step_of_its_own(value: Any, before: list[Any]) -> None:
    messages = []
    for table in ("t", APART):
        with pytest.raises(OperatorError) as caught:
            rows_of(
                [*before, value],
                f"SELECT s FROM {table} WHERE FALSE",
                schema="i BIGINT, s STRING, p DECIMAL(4, 1) NOT NULL",
            )
        messages.append(str(caught.value).partition("' failed ")[2])
    assert messages[0] == messages[1]
    assert messages[0].startswith(f"at key NoKey, value {short_repr(value)}, timestamp {len(before)}: ")


@pytest.mark.parametrize("number", [(1 << 63) - 1, -(1 << 63)])
def test_the_least_and_greatest_numbers_pass(number: int) -> None:
    assert rows_of([{"i": number}], "SELECT i, i AS j FROM t", schema="i BIGINT") == [{"i": number, "j": number}]


@pytest.mark.parametrize("table", ["t", APART])
def test_a_number_that_is_too_large_does_not_leave(table: str) -> None:
    with pytest.raises(OperatorError, match="does not fit into BIGINT"):
        rows_of([{"i": (1 << 63) - 1}], f"SELECT i + 1 AS i FROM {table}", schema="i BIGINT")


def test_rows_that_leave_twice_are_the_same() -> None:
    sinks = VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        sql.table(
            "t",
            provider.new_stream().source("values", SingleIteratorSource([(1, Decimal(2))])),
            "i INT, p DECIMAL(3, 1)",
        )
        query = sql.query("q", "SELECT i + 1 AS i, p FROM t")
        for sink, kind in zip(sinks, (dict, tuple), strict=True):
            query.rows(kind).sink(f"to {kind.__name__}", sink)

    SingleThreadRuntime(build).execute()
    assert sinks[0].values == [{"i": 2, "p": Decimal("2.0")}]
    assert sinks[1].values == [(2, Decimal("2.0"))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_fails_is_named_with_its_place(kind: str) -> None:
    row = KINDS[kind]([0, 1, *[None] * (len(NAMES) - 2)])
    with pytest.raises(OperatorError, match=r"operator 's\.q\.calc' failed .*in 'j / i' \(q:1:8\)"):
        rows_of([row], "SELECT j / i AS k FROM t")


def outcome(source: Any, schema: str, on_error: str = "fail") -> Any:
    """Return the rows of a source by a door, or the message of its error."""
    sink = VecSink[Any, Any, Any]()
    names = [it.split()[0] for it in schema.split(", ")]
    fields = [Field(it.name.text, it.type) for it in parse_columns(Source(schema)) if isinstance(it, ColumnDef)]

    def build(provider: Any) -> None:
        made = chain(Door(fields, "t"), every(fields), Source(""))
        stream = provider.new_stream().source("values", source).select_columns("some", *names)
        stream.filter_map_many("rows", made, on_error=on_error).sink("out", sink)

    try:
        SingleThreadRuntime(build).execute()
    except OperatorError as error:
        return str(error)
    return sink.values


ARRAYS = [
    pa.array([1, -5, 3, 300], pa.int64()),
    pa.array([1, None, 3, 127], pa.int8()),
    pa.array([1, 2**63, 3, 4], pa.uint64()),
    pa.array([1 << 40, None, 2, 3], pa.int64()),
    pa.array([0.5, None, math.nan, 1e300], pa.float64()),
    pa.array([0.5, 2.0, 1.0, 3.25], pa.float32()),
    pa.array([True, None, False, True]),
    pa.array(["a", "abc", None, ""]),
    pa.array(["a", "b", "a", "c"]).dictionary_encode(),
    pa.array([b"a", None, b"abc", b""]),
    *(pa.array([0, 1500, 7, -1], pa.timestamp(unit)) for unit in ("s", "ms", "us")),
    pa.array([0, None, 7, -1], pa.timestamp("ms")),
    pa.array([0, 1000, 7, -1], pa.timestamp("us", tz="UTC")),
    pa.array([0, None, 7, -1], pa.date32()),
    pa.array([Decimal("1.50"), None, Decimal("99.25"), Decimal("0.00")]),
]
TYPES = ["BIGINT", "INT", "TINYINT", "DOUBLE", "FLOAT", "BOOLEAN", "STRING", "VARCHAR(2)", "VARBINARY(2)", "BYTES"]
TYPES += [
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP_LTZ(6)",
    "DATE",
    "DECIMAL(4, 2)",
    "BIGINT NOT NULL",
    "STRING NOT NULL",
]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("array", ARRAYS, ids=lambda it: f"{it.type}-{it.null_count}")
def test_columns_of_arrow_become_the_same_rows_as_dicts(array: Any, kind: str) -> None:
    table = pa.table({"v": array, "n": list(range(4)), "other": list(range(4))})
    schema = f"v {kind}, n INT"
    for on_error in ("fail", "skip"):
        found = [outcome(it, schema, on_error) for it in (ArrowSource(table), SingleIteratorSource(table.to_pylist()))]
        assert repr(found[0]) == repr(found[1])


def test_columns_make_no_rows_before_the_door() -> None:
    before = rows_made()
    assert len(outcome(ArrowSource(pa.table({"v": [*range(50)]})), "v BIGINT")) == 50
    assert rows_made() - before <= 1  # a batch of one row is read as a row

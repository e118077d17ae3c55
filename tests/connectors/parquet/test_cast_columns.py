"""Columns that a table takes as columns are the same as those made of the rows, and so are the errors."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.columns import Frame
from malflow.connectors.delta.schemas import delta_type
from malflow.connectors.parquet.columns import Columns, UnfitRow, stored_type
from malflow.records.columnar import rows_made
from tests.columns.batches import COLUMNS, tables

TYPES = [kind for kind, _ in COLUMNS.values()] + [
    *(pa.uint8(), pa.int32(), pa.float16(), pa.string_view(), pa.large_binary(), pa.binary(2), pa.date64()),
    *(pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns", "UTC")),
    *(pa.decimal128(3, 0), pa.dictionary(pa.int8(), pa.int64()), pa.large_list(pa.int32()), pa.time64("us")),
]


def outcome(make: Any) -> Any:
    try:
        return make()
    except UnfitRow as error:
        return str(error), error.column


@given(tables(), st.data())
def test_columns_of_a_schema_equal_those_of_rows(table: pa.Table, data: Any) -> None:
    batch = pa.record_batch([column.combine_chunks() for column in table.columns], names=table.column_names)
    frame = Frame(batch)
    if not len(frame) or frame.batch is None:
        return
    kinds = [data.draw(st.sampled_from([it.type, *TYPES])) for it in frame.batch.schema]
    fields = [
        pa.field(name, kind, pa.types.is_null(kind) or data.draw(st.booleans()))
        for name, kind in zip(table.column_names, kinds, strict=True)
    ]
    if data.draw(st.integers(0, 5)) == 0:
        fields = data.draw(st.permutations([*fields[1:], pa.field("more", pa.int64())]))
    rows = frame.apart().made()
    by_rows = outcome(lambda: Columns("out", pa.schema(fields)).make(rows))
    before = rows_made()
    found = outcome(lambda: Columns("out", pa.schema(fields)).cast(frame.batch, frame))
    assert rows_made() == before
    if isinstance(by_rows, pa.RecordBatch):
        assert isinstance(found, pa.RecordBatch), found
        assert found.schema == by_rows.schema
        assert repr(found.to_pydict()) == repr(by_rows.to_pydict())
        found.validate(full=True)
    else:
        assert found == by_rows


@given(tables(), st.sampled_from([stored_type, delta_type]))
def test_columns_without_a_schema_keep_their_types(table: pa.Table, stored: Any) -> None:
    batch = pa.record_batch([column.combine_chunks() for column in table.columns], names=table.column_names)
    frame = Frame(batch)
    if not len(frame) or frame.batch is None:
        return
    columns = Columns("out", None, stored)
    found = outcome(lambda: columns.cast(frame.batch, frame))
    if not isinstance(found, pa.RecordBatch):
        assert "schema=" in found[0] or "would hold" in found[0] or "is not" in found[0]
        return
    for field, own in zip(found.schema, frame.batch.schema, strict=True):
        plain = own.type.value_type if pa.types.is_dictionary(own.type) else own.type
        assert field.type == stored(plain)
    assert repr(found.to_pylist()) == repr(frame.batch.to_pylist())


@pytest.mark.parametrize(
    ("batch", "schema", "problem"),
    [
        ({"n": [1, 300]}, {"n": pa.int8()}, r"cannot store \{'n': 300\} in column 'n': it is not int8"),
        ({"n": [1.0, 2.5]}, {"n": pa.int64()}, r"cannot store \{'n': 2.5\} in column 'n': int64 would hold 2 instead"),
        (
            {"n": [1.5, 1e300]},
            {"n": pa.float32()},
            r"cannot store \{'n': 1e\+300\} in column 'n': float would hold inf",
        ),
        ({"n": [1], "m": [2]}, {"n": pa.int64()}, r"in column 'm': there is no such column"),
        ({"n": [1, None]}, pa.schema([pa.field("n", pa.int64(), nullable=False)]), r"\{'n': None\} .*: it is null"),
        ({}, None, "it has no columns; pass schema="),
    ],
)
def test_unfit_columns_name_the_row(batch: dict[str, Any], schema: Any, problem: str) -> None:
    given = pa.record_batch(batch) if batch else pa.record_batch([pa.nulls(1)], names=["x"]).select([])
    columns = Columns("out", schema if schema is None or isinstance(schema, pa.Schema) else pa.schema(schema))
    rows = Frame(given) if batch else [{}]
    with pytest.raises(UnfitRow, match=problem):
        columns.cast(given, rows)

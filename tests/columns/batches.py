"""Drawn tables of all types that columns have, cut into batches."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from malflow.columns import Column, Frame
from malflow.records.batch import Batch

__all__ = ["COLUMNS", "batches", "same", "tables"]

_MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))

COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float": (pa.float64(), st.floats()),
    "single": (pa.float32(), st.floats(width=32)),
    "flag": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=4)),
    "large": (pa.large_string(), st.text(max_size=4)),
    "bytes": (pa.binary(), st.binary(max_size=4)),
    "shared": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["Ulm", "Bonn", ""])),
    "numbered": (pa.dictionary(pa.int32(), pa.int64()), st.sampled_from([1, 5])),
    "day": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("us"), _MOMENTS),
    "zoned": (pa.timestamp("us", "UTC"), _MOMENTS.map(lambda it: it.replace(tzinfo=UTC))),
    "span": (pa.duration("us"), st.timedeltas(timedelta(-1000), timedelta(1000))),
    "exact": (pa.decimal128(8, 2), st.integers(-999, 999).map(lambda it: Decimal(it) / 100)),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
    "struct": (pa.struct([("a", pa.int64())]), st.fixed_dictionaries({"a": st.integers(0, 9)})),
    "nothing": (pa.null(), st.none()),
}
"""The types, and strategies of their items."""


@st.composite
def tables(draw: Any, most: int = 12) -> pa.Table:
    """Draw a table: some types, some nulls."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4, unique=True))
    rows = draw(st.integers(0, most))
    columns = []
    for name in names:
        kind, items = COLUMNS[name]
        column = draw(st.lists(items | st.none() if draw(st.booleans()) else items, min_size=rows, max_size=rows))
        columns.append(pa.array(column, kind))
    return pa.table(columns, names=names)


@st.composite
def batches(draw: Any, count: int = 1, *, cuts: bool = True) -> list[tuple[Batch, Batch]]:
    """Draw batches of one schema: each as columns, and as lists of the same records."""
    table = draw(tables())
    whole = table.combine_chunks().to_batches()
    batch = (
        whole[0] if whole else pa.record_batch([pa.array([], kind) for kind in table.schema.types], schema=table.schema)
    )
    found = []
    keyed, stamped = draw(st.sampled_from([None, *table.column_names])), draw(st.booleans())
    for _ in range(count):
        start = draw(st.integers(0, batch.num_rows)) if cuts else 0
        piece = batch.slice(start, draw(st.integers(0, batch.num_rows - start)) if cuts else batch.num_rows)
        frame = Frame(piece)
        rows = piece.to_pylist()
        keys = None if keyed is None else frame.column(keyed)
        stamps: Any = range(start, start + len(frame))
        if stamped:
            stamps = Column(pa.array(list(stamps), pa.int64()))
        marks = draw(st.lists(st.integers(0, len(frame)), max_size=3).map(sorted))
        epochs = [(at, number) for number, at in enumerate(marks)]
        as_lists = Batch(None if keys is None else [row[keyed] for row in rows], rows, list(stamps), epochs)
        found.append((Batch(keys, frame, stamps, epochs), as_lists))
    return found


def same(one: Any, other: Any) -> bool:
    """Whether two batches have the same records, and these the same types and bits."""
    return _bits(one) == _bits(other)


def _bits(batch: Batch) -> str:
    keys = None if batch.keys is None else list(batch.keys)
    return repr((keys, [_typed(it) for it in batch.values], list(batch.timestamps), list(batch.epochs)))


def _typed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _typed(item) for name, item in value.items()}
    zone = value.tzinfo if isinstance(value, datetime) else None
    return type(value).__name__, value.isoformat() if isinstance(value, date) else repr(value), str(zone)

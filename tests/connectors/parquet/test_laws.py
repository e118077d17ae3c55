"""The laws of sources and sinks, kept by Parquet files and Arrow tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from malflow.connectors.parquet import ArrowSource, ParquetSink, ParquetSource
from malflow.testing import assert_sink, assert_source

ROWS = 25


def test_laws_of_parquet_files_as_a_source(tmp_path: Path) -> None:
    for name, size in {"a": ROWS, "b": 4, "c": 0}.items():
        table = pa.table({"n": list(range(size)), "text": ["é" * n for n in range(size)]})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=7)
    assert_source(lambda: ParquetSource(f"{tmp_path}/*.parquet"))
    assert_source(lambda: ParquetSource(f"{tmp_path}/*.parquet", row=tuple, in_order=True))


def test_laws_of_an_arrow_table_as_a_source() -> None:
    assert_source(lambda: ArrowSource(pa.table({"n": list(range(ROWS))})))


def test_laws_of_parquet_files_as_a_sink(tmp_path: Path) -> None:
    def read() -> list[int]:
        files = sorted(tmp_path.glob("*.parquet"))
        return [row["n"] for file in files for row in pq.read_table(file).to_pylist()]

    assert_sink(
        lambda: ParquetSink(tmp_path, formatter=lambda msg: {"n": msg.value}, schema=pa.schema({"n": pa.int64()})), read
    )

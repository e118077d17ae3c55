"""The laws of sources and sinks, kept by Parquet files and Arrow tables."""

from __future__ import annotations

from itertools import count, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow.connectors.parquet import ArrowSource, ParquetSink, ParquetSource
from malflow.testing import assert_sink, assert_source
from malflow.testing.source_laws import SOURCE_LAWS
from tests.kit.going_back import copied_folder

pytestmark = pytest.mark.slow

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
    folder = tmp_path / "rows"

    def read() -> list[int]:
        files = sorted(folder.glob("*.parquet"))
        return [row["n"] for file in files for row in pq.read_table(file).to_pylist()]

    assert_sink(
        lambda: ParquetSink(folder, formatter=lambda msg: {"n": msg.value}, schema=pa.schema({"n": pa.int64()})),
        read,
        copy_output=lambda: copied_folder(folder),
    )


def test_laws_of_parquet_files_that_are_put_back(tmp_path: Path) -> None:
    folder, numbers = tmp_path / "input", count()
    folder.mkdir()

    def add(size: int) -> None:
        path = folder / f"{len(list(folder.iterdir()))}.parquet"
        pq.write_table(pa.table({"n": list(islice(numbers, size))}), path)

    add(10)
    assert_source(
        lambda: ParquetSource(f"{folder}/*.parquet"),
        add_records=add,
        copy_input=lambda: copied_folder(folder),
        timeout=5,
        without=[law for law in SOURCE_LAWS if law not in ("parts", "records", "restored")],
    )

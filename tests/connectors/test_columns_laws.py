"""The suites for connectors, on files of columns, Arrow, Delta and HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from malflow.connectors.delta import DeltaSink
from malflow.connectors.http import HttpSink
from malflow.connectors.parquet import ArrowSource, ParquetSink, ParquetSource
from malflow.testing import assert_sink, assert_source
from tests.connectors.http.test_sink import Server, server

__all__ = ["server"]


@pytest.mark.parametrize(
    "options", [{}, {"row": "n", "filter": pc.bit_wise_and(pc.field("n"), 1) == 0}], ids=["dicts", "filtered"]
)
def test_parquet_source(tmp_path: Path, options: dict[str, Any]) -> None:
    for name, rows in (("a", 17), ("b", 8), ("empty", 0)):
        table = pa.table({"n": pa.array(range(rows), pa.int64()), "text": ["x"] * rows})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=5)
    assert_source(lambda: ParquetSource(tmp_path / "*.parquet", **options))


def test_arrow_source() -> None:
    table = pa.table({"n": range(30)})
    assert_source(lambda: ArrowSource(table))
    assert_source(lambda: ArrowSource(table.to_batches(max_chunksize=7)))


def written(number: int) -> dict[str, Any]:
    return {"n": number, "text": f"number {number}"}


def test_parquet_sink(tmp_path: Path) -> None:
    assert_sink(
        lambda: ParquetSink(tmp_path / "out"),
        lambda: [row for file in (tmp_path / "out").glob("*.parquet") for row in pq.read_table(file).to_pylist()],
        make_value=written,
    )


def test_delta_sink(tmp_path: Path) -> None:
    path = str(tmp_path / "table")

    def rows() -> list[Any]:
        if not deltalake.DeltaTable.is_deltatable(path):
            return []
        table: Any = deltalake.DeltaTable(path)
        found: list[Any] = table.to_pyarrow_table().to_pylist()
        return found

    assert_sink(lambda: DeltaSink(path), rows, make_value=written)


def test_http_sink_with_a_server_that_knows_its_keys(server: Server) -> None:
    def accepted() -> list[Any]:
        bodies = {headers["Idempotency-Key"]: json.loads(body) for _, headers, body in server.requests}
        return [value for values in bodies.values() for value in values]

    assert_sink(
        lambda: HttpSink(server.url, delivery="exactly-once"),
        accepted,
        make_value=written,
        without=["zombie", "stale"],  # a server of HTTP knows no claims
        secrets=["s3cr3t-t0ken"],
    )

"""The suites for connectors: Parquet with a filter and empty files, Arrow, and a server that knows its keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from malflow.connectors.http import HttpSink
from malflow.connectors.parquet import ArrowSource, ParquetSource
from malflow.testing import assert_sink, assert_source
from tests.connectors.http.test_sink import Server, server

pytestmark = pytest.mark.slow

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

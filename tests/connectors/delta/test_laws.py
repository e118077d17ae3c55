"""The laws of transactional sinks, kept by a Delta table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from malflow.connectors.delta import DeltaSink
from malflow.testing import assert_sink
from tests.kit.going_back import copied_folder

pytestmark = pytest.mark.slow


def test_laws_of_a_delta_table_as_a_sink(tmp_path: Path) -> None:
    path = str(tmp_path / "table")

    def read() -> list[int]:
        return [] if not DeltaTable.is_deltatable(path) else DeltaTable(path).to_pyarrow_table()["n"].to_pylist()

    schema = pa.schema({"n": pa.int64()})
    assert_sink(
        lambda: DeltaSink(path, schema=schema, formatter=lambda msg: {"n": msg.value}),
        read,
        copy_output=lambda: copied_folder(Path(path)),
    )

"""The laws of transactional sinks, kept by a Delta table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from malflow.connectors.delta import DeltaSink
from malflow.testing import assert_sink
from malflow.testing.refusal_laws import REFUSAL_LAWS
from malflow.testing.sink_laws import SINK_LAWS
from tests.kit.going_back import copied_folder
from tests.kit.nights import only_nightly

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


@only_nightly
@pytest.mark.fault("N18", "N19")
def test_laws_of_refusals_hold_for_a_constraint(tmp_path: Path) -> None:
    schema = pa.schema({"n": pa.int64()})
    DeltaTable.create(tmp_path, schema).alter.add_constraint({"positive": "n > 0"})

    def read() -> list[int]:
        return DeltaTable(tmp_path).to_pyarrow_table()["n"].to_pylist()

    assert_sink(
        lambda: DeltaSink(tmp_path, schema=schema, formatter=lambda msg: {"n": msg.value}),
        read,
        refuse=lambda number: -number,
        mend=lambda: DeltaTable(tmp_path).alter.drop_constraint("positive"),
        without=[law for law in SINK_LAWS if law not in REFUSAL_LAWS],
    )

"""Tables with conditions for their rows: a row that does not meet them is named, and no snapshot has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from malflow import OperatorError, SingleThreadRuntime, StreamProvider
from malflow.cli.output.output import Output
from malflow.cli.running.tapping import ReplayingListener
from malflow.connectors.delta import DeltaSink
from malflow.failures import ErrorPolicy
from malflow.snapshot import dead_letters
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once
from tests.kit.nights import NIGHTLY

LONG = PrimitiveType("long")
ROWS = [{"n": 1}, PAUSE, {"n": 2}, {"n": -3}]


def constrained(path: Path) -> DeltaTable:
    """Create a table of positive numbers."""
    table = DeltaTable.create(path, pa.schema({"n": pa.int64()}))
    table.alter.add_constraint({"positive": "n > 0"})
    return table


def write(
    folder: Path, items: list[Any], policy: ErrorPolicy = "fail", *, replays: bool = False, **options: Any
) -> None:
    def build(provider: StreamProvider) -> None:
        sink: DeltaSink[Any, Any, Any] = DeltaSink(folder / "table", **options)
        provider.new_stream().source("rows", ScriptedSource(items)).sink("out", sink, on_error=policy)

    listeners = [ReplayingListener("out", Output(quiet=True))] if replays else []
    SingleThreadRuntime(build, at_once(folder / "state"), listeners=listeners).execute()


def rows(folder: Path) -> list[dict[str, Any]]:
    table: Any = DeltaTable(folder / "table")
    return sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["n"])


@pytest.mark.fault("N18")
@pytest.mark.parametrize("delivery", ["exactly-once", *(["at-least-once"] if NIGHTLY else [])])
def test_a_row_that_violates_a_constraint_ends_the_run_before_the_snapshot(tmp_path: Path, delivery: str) -> None:
    constrained(tmp_path / "table")
    with pytest.raises(OperatorError, match=r"cannot store \{'n': -3\}: the constraint 'positive' .* is n > 0"):
        write(tmp_path, ROWS, delivery=delivery)
    write(tmp_path, [*ROWS[:3], {"n": 3}], delivery=delivery)
    assert rows(tmp_path) == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.fault("N18")
@pytest.mark.parametrize("delivery", ["exactly-once", *(["at-least-once"] if NIGHTLY else [])])
def test_with_a_policy_the_rest_is_written(tmp_path: Path, delivery: str) -> None:
    table = constrained(tmp_path / "table")
    write(tmp_path, ROWS, "dead_letter", delivery=delivery)
    assert rows(tmp_path) == [{"n": 1}, {"n": 2}]
    (letter,) = dead_letters(at_once(tmp_path / "state"))
    assert (letter.value, letter.error) == ({"n": -3}, "UnfitRow")
    table.update_incremental()
    table.alter.drop_constraint("positive")
    write(tmp_path, ROWS, "dead_letter", delivery=delivery, replays=True)
    assert rows(tmp_path) == [{"n": -3}, {"n": 1}, {"n": 2}]


@pytest.mark.slow
def test_a_constraint_that_is_newer_than_the_rows(tmp_path: Path) -> None:
    """Their data files are in the snapshot, which is divided."""

    class Late(DeltaSink[Any, Any, Any]):
        def commit(self, handles: Any) -> None:
            if not DeltaTable(tmp_path / "table").metadata().configuration:
                DeltaTable(tmp_path / "table").alter.add_constraint({"positive": "n > 0"})
            super().commit(handles)

    def build(policy: ErrorPolicy) -> Any:
        def build(provider: StreamProvider) -> None:
            source = provider.new_stream().source("rows", ScriptedSource([{"n": 2}, {"n": -3}]))
            source.sink("out", Late(tmp_path / "table", schema=pa.schema({"n": pa.int64()})), on_error=policy)

        return build

    for _ in range(2):
        with pytest.raises(OperatorError, match="on_error='dead_letter' for sink 'out'"):
            SingleThreadRuntime(build("fail"), at_once(tmp_path / "state")).execute()
    SingleThreadRuntime(build("dead_letter"), at_once(tmp_path / "state")).execute()
    assert rows(tmp_path) == [{"n": 2}]
    assert [letter.value for letter in dead_letters(at_once(tmp_path / "state"))] == [{"n": -3}]


@pytest.mark.parametrize(
    ("fields", "bad", "reason"),
    [
        (
            [Field("n", LONG, metadata={"delta.invariants": '{"expression": {"expression": "n < 9"}}'})],
            {"n": 9},
            "n < 9",
        ),
        ([Field("n", LONG), Field("m", LONG, metadata={"delta.generationExpression": "n + 1"})], {"n": 1, "m": 7}, "m"),
        ([Field("n", LONG, nullable=False)], {"n": None}, "column 'n' is null"),
        ([Field("CamelCase", LONG, metadata={"delta.generationExpression": "n"}), Field("n", LONG)], {"n": 1}, "Camel"),
    ],
)
def test_other_conditions(tmp_path: Path, fields: list[Any], bad: dict[str, Any], reason: str) -> None:
    DeltaTable.create(tmp_path / "table", Schema(fields))
    schema = pa.schema({name: pa.int64() for name in bad}) if reason.startswith("column") else None
    with pytest.raises(OperatorError, match=f"cannot store .*{reason}"):
        write(tmp_path, [bad], schema=schema)
    assert rows(tmp_path) == []


def test_columns_that_the_table_computes_may_be_absent(tmp_path: Path) -> None:
    fields = [Field("n", LONG), Field("m", LONG, metadata={"delta.generationExpression": "n + 1"})]
    DeltaTable.create(tmp_path / "table", Schema(fields))
    write(tmp_path, [{"n": 1}], schema=pa.schema({"n": pa.int64()}))
    assert rows(tmp_path) == [{"n": 1, "m": 2}]

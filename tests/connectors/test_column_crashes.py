"""Parquet files, JSON lines and a Delta table, written by a job that is killed or sleeps at each point of a commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest

from tests.connectors import columns_program as program
from tests.kit.killing import POINTS, kill_child, parked, run_child, wake
from tests.kit.nights import NIGHTLY, at_night, only_nightly

pytestmark = pytest.mark.slow

PROGRAM = "tests.connectors.columns_program"
OWN = {
    "parquet": ["before-begin", "after-begin", "after-publish", "after-finish"],
    "json": ["before-begin", "after-publish"],
    "delta": ["before-append", "after-append"],
}
OWN |= {"parquet-columns": OWN["parquet"], "delta-columns": OWN["delta"]}
"""Points of a commit, in order."""
KILLS = [
    (kind, point)
    for kind, points in OWN.items()
    for point in [*(POINTS if NIGHTLY else ["prepared", "manifest-written", "committed"]), *points]
]
BY_DAY = [("parquet", "manifest-written"), ("delta", "after-append"), ("parquet-columns", "after-publish")]


def transactions(folder: Path, kind: str) -> list[list[int]]:
    """Return the rows of each visible file, in the order written, as a reader of the format finds them."""
    output = folder / program.OUTPUT
    if kind.startswith("parquet"):
        return [pq.read_table(file)["n"].to_pylist() for file in sorted(output.glob("*.parquet"))]
    if kind == "json":
        files = sorted(output.glob("*.jsonl"))
        return [[json.loads(line)["n"] for line in file.read_text(encoding="utf-8").splitlines()] for file in files]
    if not deltalake.DeltaTable.is_deltatable(str(output)):
        return []
    table: Any = deltalake.DeltaTable(str(output))
    rows_of = {uri: pq.read_table(uri)["n"].to_pylist() for uri in table.file_uris()}
    return sorted(rows for rows in rows_of.values() if rows)


def assert_whole(found: list[list[int]], seen: list[list[int]]) -> None:
    """Check that there are no gaps and nothing twice, and that what was visible before is as it was."""
    numbers = [number for rows in found for number in rows]
    assert sorted(numbers) == list(range(len(numbers)))
    assert found[: len(seen)] == seen


@pytest.mark.fault("A7")
@pytest.mark.parametrize(("kind", "point"), at_night(KILLS, but=BY_DAY))
def test_a_kill_at_each_point_loses_and_doubles_nothing(tmp_path: Path, kind: str, point: str) -> None:
    kill_child(PROGRAM, tmp_path, kind, point=f"{point}:3")
    seen = transactions(tmp_path, kind)
    assert_whole(seen, [])
    assert len(seen) >= 1
    program.run(tmp_path, kind)
    assert_whole(transactions(tmp_path, kind), seen)
    assert sum(map(len, transactions(tmp_path, kind))) == program.SIZE
    assert list((tmp_path / program.OUTPUT).glob(".malflow/*/staged/*")) == []


@pytest.mark.fault("A7")
@pytest.mark.parametrize(
    ("kind", "point"),
    [(kind, point) for kind, own in OWN.items() for point in ([*POINTS, *own] if NIGHTLY else ["before-commit"])],
)
@pytest.mark.nightly
def test_a_run_that_wakes_up_after_another_commits_nothing(tmp_path: Path, kind: str, point: str) -> None:
    with parked(PROGRAM, tmp_path, kind, point=point) as zombie:
        program.run(tmp_path, kind)
        seen = transactions(tmp_path, kind)
        _, errors = wake(zombie)
    assert "FencedError" in errors
    assert transactions(tmp_path, kind) == seen
    assert_whole(seen, [])
    assert sum(map(len, seen)) == program.SIZE


@pytest.mark.spark
@pytest.mark.fault("A7")
@only_nightly
@pytest.mark.parametrize(("kind", "point"), [(kind, point) for kind, points in OWN.items() for point in points])
def test_a_driver_killed_amid_a_commit_loses_and_doubles_nothing(tmp_path: Path, kind: str, point: str) -> None:
    kill_child(PROGRAM, tmp_path, kind, "spark", point=f"{point}:2")
    seen = transactions(tmp_path, kind)
    run_child(PROGRAM, tmp_path, kind, "spark")
    assert_whole(transactions(tmp_path, kind), seen)
    assert sum(map(len, transactions(tmp_path, kind))) == program.SIZE_ON_SPARK

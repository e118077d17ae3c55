"""Parquet files and a Delta table, written by a job that is killed or sleeps at each point of a commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest

from tests.connectors import columns_program as program

ROOT = Path(__file__).parents[2]
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
PREPARING = ["before-prepare", "prepared", "data-written", "before-manifest", "manifest-written"]
POINTS = {
    "parquet": ["before-begin", "after-begin", "after-publish", "after-finish"],
    "delta": ["before-append", "after-append"],
}
"""Points of a commit, in order; those before and after it are points of the engine."""
KILLS = [
    (kind, point)
    for kind, points in POINTS.items()
    for point in [*(PREPARING if NIGHTLY else ["prepared", "manifest-written"]), *points, "committed"]
]


def command(folder: Path, kind: str, *options: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "tests.connectors.columns_program", str(folder), kind, *options]


def killed(folder: Path, kind: str, point: str, *options: str) -> None:
    """Run the job until it is killed."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "MALFLOW_FAILPOINT": point}
    arguments = command(folder, kind, *options)
    done = subprocess.run(arguments, check=False, cwd=ROOT, env=environment, capture_output=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def epochs(folder: Path, kind: str) -> list[list[int]]:
    """Return the rows of each visible file, in the order written, as a reader of the format finds them."""
    output = folder / program.OUTPUT
    if kind == "parquet":
        return [pq.read_table(file)["n"].to_pylist() for file in sorted(output.glob("*.parquet"))]
    if not deltalake.DeltaTable.is_deltatable(str(output)):
        return []
    table: Any = deltalake.DeltaTable(str(output))
    files = {uri: pq.read_table(uri)["n"].to_pylist() for uri in table.file_uris()}
    return sorted(rows for rows in files.values() if rows)


def assert_whole(found: list[list[int]], seen: list[list[int]]) -> None:
    """Check that there are no gaps and nothing twice, and that what was visible before is as it was."""
    numbers = [number for rows in found for number in rows]
    assert sorted(numbers) == list(range(len(numbers)))
    assert found[: len(seen)] == seen


@pytest.mark.fault("A7")
@pytest.mark.parametrize(("kind", "point"), KILLS)
def test_a_kill_at_each_point_loses_and_doubles_nothing(tmp_path: Path, kind: str, point: str) -> None:
    killed(tmp_path, kind, f"{point}:3")
    seen = epochs(tmp_path, kind)
    assert_whole(seen, [])
    assert len(seen) >= 1
    program.run(tmp_path, kind)
    assert_whole(epochs(tmp_path, kind), seen)
    assert sum(map(len, epochs(tmp_path, kind))) == program.SIZE
    assert list((tmp_path / program.OUTPUT).glob(".malflow/*/staged/*")) == []


@pytest.mark.fault("A7")
@pytest.mark.parametrize(
    ("kind", "point"),
    [("parquet", "before-commit"), ("delta", "before-commit")]
    + ([("parquet", point) for point in ("prepared", "after-begin", "committed")] if NIGHTLY else []),
)
def test_a_run_that_wakes_up_after_another_commits_nothing(tmp_path: Path, kind: str, point: str) -> None:
    with subprocess.Popen(
        command(tmp_path, kind, "park"),
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "MALFLOW_FAILPOINT": point},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as zombie:
        assert zombie.stdout is not None
        assert zombie.stderr is not None
        assert zombie.stdout.readline() == b"parked\n"
        os.waitpid(zombie.pid, os.WUNTRACED)
        program.run(tmp_path, kind)
        seen = epochs(tmp_path, kind)
        os.kill(zombie.pid, signal.SIGCONT)
        errors = zombie.stderr.read().decode()
    assert "FencedError" in errors
    assert epochs(tmp_path, kind) == seen
    assert_whole(seen, [])
    assert sum(map(len, seen)) == program.SIZE


@pytest.mark.spark
@pytest.mark.fault("A7")
def test_a_driver_killed_before_a_commit_loses_and_doubles_nothing(tmp_path: Path) -> None:
    killed(tmp_path, "parquet", "after-begin:2", "spark")
    seen = epochs(tmp_path, "parquet")
    program.run(tmp_path, "parquet", on_spark=True)
    assert_whole(epochs(tmp_path, "parquet"), seen)
    assert sum(map(len, epochs(tmp_path, "parquet"))) == program.SIZE_ON_SPARK

"""A job with a transactional sink that is killed, or sleeps, at each point between two snapshots."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.ledger import epochs_of, rows_of
from tests.transactions.program import OUTSIDE, SIZE, SIZE_ON_SPARK

ROOT = Path(__file__).parents[2]
POINTS = [
    "before-prepare",
    "sink-prepare",
    "prepared",
    "data-written",
    "before-manifest",
    "manifest-written",
    "before-commit",
    "sink-commit-one",
    "sink-after-commit",
    "committed",
]
"""From the end of an epoch to the next, in order; those of the sink lie within its calls."""
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
NTH = 3
"""At which pass a process dies: in the middle of the job, with epochs before and after it."""


def command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "tests.transactions.program", str(folder), *options]


def run(folder: Path, *options: str, point: str = "") -> int:
    """Run the job to its end, or to its death; return its exit code."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "MALFLOW_FAILPOINT": point}
    arguments = command(folder, *options)
    done = subprocess.run(arguments, check=False, cwd=ROOT, env=environment, capture_output=True, timeout=300)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def assert_whole_epochs(folder: Path, seen: dict[int, list[int]]) -> dict[int, list[int]]:
    """Check that a reader outside sees whole epochs, in order, that never change again; return them."""
    epochs = epochs_of(folder / OUTSIDE)
    assert list(epochs) == list(range(1, len(epochs) + 1))
    assert {number: epochs[number] for number in seen} == seen
    values = [value for rows in epochs.values() for value in rows]
    assert sorted(values) == list(range(len(values)))
    return epochs


@pytest.mark.fault("A7")
@pytest.mark.parametrize("staged", [False, True], ids=["rows_in_handle", "rows_staged"])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_each_point_loses_and_doubles_nothing(tmp_path: Path, point: str, staged: bool) -> None:
    options = ("staged",) if staged else ()
    seen: dict[int, list[int]] = {}
    assert run(tmp_path, *options, point=f"{point}:{NTH}") == -signal.SIGKILL
    seen = assert_whole_epochs(tmp_path, seen)
    assert run(tmp_path, *options, point=f"{point}:{NTH}") == -signal.SIGKILL
    seen = assert_whole_epochs(tmp_path, seen)
    assert run(tmp_path, *options) == 0
    assert_whole_epochs(tmp_path, seen)
    assert sorted(rows_of(tmp_path / OUTSIDE)) == list(range(SIZE))


@pytest.mark.fault("A7")
@pytest.mark.parametrize("point", ["before-prepare", "prepared", "before-commit", "committed"])
def test_a_run_that_wakes_up_after_another_commits_nothing(tmp_path: Path, point: str) -> None:
    with subprocess.Popen(
        command(tmp_path, "staged", "park"),
        cwd=ROOT,
        env={**os.environ, "MALFLOW_FAILPOINT": point},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as zombie:
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == b"parked\n"
        os.waitpid(zombie.pid, os.WUNTRACED)
        assert run(tmp_path, "staged") == 0
        seen = assert_whole_epochs(tmp_path, {})
        os.kill(zombie.pid, signal.SIGCONT)
        errors = zombie.stderr.read().decode() if zombie.stderr is not None else ""
    assert "FencedError" in errors
    assert assert_whole_epochs(tmp_path, seen) == seen
    assert sorted(rows_of(tmp_path / OUTSIDE)) == list(range(SIZE))


@pytest.mark.spark
@pytest.mark.fault("A7")
@pytest.mark.parametrize("point", ["before-commit", *(["prepared", "before-manifest", "committed"] if NIGHTLY else [])])
def test_a_driver_killed_at_each_point_loses_and_doubles_nothing(tmp_path: Path, point: str) -> None:
    assert run(tmp_path, "staged", "spark", point=f"{point}:2") == -signal.SIGKILL
    seen = assert_whole_epochs(tmp_path, {})
    assert run(tmp_path, "staged", "spark") == 0
    assert_whole_epochs(tmp_path, seen)
    assert sorted(rows_of(tmp_path / OUTSIDE)) == list(range(SIZE_ON_SPARK))

"""Calls in processes that fork, and that are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAMS = "tests.calling_out.programs"


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"{PROGRAMS}.{program}", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.fault("O8")
def test_a_forked_process_has_a_loop_of_its_own() -> None:
    found = run("forking")
    assert (found.returncode, found.stdout) == (0, "child 6\nparent 6\n"), found.stderr


@pytest.mark.fault("O5")
def test_states_are_exact_after_a_kill_while_calls_are_under_way(tmp_path: Path) -> None:
    killed = run("summing", tmp_path, 555)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = run("summing", tmp_path, -1)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout == f"{sum(range(1000))}\n"
    calls = [*map(int, (tmp_path / "calls").read_text().split())]
    assert {*calls} == {*range(1000)}
    assert 0 < len(calls) - 1000 <= 1000 - 32, "calls that were under way are made again, and not all of them"

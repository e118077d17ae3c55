"""Many runs one after the other leave nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.kit.nights import NIGHTLY
from tests.multiprocess.groups import started

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(("method", "runs"), [("forkserver", 100), ("spawn", 100 if NIGHTLY else 6)])
def test_many_runs_leave_no_process_thread_descriptor_or_file(tmp_path: Path, method: str, runs: int) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    program = "tests.multiprocess.programs.starts"
    command = [sys.executable, "-W", "error", "-m", program, str(tmp_path / "jobs"), method, str(runs)]
    with started(command, tmp_path, TMPDIR=str(temporary)) as made:
        made.end()
        before, after = json.loads(made.said[-1])
    assert before == after
    assert before["processes"] == ["fork server"] * (method == "forkserver")
    assert before["threads"] == ["MainThread"]
    assert before["files"] == before["shared memory"] == []

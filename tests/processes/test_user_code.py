"""User code that ends the process: the same as a crash, with the last snapshot intact (E21, H5, H6)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from malflow.snapshot import fsck
from tests.processes.children import assert_exact, assert_plausible, backend_of, child, counted, finish, newest, run
from tests.processes.programs.counting import Options

pytestmark = pytest.mark.slow

ENDS = {
    "os._exit": (9, ""),
    "sys.exit": (9, "as user code asks for it: operator 'pass' failed: SystemExit: 9; in "),
    "KeyboardInterrupt": (-signal.SIGINT, "KeyboardInterrupt"),
    "abort": (-signal.SIGABRT, ""),
    "starve": (None, "MemoryError"),
    "starve at once": (None, ""),
}


@pytest.mark.fault("E21", "H6")
@pytest.mark.parametrize("deed", ENDS)
def test_user_code_that_ends_the_process_is_like_a_crash(tmp_path: Path, deed: str) -> None:
    code, told = ENDS[deed]
    ended, errors = run(tmp_path, Options(at=45, do=deed))
    assert ended == code or (code is None and ended)
    assert told in errors
    assert newest(tmp_path)
    assert 0 < counted(tmp_path) <= 3 * 50
    assert_plausible(tmp_path)
    assert fsck(backend_of(tmp_path)).problems == ()
    finish(tmp_path)
    assert_exact(tmp_path)


@pytest.mark.fault("H5")
def test_closed_pipe_of_a_sink_ends_the_run(tmp_path: Path) -> None:
    with child(tmp_path, Options(at=45, do="print")) as process:
        process.wait_for("started")
        assert process.process.stdout is not None
        process.process.stdout.close()
        process.process.stdout = None
        code, errors = process.end()
    assert code == 1
    assert "BrokenPipeError" in errors
    assert_plausible(tmp_path)
    finish(tmp_path)
    assert_exact(tmp_path)

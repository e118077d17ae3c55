"""Two processes with one job: the last one to start owns it, and the other leaves nothing (D1 to D4, H7)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from malflow.snapshot import fsck, snapshots
from tests.kit.nights import at_night
from tests.kit.waiting import wait_until
from tests.processes.children import (
    Child,
    assert_exact,
    assert_plausible,
    backend_of,
    child,
    counted,
    emitted,
    finish,
    newest,
    run,
)
from tests.processes.programs.counting import Options

pytestmark = pytest.mark.slow

SIZE = 3_000
SLOW = Options(size=SIZE, every=0.01, sleep=0.005)


def assert_fenced(process: Child) -> str:
    """Check that a process ended because another has its job; return what it said."""
    code, errors = process.end()
    assert code == 1
    assert "malflow.errors.FencedError: job 'counting' was claimed by another run" in errors
    assert "its work since its last snapshot is discarded" in errors
    return errors


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, as by SIGSTOP."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T"


@pytest.mark.fault("D3")
@pytest.mark.parametrize(
    "collected", at_night([False, True], but=[False]), ids=["its_number_is_taken", "its_number_was_deleted"]
)
def test_a_process_that_slept_past_a_second_runs_claim_is_fenced(tmp_path: Path, collected: bool) -> None:
    with child(tmp_path, SLOW) as process:
        wait_until(lambda: newest(tmp_path))
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(process.pid))
        slept_at = counted(tmp_path)
        manifest_log = backend_of(tmp_path).manifest_log()
        number = manifest_log.sequences(manifest_log.boundary())[-1] + 1
        if collected:
            finish(tmp_path, SIZE, every=0.001)
        else:
            with child(tmp_path, Options(size=SIZE, at=2 * SIZE // 3, do="stop", every=3600)) as second:
                assert second.end() == (0, "")
        visible = list(snapshots(backend_of(tmp_path)))
        kept = counted(tmp_path)
        assert (manifest_log.boundary() > number) == collected
        os.kill(process.pid, signal.SIGCONT)
        errors = assert_fenced(process)
    assert ("'gc/" in errors) == collected, "it is told at once, by the number itself or by what was collected"
    assert list(snapshots(backend_of(tmp_path))) == visible
    assert counted(tmp_path) == kept > slept_at
    assert fsck(backend_of(tmp_path)).problems == ()
    finish(tmp_path, SIZE)
    assert_exact(tmp_path, SIZE)


@pytest.mark.fault("D2")
@pytest.mark.parametrize("with_history", [False, True], ids=["fresh", "with_history"])
@pytest.mark.nightly
def test_of_two_processes_started_at_the_same_instant_one_has_the_job(tmp_path: Path, with_history: bool) -> None:
    if with_history:
        run(tmp_path, Options(size=SIZE, at=SIZE // 3, do="stop", every=0.1, writes=False))
    before = newest(tmp_path)
    options = Options(size=SIZE, every=0.01, sleep=0.005, barrier=True, writes=False)
    with child(tmp_path, options) as one, child(tmp_path, options) as other:
        for process in (one, other):
            process.wait_for("ready")
        for process in (one, other):
            process.tell()
        wait_until(lambda: {one.process.poll(), other.process.poll()} != {None})
        loser, winner = (one, other) if other.process.poll() is None else (other, one)
        code, errors = loser.end()
        assert code == 1
        assert "malflow.errors.FencedError" in errors
        winner.wait_for("started")
        winner.process.send_signal(signal.SIGTERM)
        assert winner.end() == (0, "")
    assert newest(tmp_path) > before
    assert_plausible(tmp_path)
    finish(tmp_path, SIZE)
    assert_exact(tmp_path, SIZE, outputs=False)


@pytest.mark.fault("H7")
@pytest.mark.nightly
def test_the_child_of_a_fork_can_not_commit(tmp_path: Path) -> None:
    with child(tmp_path, Options(at=35, do="fork")) as process:
        code, errors = process.end()
    assert code == 0
    assert "child 1" in process.said
    assert "FencedError: this process was forked from the one that runs the job; only its parent may commit" in errors
    assert_exact(tmp_path)
    assert fsck(backend_of(tmp_path)).unused == ()


@pytest.mark.fault("D1")
def test_a_run_that_takes_over_goes_on_from_what_was_kept(tmp_path: Path) -> None:
    with child(tmp_path, SLOW) as first:
        wait_until(lambda: newest(tmp_path))
        with child(tmp_path, SLOW) as second:
            second.wait_for("started")
            assert_fenced(first)
            second.process.send_signal(signal.SIGTERM)
            assert second.end() == (0, "")
    assert_plausible(tmp_path)
    assert counted(tmp_path) <= len(emitted(tmp_path))
    finish(tmp_path, SIZE)
    assert_exact(tmp_path, SIZE)

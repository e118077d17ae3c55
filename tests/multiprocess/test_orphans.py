"""The coordinator is killed: its worker processes end at once, whatever user code is doing."""

from __future__ import annotations

import os
import signal
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from tests.kit.nights import at_night
from tests.kit.waiting import wait_until
from tests.multiprocess.groups import DEADLINE, ROOT, assert_totals, finish, group, started
from tests.multiprocess.programs.totals import Options
from tests.multiprocess.runs import A_METHOD, BOTH, METHODS
from tests.processes.children import newest

pytestmark = pytest.mark.slow

SOON = 10.0
"""The seconds in which processes must be gone: a busy machine takes longer than the pipe that ends them."""

IN_BACKGROUND = """
import sys, time
from pathlib import Path
from tests.multiprocess.programs.totals import Options, runtime_of

folder = Path(sys.argv[1])
handle = runtime_of(folder, Options(size=300, every=0.02, sleep=0.01, start_method=sys.argv[2])).start()
while not list((folder / "state").rglob("*.lz4")) and handle.progress.tick < 3:
    time.sleep(0.01)
print("ends", flush=True)
"""


@pytest.mark.fault("J2")
@pytest.mark.parametrize(
    ("busy", "method"),
    at_night(product(["loop", "sleep", "compute"], BOTH), but=[("loop", BOTH[0])]),
)
def test_worker_processes_end_with_their_coordinator(tmp_path: Path, busy: str, method: str) -> None:
    with group(tmp_path, Options(at=35, do=busy, start_method=method)) as program:
        program.wait_for("busy")
        assert len(program.workers()) == 2
        killed = time.monotonic()
        program.process.kill()
        program.process.wait(DEADLINE)
        program.wait_for_nobody(SOON)
        print(f"gone after {time.monotonic() - killed:.3f} s")
    finish(tmp_path)
    assert_totals(tmp_path)


@METHODS
@pytest.mark.nightly
def test_worker_processes_end_although_they_are_being_started(tmp_path: Path, method: str) -> None:
    with group(tmp_path, Options(start_method=method)) as program:
        wait_until(lambda: len(program.living()) > 1, DEADLINE)
        program.process.kill()
        program.process.wait(DEADLINE)
        program.wait_for_nobody(SOON)
    finish(tmp_path)
    assert_totals(tmp_path)


@A_METHOD
@pytest.mark.fault("D3")
@pytest.mark.nightly
def test_a_suspended_worker_process_ends_when_it_wakes_up(tmp_path: Path, method: str) -> None:
    with group(tmp_path, Options(size=300, every=0.02, sleep=0.01, start_method=method)) as program:
        wait_until(lambda: newest(tmp_path), DEADLINE)
        workers = program.workers()
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: program.stopped(workers) == workers, DEADLINE)
        program.process.kill()
        program.process.wait(DEADLINE)
        finish(tmp_path, 300)
        program.send(signal.SIGCONT)
        program.wait_for_nobody(SOON)
    assert_totals(tmp_path, 300)


@A_METHOD
@pytest.mark.nightly
def test_a_program_that_ends_during_a_run_leaves_no_process(tmp_path: Path, method: str) -> None:
    command = [sys.executable, "-c", IN_BACKGROUND, str(tmp_path), method]
    with started(command, tmp_path, PYTHONPATH=str(ROOT)) as program:
        program.end()
        assert program.said == ["ends"]


def test_a_killed_fork_server_is_the_death_of_its_processes(tmp_path: Path) -> None:
    with group(tmp_path, Options(size=300, every=0.02, sleep=0.001)) as program:
        wait_until(lambda: newest(tmp_path), DEADLINE)
        [server] = program.servers()
        os.kill(server, signal.SIGKILL)
        program.end()
        assert program.said == ["restarted 1", "ended 1"]
    assert_totals(tmp_path, 300)

"""All processes of a run are suspended, as on a laptop that sleeps."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.kit.nights import NIGHTLY
from tests.kit.waiting import wait_until
from tests.multiprocess.groups import DEADLINE, assert_totals, group
from tests.multiprocess.programs.totals import Options
from tests.multiprocess.runs import A_METHOD
from tests.processes.children import newest

pytestmark = pytest.mark.nightly

SIZE = 300
SECONDS = 60.0 if NIGHTLY else 2.0


@pytest.mark.fault("J3")
@A_METHOD
def test_a_suspended_group_continues_without_a_restart(tmp_path: Path, method: str) -> None:
    with group(tmp_path, Options(size=SIZE, every=0.02, sleep=0.001, start_method=method)) as program:
        wait_until(lambda: newest(tmp_path), DEADLINE)
        pids = {it.pid for it in program.living()}
        program.send(signal.SIGSTOP)
        wait_until(lambda: set(program.stopped([*pids])) == pids, DEADLINE)
        time.sleep(SECONDS)
        program.send(signal.SIGCONT)
        program.end()
        assert program.said == ["ended 0"]
    assert_totals(tmp_path, SIZE)


def test_a_suspended_worker_only_delays_the_run(tmp_path: Path) -> None:
    with group(tmp_path, Options(size=SIZE, every=0.02, sleep=0.001)) as program:
        wait_until(lambda: newest(tmp_path), DEADLINE)
        victim = program.workers()[1]
        os.kill(victim, signal.SIGSTOP)
        wait_until(lambda: program.stopped([victim]), DEADLINE)
        os.kill(victim, signal.SIGCONT)
        program.end()
        assert program.said == ["ended 0"]
    assert_totals(tmp_path, SIZE)

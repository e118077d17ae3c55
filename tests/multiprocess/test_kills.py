"""Worker processes and their coordinator are killed at each point of a snapshot, and at random moments."""

from __future__ import annotations

import os
import random
import signal
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from malflow.snapshot import fsck
from tests.kit.killing import POINTS
from tests.kit.nights import NIGHTLY, at_night
from tests.kit.waiting import wait_until
from tests.multiprocess.groups import DEADLINE, assert_totals, finish, group, run
from tests.multiprocess.programs.totals import Options
from tests.multiprocess.runs import A_METHOD, BOTH
from tests.processes.children import assert_plausible, backend_of, newest

pytestmark = pytest.mark.slow

ONCE = ["job-written", "claimed"]
"""The points that a run passes before it has worker processes."""

EACH = [*POINTS, "boundary-raised", "collected"]
"""The points that the coordinator passes at each snapshot."""

SHORT = ["data-written", "before-manifest", "before-commit"]
"""The points of the short suite."""

SIZE = 300
SLOW: dict[str, Any] = {"size": SIZE, "every": 0.02, "sleep": 0.001}


def wait_for_snapshot(folder: Path, before: int) -> None:
    """Wait until there is a snapshot after another one."""
    wait_until(lambda: newest(folder) > before, DEADLINE)


@pytest.mark.fault("A3", "A5", "A7")
@A_METHOD
@pytest.mark.parametrize(("point", "victim"), at_night(product(EACH, [0, 1]), but=[("before-manifest", 1)]))
def test_a_worker_killed_at_each_point_restarts_the_run(tmp_path: Path, point: str, victim: int, method: str) -> None:
    with group(tmp_path, Options(start_method=method), point=f"{point}:3:stop") as program:
        program.wait_for_stop()
        os.kill(program.workers()[victim], signal.SIGKILL)
        program.process.send_signal(signal.SIGCONT)
        program.end()
        assert program.said == ["restarted 1", "ended 1"]
    assert_totals(tmp_path)


@pytest.mark.fault("A3", "A5", "A7")
@A_METHOD
@pytest.mark.parametrize("point", at_night([*ONCE, *EACH], but=["before-commit"]))
def test_a_coordinator_killed_at_each_point_loses_nothing(tmp_path: Path, point: str, method: str) -> None:
    nth = 1 if point in ONCE else 3
    with group(tmp_path, Options(start_method=method), point=f"{point}:{nth}") as program:
        program.end(-signal.SIGKILL)
    assert newest(tmp_path) > 0 or point in ONCE
    finish(tmp_path)
    assert_totals(tmp_path)


@pytest.mark.fault("A2", "A3")
@pytest.mark.parametrize("victim", ["itself", "other"] if NIGHTLY else ["itself"])
@pytest.mark.nightly
def test_a_worker_killed_after_a_data_file_restarts_the_run(tmp_path: Path, victim: str) -> None:
    with group(tmp_path, Options(start_method="spawn", worker_point="data-written:3:stop")) as program:
        workers = program.wait_for_workers()
        wait_until(lambda: program.stopped(workers), DEADLINE)
        [stopped, *_] = program.stopped(workers)
        others = [pid for pid in workers if pid != stopped]
        os.kill(stopped if victim == "itself" else others[0], signal.SIGKILL)
        program.send(signal.SIGCONT)
        program.end()
        assert program.said == ["restarted 1", "ended 1"]
    assert_totals(tmp_path)
    assert fsck(backend_of(tmp_path)).problems == ()


@pytest.mark.fault("A2", "A3", "H7")
@pytest.mark.nightly
def test_a_death_while_it_writes_is_noticed_although_a_child_lives(tmp_path: Path) -> None:
    options = Options(at=5, do="fork", start_method="spawn", worker_point="data-written:4")
    with group(tmp_path, options) as program:
        assert program.process.wait(15) == 0, program.errors
        assert program.said[-1].startswith("ended ")
    assert_totals(tmp_path)


@pytest.mark.fault("A10")
@pytest.mark.nightly
def test_a_coordinator_killed_at_each_start_loses_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        with group(tmp_path, Options(), point="before-commit:2") as program:
            program.end(-signal.SIGKILL)
    finish(tmp_path)
    assert_totals(tmp_path)


@pytest.mark.fault("A6")
@pytest.mark.parametrize("seed", range(8 if NIGHTLY else 1))
@pytest.mark.nightly
def test_processes_killed_at_random_moments_count_exactly(tmp_path: Path, seed: int) -> None:
    """Their source lists its drawn parts in another order each time, and forgets one now and then."""
    moments, drawn = random.Random(seed), seed + 1
    size = 5_000 if NIGHTLY else 1_000
    options = Options(**SLOW | {"size": size, "drawn": drawn, "forgets": True, "start_method": moments.choice(BOTH)})
    kills = 20 if NIGHTLY else 4
    while kills:
        with group(tmp_path, options) as program:
            program.wait_for_workers()
            coordinator = False
            while kills and not coordinator:
                kills -= 1
                before = newest(tmp_path)
                if moments.random() < 0.7:
                    wait_for_snapshot(tmp_path, before)
                time.sleep(moments.uniform(0, 0.1))
                coordinator = moments.random() < 0.3
                victims = [program.process.pid] if coordinator else program.workers()
                if victims:  # otherwise it is being restarted
                    os.kill(moments.choice(victims), signal.SIGKILL)
            program.process.kill()
            program.end(-signal.SIGKILL)
        if newest(tmp_path):
            assert_plausible(tmp_path)
    finish(tmp_path, size, drawn=drawn)
    assert_totals(tmp_path, size, drawn=drawn)


@pytest.mark.fault("A6")
@pytest.mark.nightly
def test_a_worker_killed_again_and_again_ends_with_exact_totals(tmp_path: Path) -> None:
    with group(tmp_path, Options(**SLOW)) as program:
        for _ in range(3):
            before = newest(tmp_path)
            wait_for_snapshot(tmp_path, before)
            os.kill(program.wait_for_workers()[0], signal.SIGKILL)
        program.end()
        restarts = int(program.said[-1].removeprefix("ended "))
    assert 1 <= restarts <= 3, "two kills can hit the same processes"
    assert_totals(tmp_path, SIZE)


@pytest.mark.fault("A6")
@pytest.mark.nightly
def test_a_killed_group_of_processes_is_continued_exactly(tmp_path: Path) -> None:
    for _ in range(2):
        before = newest(tmp_path)
        with group(tmp_path, Options(**SLOW)) as program:
            wait_for_snapshot(tmp_path, before)
            program.send(signal.SIGKILL)
            program.end(-signal.SIGKILL)
        assert_plausible(tmp_path)
    run(tmp_path, Options(size=SIZE, every=0.1))
    assert_totals(tmp_path, SIZE)

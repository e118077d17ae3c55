"""Dead letters, replays and calls in processes that are killed: totals and letters are exact."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from malflow.snapshot import fsck, snapshots
from tests.bad_records.programs.replaying import OPERATORS, Options, backend_of, check, finish
from tests.kit.nights import NIGHTLY
from tests.kit.waiting import wait_until
from tests.multiprocess.groups import DEADLINE, Group, started

pytestmark = pytest.mark.slow

RUNTIMES = pytest.mark.parametrize("runtime", ["single_thread", "processes"])


@contextmanager
def program(folder: Path, options: Options) -> Iterator[Group]:
    """Start the program."""
    arguments = [str(folder), json.dumps(asdict(options))]
    command = [sys.executable, "-W", "error", "-m", "tests.bad_records.programs.replaying", *arguments]
    with started(command, folder) as group:
        yield group


def newest(folder: Path) -> int:
    """Return the number of the newest snapshot; 0 before the first."""
    return max((snapshot.id for snapshot in snapshots(backend_of(folder))), default=0)


def wait_for_snapshots(folder: Path, count: int = 3) -> None:
    """Wait until that many more snapshots have been written."""
    before = newest(folder)
    wait_until(lambda: newest(folder) >= before + count, DEADLINE)


@pytest.mark.fault("N7", "N8", "O5")
@RUNTIMES
def test_letters_and_replays_are_exact_after_kills_at_any_moment(tmp_path: Path, runtime: str) -> None:
    seed = time.time_ns() if NIGHTLY else 1
    print(seed)
    moments = random.Random(seed)  # noqa: S311 - no secret
    kills = 30 if NIGHTLY else 2 if runtime == "single_thread" else 1
    options = Options(4_000 if NIGHTLY else 300, runtime, ends=False)
    for number in range(kills):
        with program(tmp_path, options) as running:
            wait_for_snapshots(tmp_path)
            time.sleep(moments.uniform(0, 0.2))
            victims = [running.process.pid, *running.workers()]
            os.kill(moments.choice(victims), signal.SIGKILL)
            running.process.kill()
            running.end(-signal.SIGKILL)
        check(tmp_path, options.size)
        if number == kills // 2:
            (tmp_path / "mended").touch()
    done = finish(tmp_path, options.size)
    assert all(it[1:] == (0, 0, 0) for it in done.values()), done
    assert all(done[operator].done for operator in OPERATORS)
    check(tmp_path, options.size, whole=True)
    assert fsck(backend_of(tmp_path)).problems == ()


@pytest.mark.fault("O5", "N7")
@pytest.mark.parametrize("runtime", ["processes", *(["single_thread"] if NIGHTLY else [])])
def test_calls_under_way_in_a_killed_process_are_made_again(tmp_path: Path, runtime: str) -> None:
    options = Options(120, runtime, deaths=(100, 230))
    for _ in range(1 if runtime == "processes" else 3):
        with program(tmp_path, options) as running:
            running.process.wait(DEADLINE)
    assert running.said == ["ended 2" if runtime == "processes" else "ended 0"], running.errors
    check(tmp_path, options.size)
    assert finish(tmp_path, options.size).keys() == {*OPERATORS, "order"}
    check(tmp_path, options.size, whole=True)
    calls = (tmp_path / "calls").read_text(encoding="utf-8").split()
    assert calls.count("100") >= 2, "a call is made at least once"
    assert calls.count("230") >= 2

"""Drivers and tasks that are killed while parts are handed out or move: each record counts once."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from malflow import SparkRuntime
from malflow.snapshot import fsck
from tests.kit.backends import kept_states
from tests.spark.clusters import SECONDS, Driver, need_spark
from tests.spark.programs.hand_overs import HANDED_OUT, MOVED, Options, backend_of, counted

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PROGRAM = "tests.spark.programs.hand_overs"


def driver_at(folder: Path, master: str = "local[2]") -> Driver:
    """Start a driver."""
    need_spark()
    return Driver(folder / "driver", master, program=PROGRAM)


def assert_exact(folder: Path, rows: dict[int, int]) -> None:
    """Check that each record of each part was counted and written once, in the order of its part."""
    backend = backend_of(folder)
    assert kept_states(backend, "count") == rows
    assert not fsck(backend).problems
    written: defaultdict[int, list[int]] = defaultdict(list)
    for line in (folder / "written").read_text(encoding="utf-8").splitlines():
        number, count = map(int, line.split())
        assert number % 1000 == count
        written[number // 1000].append(count)
    assert written == {part: [*range(count)] for part, count in rows.items()}


@pytest.mark.fault("I1", "I14")
@pytest.mark.parametrize(
    ("kill", "moves"),
    [
        ("driver in the tick", False),
        ("driver in the tick", True),
        ("driver before the states", True),
        ("driver after the states", True),
        ("driver before the tick", True),
    ],
)
def test_driver_killed_in_a_hand_over(spark: Any, tmp_path: Path, kill: str, moves: bool) -> None:
    rows = MOVED if moves else HANDED_OUT
    with driver_at(tmp_path) as driver:
        driver.tell("start", folder=str(tmp_path), moves=moves, kill=kill)
        assert driver.process.wait(SECONDS) == -signal.SIGKILL
    assert (tmp_path / kill).exists()
    assert kept_states(backend_of(tmp_path), "count") != rows
    options = Options(str(tmp_path), moves)
    SparkRuntime(counted(options), backend_of(tmp_path), parallelism=3, spark=spark).execute()
    assert_exact(tmp_path, rows)


@pytest.mark.fault("I3", "I14")
@pytest.mark.parametrize("moves", [False, True], ids=["handed out", "moved"])
def test_task_killed_in_a_hand_over_reads_the_same_again(tmp_path: Path, moves: bool) -> None:
    """Spark tries it again; whichever process does it, it reads the same records of the same parts."""
    with driver_at(tmp_path, "local[2,4]") as driver:
        end = driver.run(folder=str(tmp_path), moves=moves, kill="task in the tick")
    assert (end["error"], end["restarts"]) == (None, 0)
    attempts: defaultdict[tuple[int, int], dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for line in (tmp_path / "reads").read_text(encoding="utf-8").splitlines():
        stage, worker, attempt, part, row = json.loads(line)
        attempts[stage, worker][attempt].append((part, row))
    (repeated,) = [them for them in attempts.values() if 0 in them and len(them) > 1]
    assert repeated[1][: len(repeated[0])] == repeated[0]
    assert_exact(tmp_path, MOVED if moves else HANDED_OUT)

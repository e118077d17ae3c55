"""The positions that a worker on Spark confirms when it learns that the snapshot of a tick is durable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from malflow.runtime.spark.tasks.polling import PositionMemory
from malflow.testing.driven import DrivenRun
from tests.conformance.test_confirmations import Tracked, confirmed, reading
from tests.kit.driving import run_of
from tests.kit.log import Log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


def ticked(log: Log, ticks: int = 1, run: DrivenRun | None = None) -> Any:
    """Return a run after some more ticks, with the positions in its state."""
    run = run or run_of(reading(Tracked(log, ["a"], last=10**9)))
    for _ in range(ticks):
        run.tick()
    run.deltas()
    return run


def test_the_position_at_the_tick_of_the_snapshot(log: Log) -> None:
    memory, run = PositionMemory(), ticked(log, 3)
    memory.note(run.sources, 3, 4, (-1, 3))
    at_three = dict(run.sources[0].state)
    ticked(log, 4, run)
    memory.note(run.sources, 7, 8, (3, 7))
    assert memory.confirm(run.sources, 3) == []
    assert confirmed(log, "a") == [at_three["a"]] != [run.sources[0].state["a"]]
    assert memory.confirm(run.sources, 3) == []
    assert len(confirmed(log, "a")) == 1
    memory.confirm(run.sources, 7)
    assert confirmed(log, "a")[1:] == [run.sources[0].state["a"]]


def test_no_position_of_a_tick_that_was_missed(log: Log) -> None:
    memory, run = PositionMemory(), ticked(log, 6)
    memory.note(run.sources, 6, 7, (-1, 4))  # the state is that after tick 6: nothing is known of tick 4
    memory.note(run.sources, 2, 4, (-1, 4))  # and this one was the state before tick 4
    memory.confirm(run.sources, 4)
    assert confirmed(log, "a") == []


def test_the_position_of_a_part_that_did_not_move(log: Log) -> None:
    memory, run = PositionMemory(), ticked(log, 2)
    memory.note(run.sources, 2, 9, (5, -1))  # no changelog entry since tick 2
    memory.confirm(run.sources, 5)
    assert confirmed(log, "a") == [run.sources[0].state["a"]]


def test_no_position_of_an_older_snapshot_after_a_newer_one(log: Log) -> None:
    memory, run = PositionMemory(), ticked(log, 2)
    memory.note(run.sources, 2, 3, (2, -1))
    memory.confirm(run.sources, 2)
    memory.note(run.sources, 1, 2, (1, -1))
    memory.confirm(run.sources, 1)
    assert len(confirmed(log, "a")) == 1

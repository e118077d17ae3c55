"""Where workers run, from tick to tick: the executor that each stays on, and the copies that others drop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from malflow.runtime.spark.protocol import StageReport

__all__ = ["AGE", "Move", "WorkerPlaces", "executor_of"]

AGE = 16
"""Ticks after which a process drops a worker that it has not run."""

_TWICE = 2
"""Ticks on a new executor until a move counts. One would count stray tasks; more report moves later."""


class Move(NamedTuple):
    """A stage of a worker that has moved to another executor.

    Attributes:
        stage, worker: identify it.
        executor: the executor.
        tick: the first of the ticks in a row that it ran there.
    """

    stage: int
    worker: int
    executor: str
    tick: int


def executor_of(process: str) -> str:
    """Return the name of the executor of a process, by the process's name: Spark starts a daemon in each.

    >>> executor_of("node-7:1200:1234")
    'node-7:1200'
    """
    return process.rpartition(":")[0]


class WorkerPlaces:
    """Notes where the stages of each worker ran.

    Attributes:
        moved: how many times a stage of a worker ran on another executor than in the tick before.
        read: the bytes of changelog entries that processes have read to have the state of their workers.
    """

    def __init__(self) -> None:
        self.moved = 0
        self.read = 0
        self._at: dict[tuple[int, int], Move] = {}
        self._moves: dict[tuple[int, int], Move] = {}
        self._copies: dict[str, tuple[int, int]] = {}
        self._tick = 0

    def note(self, tick: int, reports: Iterable[StageReport]) -> None:
        """Note where a tick ran."""
        self._tick = tick
        for report in reports:
            self._copies[report.process] = tick, report.copies
            self.read += report.read
            place, executor = (report.stage, report.worker), executor_of(report.process)
            before = self._at.get(place)
            if before is None or before.executor != executor:
                self._at[place] = move = Move(*place, executor, tick)
                if before is not None:
                    self.moved += 1
                    self._moves[place] = move
        self._moves = {place: move for place, move in self._moves.items() if tick - move.tick < AGE}
        self._copies = {name: noted for name, noted in self._copies.items() if tick - noted[0] < AGE}

    @property
    def moves(self) -> list[Move]:
        """The recent moves to executors that have run the worker twice since. It seems to stay there."""
        return [move for move in self._moves.values() if self._tick >= move.tick + _TWICE - 1]

    @property
    def copies(self) -> float:
        """How many processes hold the state of a stage of a worker, on average."""
        return sum(count for _, count in self._copies.values()) / len(self._at) if self._at else 0.0

"""Moves of parts at drawn ticks to drawn workers, whatever the loads are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from zlib import crc32

from malflow.engine.parts.balance import Choice, units_of
from malflow.engine.parts.places import PartMove
from malflow.engine.plan import Program
from malflow.runtime.coordination.part_mover import PartMover
from malflow.testing.driven import DrivenProcesses, DrivenRun

__all__ = ["drawn_move", "forced_choice"]


def drawn_move(program: Program, live: DrivenRun | DrivenProcesses, which: int, to: int) -> PartMove | None:
    """Return a drawn move; None where a run makes none."""
    workers, ticks = range(live.parallelism), live.ticks
    units = [*units_of(program, live.parts, workers, ticks.reads.ended, {})]
    if len(workers) == 1 or ticks.hands_out or not units:
        return None
    unit = units[which % len(units)]
    others = [worker for worker in workers if worker != unit.worker]
    return PartMove(unit.parts, unit.worker, others[to % len(others)])


def forced_choice(seed: int, *, one_in: int = 2) -> Callable[[PartMover], Choice | None]:
    """Return what takes the place of `PartMover._choose`.

    Args:
        seed: draws the ticks, the parts and the workers.
        one_in: a part moves after one in so many ticks.
    """
    numbers = (crc32(f"{seed} {number}".encode()) >> 8 for number in count())

    def choose(mover: PartMover) -> Choice | None:
        host, ended = mover._host, mover._ticks.reads.ended
        workers = range(host.parallelism)
        units = [*units_of(mover._program, host.parts, workers, ended, {})]
        if next(numbers) % one_in or not units or len(workers) == 1:
            return None
        unit = units[next(numbers) % len(units)]
        others = [at for at in workers if at != unit.worker]
        return Choice(unit, others[next(numbers) % len(others)], 1.0, 0.0)

    return choose

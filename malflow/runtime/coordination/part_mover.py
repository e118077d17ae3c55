"""Moves parts of sources from busy workers to idle ones between the ticks of a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final

from malflow.engine.parts.balance import Balance, Choice, movable_sources, units_of
from malflow.engine.parts.places import PartMove
from malflow.engine.plan import Program
from malflow.engine.states.rescale import check_placed
from malflow.engine.ticks import Ticks
from malflow.errors import SnapshotError
from malflow.events import Event, PartsKept, PartsMoved
from malflow.runtime.host import Host, PartsMove

__all__ = ["LARGEST", "PartMover"]

LARGEST: Final = 64 << 20
"""The most bytes of state that may move for a part: all workers wait about a second for that. More: longer pauses;
less: fewer parts can move."""

_EVERY: Final = 5.0
"""Seconds between two looks at the loads of workers. Less: more looks at figures that follow within ten seconds."""


_RARELY: Final = 60.0
"""Seconds to the next look at parts after one that found none to move. Less: many parts are looked at in vain."""


class PartMover:
    """Looks at the loads of workers between ticks, and moves parts.

    Args:
        program: the program.
        host: the workers.
        ticks: the ticks of the run; they have the loads.
        notify: tells the listeners an event.
        is_on: whether parts may move.
        clock: a clock in seconds that only advances.
    """

    def __init__(
        self,
        program: Program,
        host: Host,
        ticks: Ticks,
        notify: Callable[[Event], None],
        *,
        is_on: bool = True,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._program = program
        self._host = host
        self._ticks = ticks
        self._notify = notify
        self._clock = clock
        self._balance = Balance()
        self._due = clock() + _EVERY
        self._chosen: Choice | None = None
        self._is_on = is_on and bool(movable_sources(program)) and _may_move(program)

    def wanted(self) -> PartsMove | None:
        """Return the move that is due now; None if none is."""
        if not self._is_on or self._ticks.hands_out:  # an idle worker gets the next unread part
            return None
        self._chosen = choice = self._choose()
        if choice is None:
            return None
        unit = choice.unit
        reason = (
            f"worker {unit.worker} was busy {choice.busy:.0%} of the time, and worker {choice.after} {choice.idle:.0%}"
        )
        return PartsMove(PartMove(unit.parts, unit.worker, choice.after), reason)

    def _choose(self) -> Choice | None:
        now = self._clock()
        if now < self._due:
            return None
        self._due = now + _EVERY
        host, reads = self._host, self._ticks.reads
        loads, lanes = reads.loads(), host.lanes
        if len(loads) != len(lanes) or not self._balance.is_uneven(now, loads, lanes):
            return None
        rates = {name: reads.rates(name) for name in host.parts}
        by_worker = {it.worker: it.rate or 0.0 for it in reads.by_worker(host.parts, lanes)}
        busiest = self._balance.busiest
        workers = [worker for worker, lane in enumerate(lanes) if lane == busiest]
        units = units_of(self._program, host.parts, workers, reads.ended, rates)
        choice = self._balance.choose(loads, lanes, units, by_worker)
        if choice is None:
            self._due = now + _RARELY
        return choice

    def move(self, step: PartsMove) -> None:
        """Make a move that `wanted` returned, unless its state is too large.

        Raises:
            MalflowError: if the run can't continue.
        """
        move, tick = step.move, self._ticks.number
        size = self._host.move_parts(move, LARGEST)
        chosen, self._chosen = self._chosen, None
        if size is not None:
            if chosen is not None:
                self._balance.note_kept(chosen)
            for name, parts in move.parts.items():
                self._notify(PartsKept(tick, name, tuple(parts), move.before, size, LARGEST))
            return
        if chosen is not None:
            self._balance.note_move(chosen, self._clock())
        self._ticks.move(self._host.parts, move, self._host.live())
        for name, parts in move.parts.items():
            self._notify(PartsMoved(tick, name, tuple(parts), move.before, move.after, step.reason))

    def forget(self) -> None:
        """Drop the history, since the workers have changed."""
        self._balance = Balance()


def _may_move(program: Program) -> bool:
    """Whether the state of keys can follow parts."""
    with suppress(SnapshotError):
        check_placed(program)
        return True
    return False

"""Explanations of a run's event time, for those who ask and for the watch over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from malflow.engine.plan import Program
from malflow.engine.reports import Report
from malflow.engine.ticks import Ticks
from malflow.operators.waiting import OperatorTime
from malflow.runtime.host import Host
from malflow.runtime.progress import late_of, unread_late, written_of
from malflow.runtime.requests import RunRequests
from malflow.runtime.taken_requests import TakenRequests
from malflow.runtime.time_table import explained
from malflow.runtime.time_watch import TimeWatch
from malflow.runtime.why_stamps import bound_in

__all__ = ["TimeExplainer"]


class TimeExplainer:
    """Explains the event time of a run.

    Args:
        program: the program.
        host: reports the progress of operators in event time, now or with the reports of a tick.
        ticks: the ticks of the run.
        requests: receives each explanation.
        taken: the requests for explanations.

    Attributes:
        needs_tick: whether the next tick must report the progress of operators.
    """

    def __init__(self, program: Program, host: Host, ticks: Ticks, requests: RunRequests, taken: TakenRequests) -> None:
        self.needs_tick = False
        self._program = program
        self._host = host
        self._ticks = ticks
        self._requests = requests
        self._taken = taken
        bounds = {it.node.name: (bound_in(it.node), it.location) for it in program.vertices}
        self._watch = TimeWatch({name: it for name, it in bounds.items() if it[0] is not None})
        self._unread_late = unread_late(program)

    @property
    def is_due(self) -> bool:
        """Whether somebody asks, or the watch is to look."""
        watch, ticks = self._watch, self._ticks
        return bool(self._taken.explanations) or watch.suspects(ticks.lateness) or watch.is_due(ticks.clock.now)

    def note_late(self) -> None:
        """Warn if many records are late."""
        ticks = self._ticks
        self._watch.note_late(ticks.counts, late_of(self._program, ticks.counts), ticks.lateness, self._unread_late)

    def explain(self) -> None:
        """Explain, now or with the next tick."""
        times = self._host.times()
        self.needs_tick = times is None
        if times is not None:
            self._explain(times)

    def read(self, reports: Sequence[Report]) -> None:
        """Explain by the reports of a tick that was asked for them."""
        times: dict[int, dict[int, OperatorTime]] = {it.worker: {} for it in reports}
        for it in reports:
            times[it.worker].update(it.times)
        self._explain(times)
        self.needs_tick = False

    def _explain(self, times: Mapping[int, Mapping[int, OperatorTime]]) -> None:
        now, ticks = self._ticks.clock.now, self._ticks
        table = explained(self._program, times, ticks.heard, now)
        self._watch.note_bounds(ticks.lateness, table.epochs)
        self._watch.note(now, table.rows, written_of(self._program, ticks.counts))
        self._requests.explained = table
        self._taken.end_explanations()

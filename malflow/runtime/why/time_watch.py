"""Explanations of a run's event time, and warnings: it stands still, or many records are late."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from malflow.engine.plan import Program
from malflow.engine.reports import Report
from malflow.engine.ticks import Ticks
from malflow.operators.waiting import OperatorTime
from malflow.runtime.host import Host
from malflow.runtime.progress.progress import late_of, unread_late, written_of
from malflow.runtime.progress.time_table import TimeRow, explained
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.why.flow import bound_in, may_be_in_other_units, misfit, plus

__all__ = [
    "TimeExplainer",
    "TimeWatch",
]

_log = logging.getLogger("malflow.runtime")

_PATIENCE = timedelta(seconds=60)

_MANY_UNREAD = 100
"""Without a reader late records are lost: a warning from one in 100. Double warns earlier, half later."""

_MANY_READ = 10
"""One in this many records may be late without a warning, if nothing reads late records, and if something does."""

_ENOUGH = 1_000
"""The number of records that a generator must have seen before a warning about late ones."""


class TimeWatch:
    """Compares explanations of the run's time, a minute of tick time apart.

    It warns once if operators wait while neither their time nor the run's output has advanced. For each epoch
    (watermark) generator, it warns once if more than one record in a hundred is late and nothing reads late records, or
    one in ten if something does; and once if its bound is in other units than its timestamps.

    Args:
        bounds: the bounds of generators, and the line of each.
    """

    def __init__(self, bounds: Mapping[str, tuple[Any, str | None]]) -> None:
        self._bounds = dict(bounds)
        self._judged: dict[str, Any] = {}  # the lateness for which the epochs have been looked at
        self._since: datetime | None = None
        self._before: Any = None
        self._has_warned = False
        self._told_late: set[str] = set()

    def note_late(
        self, seen: Mapping[str, int], late: Mapping[str, int], lateness: Mapping[str, Any], unread: Collection[str]
    ) -> None:
        """Warn if many records are late.

        Args:
            seen: the number of records that each operator received.
            late: the number of late records at each epoch generator.
            lateness: the greatest lateness at each of them, if known.
            unread: the generators with late records that no operator reads.
        """
        for name, count in late.items():
            total, many = seen.get(name, 0), _MANY_UNREAD if name in unread else _MANY_READ
            if count * many > total >= _ENOUGH and name not in self._told_late:
                self._told_late.add(name)
                _log.warning(
                    "%d of %d records (%.0f %%) are late at operator '%s'%s; use a larger bound for its generator, or, "
                    "if it has one time for parts or streams that are read at different speeds, generate epochs before "
                    "they merge",
                    count,
                    total,
                    100 * count / total,
                    name,
                    f", by up to {lateness[name]}" if name in lateness else "",
                )

    def suspects(self, lateness: Mapping[str, Any]) -> bool:
        """Whether a bound may be in other units. An explanation should then say what the timestamps are."""
        return any(
            name in lateness
            and self._judged.get(name) != lateness[name]
            and may_be_in_other_units(self._bounds[name][0], lateness[name])
            for name in self._bounds
        )

    def note_bounds(self, lateness: Mapping[str, Any], epochs: Mapping[str, Any]) -> None:
        """Warn of each bound that is in other units than the timestamps.

        Args:
            lateness: the greatest lateness at each generator, if known.
            epochs: the epoch of each of them, if known.
        """
        for name, (bound, location) in [*self._bounds.items()]:
            by = self._judged[name] = lateness.get(name)
            if name not in epochs or not may_be_in_other_units(bound, by):
                continue
            del self._bounds[name]
            reason = misfit(plus(epochs[name], bound), bound, by, f" ({location})" if location else "")
            if reason is not None:
                _log.warning("records are late at operator '%s', by up to %s. %s", name, by, reason)

    def is_due(self, now: datetime) -> bool:
        """Whether it is time for an explanation."""
        if self._since is None:
            self._since = now
        return not self._has_warned and now - self._since >= _PATIENCE

    def note(self, now: datetime, rows: Sequence[TimeRow], written: int) -> None:
        """Compare an explanation with the previous one, if it is due; warn if nothing has advanced.

        Args:
            now: when the tick began.
            rows: the operators that wait.
            written: the number of records that sinks have received.
        """
        if not self.is_due(now):
            return
        present = [(row.operator, row.frontier) for row in rows], written
        if rows and present == self._before:
            self._has_warned = True
            _log.warning(
                "no epoch and no output for %d s, while operators wait: %s",
                _PATIENCE.total_seconds(),
                "; ".join(line.strip().rstrip(".") for row in rows for line in str(row).splitlines()),
            )
        self._since, self._before = now, present


class TimeExplainer:
    """Explains the event time of a run.

    Args:
        program: the program.
        host: reports the progress of operators in event time, now or with the reports of a tick.
        ticks: the ticks of the run.
        requests: receives each explanation, and has the requests for some.

    Attributes:
        needs_tick: whether the next tick must report the progress of operators.
    """

    def __init__(self, program: Program, host: Host, ticks: Ticks, requests: RunRequests) -> None:
        self.needs_tick = False
        self._program = program
        self._host = host
        self._ticks = ticks
        self._requests = requests
        self._asked = requests.mailbox.explanations
        bounds = {it.node.name: (bound_in(it.node), it.location) for it in program.vertices}
        self._watch = TimeWatch({name: it for name, it in bounds.items() if it[0] is not None})
        self._unread_late = unread_late(program)

    @property
    def is_due(self) -> bool:
        """Whether somebody asks, or the watch is to look."""
        watch, ticks = self._watch, self._ticks
        is_asked = bool(self._asked.waiting or self._asked.taken)
        return is_asked or watch.suspects(ticks.lateness) or watch.is_due(ticks.clock.now)

    def note_late(self) -> None:
        """Warn if many records are late."""
        ticks = self._ticks
        self._watch.note_late(ticks.counts, late_of(self._program, ticks.counts), ticks.lateness, self._unread_late)

    def explain(self) -> None:
        """Explain, now or with the next tick."""
        self._asked.take_all()  # those who ask later get a later explanation
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
        for request in self._asked.taken:
            request.give(None)
        self._asked.taken.clear()

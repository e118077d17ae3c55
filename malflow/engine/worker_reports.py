"""The counts of a stage on one worker, its measurements, and its report of a tick."""

from __future__ import annotations

from typing import Any, Final

from malflow.engine.dead_letters import WorkerReplays
from malflow.engine.plan import Program, key_of_count
from malflow.engine.reports import LEAST_BUSY, Facts, Report, merge_facts
from malflow.engine.stage_operators import OutputChannels, StageOperators
from malflow.engine.worker_time import WorkerTime
from malflow.event_time.tick import Tick
from malflow.operators.hosting.source import Source

__all__ = ["FactPacing", "WorkerReports"]

_EVERY: Final = 16
"""Ticks between two reports of facts. Fewer: short ticks spend more time on reports; more: counts are older."""

_NANOSECONDS: Final = 50_000_000
"""The age at which facts are reported even before 16 ticks. Less: more reports; more: older counts in slow runs."""


class FactPacing:
    """Chooses the ticks whose reports include facts. Short ticks thus have no noticeable overhead.

    It chooses the first tick, then every sixteenth, and any tick that ends at least 50 ms after the last chosen one.
    Its report covers all ticks since the last chosen one.
    """

    def __init__(self) -> None:
        self._left = 0
        self._reported = 0

    def is_due(self, now: int) -> bool:
        """Whether the report of this tick includes facts.

        Args:
            now: the time at the end of the tick, by `CLOCK`.
        """
        self._left -= 1
        if self._left > 0 and now - self._reported < _NANOSECONDS:
            return False
        self._left, self._reported = _EVERY, now
        return True


class WorkerReports:
    """The counts of a stage on one worker in its last run, and its report of the tick.

    A tick has one report. If several runs share the tick, as on Spark, the report has the counts of the last run; the
    runtime adds up the others.

    Args:
        program: the whole program.
        worker_id: the index of the worker.
        operators: the operators of the stage.
        output: the output channels of the stage.
        time: the event time of the stage.
        replays: the replays of dead letters.

    Attributes:
        counts: the number of records that each operator processed and each source emitted, those that left it, and the
            counters that operators have: see `malflow.engine.plan.key_of_count`.
        gauges: the gauges that operators have.
        lateness: the greatest lateness at each epoch (watermark) generator that had late records.
        largest: the size of the largest batch.
    """

    def __init__(
        self,
        program: Program,
        worker_id: int,
        operators: StageOperators,
        output: OutputChannels,
        time: WorkerTime,
        replays: WorkerReplays,
    ) -> None:
        self.counts: dict[str, int] = {}
        self.gauges: dict[str, int] = {}
        self.lateness: dict[str, Any] = {}
        self.largest = 1
        self._worker_id = worker_id
        self._output = output
        self._time = time
        self._replays = replays
        self._lifts_silent = program.lifts_silent
        self._active = [*operators.active.values()]
        self._sources = operators.sources
        self._polling = [(it.operator, it) for it in self._active if isinstance(it.operator, Source)]
        self._generators = [*operators.generators.values()]
        guards = [(it.operator.context.operator_name, it.operator.guard) for it in self._active]
        self._guards = [(name, guard) for name, guard in guards if guard is not None]
        counting = [(it.operator, program.counts(it.node)) for it in self._active]
        self._counting = [(operator, own) for operator, own in counting if own]
        self._pacing = FactPacing()
        self._ended = 0

    def note(self, counts: dict[str, int], largest: int, ended: int) -> None:
        """Record a run, and count what sources, channels and operators counted in it.

        Args:
            counts: the number of records that each operator processed, and of those that left it.
            largest: the size of the largest batch.
            ended: the time at its end, by `malflow.engine.reports.CLOCK`.
        """
        self.counts, self.largest, self._ended, self.lateness = counts, largest, ended, {}
        for source, active in self._polling:
            counts[source.context.operator_name] = source.emitted
            if source.emitted:
                active.batches += 1
                active.largest = max(active.largest, source.emitted)
        for name, saved in self._output.take_saved():
            counts[name] = counts.get(name, 0) + saved
        for generator in self._generators:
            if (lateness := generator.take_lateness()) is not None:
                self.lateness[generator.context.operator_name] = lateness
        for operator, own in self._counting:
            name, counters, gauges = operator.context.operator_name, operator.take_counts(), operator.gauges()
            counts.update({key_of_count(name, it): counters[it] for it in own.counters})
            self.gauges.update({key_of_count(name, it): gauges[it] for it in own.gauges})

    def take(self, tick: Tick) -> Report:
        """Return the report of the tick that the worker has run, after the operators were flushed."""
        report = Report(self._worker_id, self.counts, self.gauges, self.lateness, largest=self.largest)
        if self._guards:
            failures = {name: guard.take_failures() for name, guard in self._guards}
            report.failures = {name: it for name, it in failures.items() if it is not None}
        if self._replays.done:
            report.replayed = self._replays.take_done()
        if tick.finished or self._lifts_silent:
            report.reached = self._time.reached()
        report.hot = self._output.take_hot()
        if self._pacing.is_due(self._ended) or tick.final:
            report.facts = self._take_facts()
        if self._sources:
            self._add_sources(report, tick)
        return report

    def _add_sources(self, report: Report, tick: Tick) -> None:
        report.polled = sum(source.polled for source in self._sources)
        report.largest_poll = max(source.polled for source in self._sources)
        report.emitting = [it.context.operator_name for it in self._sources if it.emitted]
        report.live = {it.context.operator_name: len(it.live_parts) for it in self._sources if not it.is_finished}
        report.read = {it.context.operator_name: it.polled_by_part for it in self._sources if it.polled_by_part}
        report.ended = {it.context.operator_name: it.take_ended() for it in self._sources if it.has_ended}
        report.skipped = max(source.take_skipped() for source in self._sources)
        if not tick.final:
            report.lags = {it.context.operator_name: it.lags() for it in self._sources if it.tells_lag}
            report.shares = {it.context.operator_name: it.share() for it in self._sources if it.tells_share}

    def _take_facts(self) -> dict[str, Facts]:
        """Return the facts since the last call of the operators that were active."""
        facts: dict[str, Facts] = {}
        for active in self._active:
            if active.batches or active.busy >= LEAST_BUSY:
                merge_facts(facts, {active.operator.context.operator_name: active.take_facts()})
        for source in self._sources:
            if source.polls:
                polls = Facts(polls=source.polls, saturated=source.saturated)
                source.polls = source.saturated = 0
                merge_facts(facts, {source.context.operator_name: polls})
        return facts

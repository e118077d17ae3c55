"""A worker's report after a tick, with the facts that it measured, and their sums over all workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from operator import attrgetter
from time import perf_counter_ns
from typing import Any, Final, NamedTuple

from malflow.failures import Failures, Replayed
from malflow.operators.hosting.reader import Lags, Share
from malflow.operators.key_sampling import HotSample
from malflow.operators.waiting import OperatorTime, Reached, Waiting, merge_held

__all__ = [
    "CLOCK",
    "LEAST_BUSY",
    "Facts",
    "OperatorFacts",
    "Report",
    "RunSums",
    "held_in",
    "merge_facts",
]

CLOCK: Final[Callable[[], int]] = perf_counter_ns
"""The clock of busy times, in nanoseconds."""

LEAST_BUSY: Final = 1_000_000
"""Nanoseconds after which the busy time of an operator is reported even if it took no records."""


class Facts(NamedTuple):
    """The measurements of an operator on one worker since its last report.

    Attributes:
        busy: the nanoseconds it spent processing records or waiting for external systems.
        batches: the number of non-empty batches that it received or, for a source, emitted.
        largest: the number of records in the largest of them.
        calls: the greatest number of simultaneous calls to an external system.
        polls: how often a source was asked for records.
        saturated: how often a poll returned as many as it asked for, so that more are probably waiting.
        made: the number of records that came as columns and became objects while it ran.
        demotions: how often it gave up its arrays and continued record by record.
    """

    busy: int = 0
    batches: int = 0
    largest: int = 0
    calls: int = 0
    polls: int = 0
    saturated: int = 0
    made: int = 0
    demotions: int = 0

    def plus(self, other: Facts) -> Facts:
        """Return the combined facts of both."""
        return Facts(
            self.busy + other.busy,
            self.batches + other.batches,
            max(self.largest, other.largest),
            max(self.calls, other.calls),
            self.polls + other.polls,
            self.saturated + other.saturated,
            self.made + other.made,
            self.demotions + other.demotions,
        )


def merge_facts(facts: dict[str, Facts], more: Mapping[str, Facts]) -> None:
    """Merge more facts, by operator name, into the first mapping."""
    for name, it in more.items():
        held = facts.get(name)
        facts[name] = it if held is None else held.plus(it)


@dataclass(slots=True)
class Report:
    """A worker's report of one stage of a tick, from which the run decides about the next tick.

    Attributes:
        worker: the worker.
        counts: the number of records that each operator received, and each source emitted, and the other counters of
            the worker.
        gauges: the gauges of operators.
        lateness: the greatest lateness at each epoch (watermark) generator that had late records.
        polled: the number of records polled from sources.
        largest_poll: the maximum number of records polled from one source.
        largest: the size of the largest batch.
        live: the number of unfinished parts on this worker, of each source that has any.
        read: the number of records of each part that emitted any, by source.
        ended: the parts that have ended since the last report, by source; all that have ended if the worker is new.
        emitting: the sources that emitted records on this worker.
        skipped: the time that test scripts skip.
        lags: the lag of each unfinished part on this worker whose reader reports it.
        shares: how much each source has read of its parts on this worker, and their total size; None if that is
            unknown for any part.
        reached: the progress of the epoch generators, if a source has finished on a worker, or a generator advances
            without input.
        times: the progress of each operator in event time, by vertex, before the tick, if requested.
        held: the open results of operators, if requested.
        hot: the busiest worker and key of each exchange for which records were sampled.
        failures: the failures that did not end the run, by operator.
        replayed: the outcome of the requests about the dead letters of each operator.
        facts: the measurements of each operator; they differ if the tick is repeated.
    """

    worker: int
    counts: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, int] = field(default_factory=dict)
    lateness: Mapping[str, Any] = field(default_factory=dict)
    polled: int = 0
    largest_poll: int = 0
    largest: int = 1
    live: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)
    ended: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    emitting: Sequence[str] = ()
    skipped: timedelta = timedelta(0)
    lags: Mapping[str, Lags] = field(default_factory=dict)
    shares: Mapping[str, Share | None] = field(default_factory=dict)
    reached: Mapping[str, Sequence[Reached]] = field(default_factory=dict)
    times: Mapping[int, OperatorTime] = field(default_factory=dict)
    held: Mapping[str, Waiting] = field(default_factory=dict)
    hot: Mapping[str, HotSample] = field(default_factory=dict)
    replayed: Mapping[str, Replayed] = field(default_factory=dict)
    failures: Mapping[str, Failures] = field(default_factory=dict)
    facts: Mapping[str, Facts] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[Report], tuple[Any, ...]]:
        """Pickle the values without their names: with many workers, thousands of reports are pickled in a tick."""
        return Report, _VALUES(self)


_VALUES = attrgetter(*(it.name for it in fields(Report)))


def held_in(reports: Iterable[Report]) -> dict[str, Waiting]:
    """Return the open results of operators, over all workers."""
    held: dict[str, Waiting] = {}
    for it in reports:
        merge_held(held, it.held)
    return held


_NANOSECOND = 1e-9
"""Seconds; busy times are counted in whole nanoseconds."""

_MOST_KINDS = 20
"""Kinds of errors counted per operator. More: longer reports; fewer: rare errors are not listed."""


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """The measurements of an operator on all workers.

    Attributes:
        busy: the seconds it spent processing records, summed over the workers.
        batches: the number of batches.
        largest: the number of records in the largest batch of the last report with records.
        calls: the greatest number of simultaneous calls of a worker in the last report with records.
        polls: the polls of a source.
        saturated: the polls that returned as many records as they asked for.
        made: the records that came as columns and became objects while it ran.
        demotions: how many workers gave up its arrays, over all restarts.
        taken_by_worker: the records that each worker received since the number of workers last changed.
        busy_by_worker: the seconds in which each worker was busy since then.
    """

    busy: float
    batches: int
    largest: int
    calls: int
    polls: int
    saturated: int
    made: int
    demotions: int
    taken_by_worker: Sequence[int]
    busy_by_worker: Sequence[float]


class RunSums:
    """Adds up the reports of a run; may be read from any thread.

    Attributes:
        counts: the counts of all workers: see `malflow.engine.worker_reports.WorkerReports`.
        errors: the numbers of failures that did not end the run, by operator and kind.
        examples: the last failure noted, by operator.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.errors: dict[str, Mapping[str, int]] = {}
        self.examples: dict[str, str] = {}
        self._before: Mapping[str, int] = {}
        self._batches: Counter[str] = Counter()
        self._polls: Counter[str] = Counter()
        self._saturated: Counter[str] = Counter()
        self._made: Counter[str] = Counter()
        self._demotions: Counter[str] = Counter()
        self._last: Sequence[dict[str, Facts]] = ()
        self._taken: Sequence[dict[str, int]] = ()
        self._busy: Sequence[dict[str, int]] = ()
        self.place(1)

    def place(self, parallelism: int) -> None:
        """Continue with new workers; the sums of each start at zero.

        Args:
            parallelism: their number.
        """
        busy = Counter(self._before)
        for of_worker in self._busy:
            busy.update(of_worker)
        self._before = busy
        self._busy = [{} for _ in range(parallelism)]
        self._taken = [{} for _ in range(parallelism)]
        self._last = [{} for _ in range(parallelism)]

    def add(self, reports: Iterable[Report]) -> None:
        """Add the reports of a tick."""
        counts, is_shared = self.counts, len(self._taken) > 1
        for it in reports:
            taken = self._taken[it.worker]
            for name, count in it.counts.items():
                counts[name] += count
                if is_shared:
                    taken[name] = taken.get(name, 0) + count
            if it.facts:
                self._add_facts(it)
            for name, failures in it.failures.items():
                errors = Counter(self.errors.get(name, {}))
                errors.update(failures.errors)
                self.errors[name] = dict(errors.most_common(_MOST_KINDS))
                self.examples[name] = failures.examples[-1]

    def _add_facts(self, report: Report) -> None:
        busy, last, batches = self._busy[report.worker], self._last[report.worker], self._batches
        for name, facts in report.facts.items():
            if facts.busy:
                busy[name] = busy.get(name, 0) + facts.busy
            if facts.batches:
                batches[name] += facts.batches
                last[name] = facts
            if facts.made:
                self._made[name] += facts.made
            if facts.demotions:
                self._demotions[name] += facts.demotions
            if facts.polls:
                self._polls[name] += facts.polls
                self._saturated[name] += facts.saturated

    def of(self, name: str) -> OperatorFacts:
        """Return the measurements of an operator."""
        last = [of_worker[name] for of_worker in self._last if name in of_worker]
        busy = [of_worker.get(name, 0) for of_worker in self._busy]
        taken = [of_worker.get(name, 0) for of_worker in self._taken]
        return OperatorFacts(
            busy=_NANOSECOND * (self._before.get(name, 0) + sum(busy)),
            batches=self._batches[name],
            largest=max((it.largest for it in last), default=0),
            calls=max((it.calls for it in last), default=0),
            polls=self._polls[name],
            saturated=self._saturated[name],
            made=self._made[name],
            demotions=self._demotions[name],
            taken_by_worker=taken if len(taken) > 1 else [self.counts[name]],
            busy_by_worker=[_NANOSECOND * it for it in busy],
        )

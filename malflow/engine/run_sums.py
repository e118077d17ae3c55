"""Sums of the counts and facts that a run's workers report, for each worker and for all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from malflow.engine.facts import Facts
from malflow.engine.reports import Report

__all__ = ["OperatorFacts", "RunSums"]

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
        taken_by_worker: the records that each worker received since the number of workers last changed.
        busy_by_worker: the seconds in which each worker was busy since then.
    """

    busy: float
    batches: int
    largest: int
    calls: int
    polls: int
    saturated: int
    taken_by_worker: Sequence[int]
    busy_by_worker: Sequence[float]


class RunSums:
    """Adds up the reports of a run; may be read from any thread.

    Attributes:
        counts: the counts of all workers: see `malflow.engine.worker.Worker`.
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
            taken_by_worker=taken if len(taken) > 1 else [self.counts[name]],
            busy_by_worker=[_NANOSECOND * it for it in busy],
        )

"""The records that each part of a source has given in a run, how many a second of late, and how busy workers are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import exp
from time import monotonic
from typing import Any, Final

from malflow.engine.parts.balance import Load
from malflow.engine.parts.places import Parts, held_parts
from malflow.engine.reports import Report

__all__ = ["PartProgress", "PartReads", "WorkerProgress"]

_SECONDS: Final = 10.0
"""The age at which a record counts a third of a new one in a rate. Half: rates jump with each burst; double: a change
shows later."""

_EVERY: Final = 1.0
"""Seconds between two updates of the rates, so that short ticks only add. More: rates are older."""

_PARTS_A_SECOND: Final = 10_000
"""The parts after which updates become rarer, since each takes a step for every part that has been read."""

_NANOSECOND: Final = 1e-9
"""Seconds; busy times are counted in whole nanoseconds."""

MOST_PARTS: Final = 1_000
"""The most parts of a source that are listed one by one: a look at a run stays short with a million files."""


@dataclass(frozen=True, slots=True)
class PartProgress:
    """The progress of a part of a source.

    Attributes:
        worker: the worker that reads it.
        records: the number of records since this run started.
        rate: the records a second of late; None if that is unknown yet.
        is_finished: whether it has been read to its end.
    """

    worker: int
    records: int = 0
    rate: float | None = None
    is_finished: bool = False


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """The progress of a worker with its parts.

    Attributes:
        worker: the worker.
        parts: the number of its parts that have not ended, of all sources.
        rate: the records a second that they give of late; None if that is unknown yet.
        busy: the share of time in which it works of late, with these records and others; None if unknown yet.
        lane: a number; workers with the same one take turns, and others work at the same time.
    """

    worker: int
    parts: int
    rate: float | None
    busy: float | None = None
    lane: int = 0


@dataclass(slots=True)
class _Rate:
    """A part that has been read: where, and how much, at the last update of its rate too."""

    worker: int
    records: int = 0
    before: int = 0
    rate: float = 0.0


class PartReads:
    """The records and rates of the parts of a run; may be read from any thread.

    A tick only adds. Once a second, the rates follow: each is an exponential average, corrected for the short time
    since the start.

    Args:
        near: the operators that work on records before their first exchange.
        clock: a clock in seconds that only advances.
    """

    def __init__(self, near: Iterable[str] = (), clock: Callable[[], float] = monotonic) -> None:
        self._near = frozenset(near)
        self._spent: list[list[int]] = []
        self._busy: list[Load] = []
        self._clock = clock
        self._began = self._at = self._counted = clock()
        self._read: dict[str, dict[Any, _Rate]] = {}
        self._ended: dict[str, dict[Any, int]] = {}

    def note(self, reports: Sequence[Report]) -> None:
        """Add the records of a tick, and the parts that have ended in it."""
        for report in reports:
            for name, by_part in report.read.items():
                of_source = self._read.setdefault(name, {})
                for part, count in by_part.items():
                    entry = of_source.get(part)
                    if entry is None:
                        entry = of_source[part] = _Rate(report.worker)
                    entry.records += count
                    entry.worker = report.worker
            for name, ended in report.ended.items():
                self._ended.setdefault(name, {}).update(dict.fromkeys(ended, report.worker))
            if report.facts and report.worker < len(self._spent):
                spent = self._spent[report.worker]
                for name, facts in report.facts.items():
                    spent[name in self._near] += facts.busy
        now = self._clock()
        passed = now - self._at
        if passed >= _EVERY and passed >= sum(map(len, self._read.values())) / _PARTS_A_SECOND:
            self._update(now)

    def _update(self, now: float) -> None:
        passed, self._at = now - self._at, now
        kept = exp(-passed / _SECONDS)
        for of_source in self._read.values():
            for it in of_source.values():
                it.rate = kept * it.rate + (1 - kept) * (it.records - it.before) / passed
                it.before = it.records
        for worker, (far, near) in enumerate(self._spent):
            self._spent[worker] = [0, 0]
            share = (1 - kept) * _NANOSECOND / passed
            old = self._busy[worker]
            self._busy[worker] = Load(kept * old.busy + share * (far + near), kept * old.near + share * near)

    def place(self, parts: Parts) -> None:
        """Continue with parts that have moved between workers, or with other workers."""
        workers = max(map(len, parts.values()), default=0)
        if workers != len(self._spent):
            self._spent = [[0, 0] for _ in range(workers)]
            self._busy = [Load(0.0, 0.0)] * workers
            self._counted = self._at
        for name, held in held_parts(parts).items():
            for part, it in self._read.get(name, {}).items():
                it.worker = held.get(part, it.worker)
            ended = self._ended.get(name, {})
            ended.update({part: held.get(part, at) for part, at in ended.items()})

    @property
    def ended(self) -> Mapping[str, Mapping[Any, int]]:
        """The parts of each source that have been read to their end, with their workers."""
        return self._ended

    @property
    def _correction(self) -> float | None:
        return _correction(self._at - self._began)

    def rates(self, name: str) -> dict[Any, float]:
        """Return the records a second of each part of a source that has been read."""
        factor = self._correction or 0.0
        return {part: factor * it.rate for part, it in [*self._read.get(name, {}).items()]}

    def by_part(self, parts: Parts) -> dict[str, dict[Any, PartProgress]]:
        """Return the progress of each part, by source; of more than 1,000, the fastest that have not ended.

        Args:
            parts: the parts of each source that each worker holds.
        """
        factor = self._correction
        return {name: dict(self._listed(name, by_worker, factor)) for name, by_worker in parts.items()}

    def _listed(
        self, name: str, by_worker: Sequence[Sequence[Any]], factor: float | None
    ) -> Iterator[tuple[Any, PartProgress]]:
        read, ended = self._read.get(name, {}), self._ended.get(name, {})
        held: list[tuple[Any, int]]
        if sum(map(len, by_worker)) <= MOST_PARTS:
            held = [(part, worker) for worker, them in enumerate(by_worker) for part in them]
        else:
            live = [(part, it) for part, it in [*read.items()] if part not in ended]
            held = [(part, it.worker) for part, it in nlargest(MOST_PARTS, live, key=lambda pair: pair[1].rate)]
        for part, worker in held:
            it = read.get(part) or _Rate(worker)
            rate = None if factor is None else factor * it.rate
            yield part, PartProgress(worker, it.records, rate, part in ended)

    def loads(self) -> list[Load]:
        """Return how busy each worker is of late."""
        factor = _correction(self._at - self._counted) or 0.0
        return [Load(factor * it.busy, factor * it.near) for it in self._busy]

    def by_worker(self, parts: Parts, lanes: Sequence[int]) -> list[WorkerProgress]:
        """Return the progress of each worker with its parts.

        Args:
            parts: the parts of each source that each worker holds.
            lanes: a number for each worker; workers with the same one take turns.
        """
        busy = self.loads()
        counts: Counter[int] = Counter()
        for by_worker in parts.values():
            counts.update({worker: len(them) for worker, them in enumerate(by_worker)})
        ended: Counter[int] = Counter()
        for of_source in [*self._ended.values()]:
            ended.update([*of_source.values()])
        rates: defaultdict[int, float] = defaultdict(float)
        for read in [*self._read.values()]:
            for it in [*read.values()]:
                rates[it.worker] += it.rate
        factor = self._correction
        if factor is None or len(busy) != len(lanes):
            return [WorkerProgress(at, counts[at] - ended[at], None, None, lane) for at, lane in enumerate(lanes)]
        return [
            WorkerProgress(at, counts[at] - ended[at], factor * rates[at], busy[at].busy, lane)
            for at, lane in enumerate(lanes)
        ]


def _correction(seconds: float) -> float | None:
    """Return the factor of an average that began at zero some seconds ago; None if that is now."""
    weight = 1 - exp(-seconds / _SECONDS)
    return 1 / weight if weight > 0 else None

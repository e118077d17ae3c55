"""The recent past of a run: its rates, its events and its timeline, each bounded in memory."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate

from malflow.runtime.progress.progress import Progress

__all__ = ["History", "Rates", "Sample"]

_MOST_SAMPLES = 600
"""Ten minutes at a sample a second; of a dataflow of 200 operators, some 3 MB."""

_RATE_SECONDS = 5.0
"""The time over which a rate is taken."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The records a second that operators took and gave lately.

    Attributes:
        polled: those that all sources gave; None if unknown.
        by_operator: by the name of the operator, those that it took, and those that it gave by output.
        busy: by the name of the operator, its busy seconds per second, summed over its workers.
    """

    polled: float | None = None
    by_operator: dict[str, tuple[float, list[float]]] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)

    def of(self, name: str) -> tuple[float | None, list[float] | None]:
        """Return the rates of an operator; None where they are unknown."""
        return self.by_operator.get(name, (None, None))


@dataclass(frozen=True, slots=True)
class Sample:
    """The counts of a run at a time.

    Attributes:
        seconds: the time, by a clock that only advances.
        at: the time, in UTC.
        tick: the number of the last tick.
        counts: for each operator, the records that it took, then those that it gave by output.
        busy: for each operator, its busy seconds so far, summed over its workers.
    """

    seconds: float
    at: datetime
    tick: int
    counts: array[int]
    busy: array[float]


class History:
    """The samples of a run, for rates. A restart begins new ones, since its counts begin at zero."""

    def __init__(self) -> None:
        self._shape: tuple[tuple[str, int], ...] = ()
        self._sources: list[str] = []
        self._restarts = 0
        self._samples: deque[Sample] = deque(maxlen=_MOST_SAMPLES)

    def add(self, progress: Progress, seconds: float) -> None:
        """Add a sample.

        Args:
            progress: the progress of the run.
            seconds: the time, by a clock that only advances.
        """
        shape = tuple((name, len(it.given)) for name, it in progress.operators.items())
        if shape != self._shape or progress.restarts != self._restarts:
            self._samples.clear()
            self._shape, self._restarts = shape, progress.restarts
            self._sources = [name for name, it in progress.operators.items() if it.kind == "source"]
        counts = array("q")
        for it in progress.operators.values():
            counts.append(it.taken)
            counts.extend(it.given)
        busy = array("d", (it.busy for it in progress.operators.values()))
        self._samples.append(Sample(seconds, progress.at, progress.tick, counts, busy))

    @property
    def rates(self) -> Rates:
        """The rates of the last seconds; unknown before the second sample."""
        samples = [*self._samples]
        if not samples:
            return Rates()
        last = samples[-1]
        first = next(it for it in samples if last.seconds - it.seconds <= _RATE_SECONDS)
        if first is last:
            return Rates()
        by_operator = dict(self._rates_between(first, last))
        passed = last.seconds - first.seconds
        busy = {name: (last.busy[at] - first.busy[at]) / passed for at, (name, _) in enumerate(self._shape)}
        return Rates(sum(by_operator[name][0] for name in self._sources), by_operator, busy)

    def _rates_between(self, first: Sample, last: Sample) -> Iterator[tuple[str, tuple[float, list[float]]]]:
        passed = last.seconds - first.seconds
        for name, at, outputs in self.columns:
            each = [max(0, last.counts[it] - first.counts[it]) / passed for it in range(at, at + outputs + 1)]
            yield name, (each[0], each[1:])

    @property
    def columns(self) -> list[tuple[str, int, int]]:
        """The name of each operator, where its counts begin in a sample, and the number of its outputs."""
        ends = accumulate(outputs + 1 for _, outputs in self._shape)
        return [(name, end - outputs - 1, outputs) for (name, outputs), end in zip(self._shape, ends, strict=True)]

    @property
    def samples(self) -> list[Sample]:
        """The samples, oldest first."""
        return [*self._samples]

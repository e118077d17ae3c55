"""A worker's report after a tick."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from operator import attrgetter
from typing import Any

from malflow.engine.facts import Facts
from malflow.failures import Failures, Replayed
from malflow.operators.hosting.reader import Lags, Share
from malflow.operators.hot_keys import HotSample
from malflow.operators.waiting import OperatorTime, Reached, Waiting, merge_held

__all__ = ["Report", "held_in"]


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
        live: the sources that have an unfinished part on this worker.
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
    live: Sequence[str] = ()
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

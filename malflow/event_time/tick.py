"""What a tick may know of the world outside its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["Tick"]

_BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick, as its runtime made it: the same for all workers, and again the same when a tick is repeated.

    Attributes:
        number: the number of the tick.
        now: when it began, in UTC, never before an earlier tick of the job. Operators read no other clock.
        started: when the first tick of the run began.
        ended: the sources without an unfinished part on any worker.
        finished: sources and workers: the source has no unfinished part on that worker.
        passed: how much later than the tick before it began; zero in the first tick of a run, since downtime does not
            count, and after a change of the number of workers.
        quiet: sources and workers: the source's parts on that worker emitted no records in the tick before. In the
            first tick of a run these are all.
        quiet_time: the `passed` of the tick before, by which the silence of sources in `quiet` has grown.
        lifts: epochs by operator: the generator issues the epoch where its source is finished or silent.
        final: whether this is the last tick, in which the epoch `MAX` flows. It is not in the history of the state.
        polls: whether sources are polled.
        explains: whether reports tell how far operators have come in event time, before the tick.
        asks_held: whether the input has ended, and reports tell the open results of operators.
    """

    number: int = 0
    now: datetime = _BEFORE_ALL
    started: datetime = _BEFORE_ALL
    ended: frozenset[str] = frozenset()
    finished: frozenset[tuple[str, int]] = frozenset()
    passed: timedelta = timedelta(0)
    quiet: frozenset[tuple[str, int]] = frozenset()
    quiet_time: timedelta = timedelta(0)
    lifts: Mapping[str, Any] = field(default_factory=dict)
    final: bool = False
    polls: bool = True
    explains: bool = False
    asks_held: bool = False

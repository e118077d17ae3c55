"""The facts that a tick may use besides its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from malflow.failures import Replay
from malflow.records.batch import BATCH_SIZE

__all__ = ["Tick"]

_BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick, built by the runtime: the same for all workers, and the same when a tick is repeated.

    Attributes:
        number: the number of the tick.
        now: its start, in UTC, never before an earlier tick of the job. Operators read no other clock.
        started: the start of the first tick of the run.
        ended: the sources without an unfinished part on any worker.
        finished: pairs of source and worker: the source has no unfinished part on that worker.
        passed: the time since the start of the previous tick; zero in the first tick of a run, since downtime does not
            count, and after a rescale.
        quiet: pairs of source and worker: the source's parts on that worker emitted no records in the previous tick. In
            the first tick of a run, all of them.
        quiet_time: the `passed` of the previous tick, by which the silence of sources in `quiet` has grown.
        lifts: epochs by operator: the generator issues the epoch on workers where its source is finished or silent.
        final: whether this is the last tick, which emits the epoch `MAX`. Its changes of state are not kept.
        polls: whether sources are polled.
        limit: the maximum number of records that a source polls on a worker; see `malflow.engine.ticks`.
        explains: whether reports include the progress of operators in event time before the tick.
        asks_held: whether the input has ended and reports include the open results of operators.
        replays: the requests about dead letters that operators serve before their input.
        given: the parts of each source that each worker gets; their readers are built at the beginning of the tick.
        waiting: the sources with parts that no worker has got yet.
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
    limit: int = BATCH_SIZE
    explains: bool = False
    asks_held: bool = False
    replays: tuple[Replay, ...] = ()
    given: Mapping[str, Sequence[Sequence[Any]]] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()

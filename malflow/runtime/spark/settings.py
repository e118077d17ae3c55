"""How a run on Spark runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from malflow.errors import CommitUnknown, RunFailed, StoreError
from malflow.runtime.spark.changelog import ScratchPlace
from malflow.snapshot.persistence import Persistence, Start

__all__ = ["PASSING", "RestartPolicy", "Settings"]

PASSING: Final = (RunFailed, StoreError, CommitUnknown)
"""What may not be so any more when the run is started again."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """What to do when Spark, a store or a machine fails, and not the dataflow: go on from the last snapshot.

    A dataflow whose own code fails is not started again: Spark has tried the task as often as its setting
    ``spark.task.maxFailures`` says. A run that keeps nothing can't go on, and none can whose Java is gone, be the
    session malflow's own or not: PySpark has one Java for a process, so that it is for another process to go on.

    Attributes:
        attempts: how often in a row without a snapshot in between; 0 never starts again.
        backoff: how long to wait before the first start; twice as long before each further one.
    """

    attempts: int = 3
    backoff: timedelta = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run runs.

    Attributes:
        name: the name of its query.
        is_named: whether the user gave it: otherwise another one is made where a query has it already.
        persistence: where state is kept.
        start: how the run begins.
        interval: the seconds between snapshots, None for none.
        pause: the seconds from the start of one tick to that of the next, at least.
        most: how many records a tick may poll, over all workers.
        poll_seconds: how long a worker may go on polling in a tick.
        debug: whether to check what costs too much to check always.
        attempts: how often Spark tries a task.
        scratch: where changes lie between ticks.
        restart: what to do when Spark fails.
        is_temporary: whether the folder of the changes was made for the run, and goes with it.
    """

    name: str
    is_named: bool
    persistence: Persistence
    start: Start
    interval: float | None
    pause: float
    most: int | None
    poll_seconds: float
    debug: bool
    attempts: int
    scratch: ScratchPlace
    restart: RestartPolicy
    is_temporary: bool

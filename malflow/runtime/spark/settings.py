"""Settings of a run on Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from malflow.errors import CommitUnknown, RunFailed, StoreError
from malflow.runtime.spark.changelog import ScratchPlace
from malflow.snapshot.persistence import Persistence, RestoreOptions

__all__ = ["PASSING", "RestartPolicy", "Settings"]

PASSING: Final = (RunFailed, StoreError, CommitUnknown)
"""Errors that may be transient: a restart can succeed."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often to restart a run from its last snapshot when Spark, a store or a machine fails.

    A run whose own code fails is not restarted: Spark has already tried the task as often as its setting
    ``spark.task.maxFailures`` says. Nor is a run without persistence, or one whose Java is gone: PySpark has one Java
    per process, so only another process can continue the job.

    Attributes:
        attempts: the most restarts in a row without a snapshot in between; 0 never restarts.
        backoff: the wait before the first restart; it doubles before each further one.
    """

    attempts: int = 3
    backoff: timedelta = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run on Spark.

    Attributes:
        name: the name of the query.
        is_named: whether the user chose the name; otherwise a unique one is generated if a query already has it.
        persistence: where snapshots are saved.
        start: how the run restores state.
        interval: the seconds between snapshots; None for no periodic ones.
        pause: the fewest seconds from the start of one tick to that of the next.
        most: the most records that a tick may poll, over all workers.
        poll_seconds: how long a worker may keep polling in a tick.
        debug: whether to make checks that are too expensive to make always.
        attempts: how often Spark tries a task.
        scratch: the place of the changelog.
        restart: how often to restart the run after a failure.
        is_temporary: whether the scratch folder was created for the run and is removed with it.
    """

    name: str
    is_named: bool
    persistence: Persistence
    start: RestoreOptions
    interval: float | None
    pause: float
    most: int | None
    poll_seconds: float
    debug: bool
    attempts: int
    scratch: ScratchPlace
    restart: RestartPolicy
    is_temporary: bool

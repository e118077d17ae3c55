"""Restarts of a run from its last snapshot, after failures outside the dataflow."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from malflow.checks import checked_duration, checked_seconds
from malflow.durations import Duration
from malflow.engine.plan import Program
from malflow.errors import CommitUnknown, RunFailed, StoreError
from malflow.events import Restarted
from malflow.runtime.progress import Progress
from malflow.runtime.requests import RunRequests
from malflow.runtime.starting import RestartGuard

__all__ = ["PASSING", "Attempt", "RestartPolicy", "Restarts"]

PASSING: Final = (RunFailed, StoreError, CommitUnknown)
"""Errors that may be transient: a restart can succeed."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The limits of restarts from the last snapshot, when Spark, a process, a store or a machine fails.

    A run is not restarted if its own code fails; Spark has already retried the task, up to ``spark.task.maxFailures``.
    Nor is a run without a persistence. On Spark, nor is a run without Java: PySpark has one Java per process, so only
    another process can continue the job.

    Attributes:
        attempts: the maximum number of restarts in a row without a snapshot in between; 0 never restarts.
        backoff: the delay before the first restart; it doubles with each further one.

    Raises:
        GraphError: if `backoff` is not a span of time.
    """

    attempts: int = 3
    backoff: Duration = timedelta(seconds=1)

    def __post_init__(self) -> None:
        """Check the delay."""
        object.__setattr__(
            self, "backoff", checked_duration("RestartPolicy", "backoff", self.backoff, may_be_zero=True)
        )


_TURN = 0.05
"""The seconds after which a pause notices a stop."""


class Attempt(Protocol):
    """One attempt at a run; a restart makes another.

    Attributes:
        has_begun: whether it has claimed its job, so that a restart restores the latest snapshot.
        began_with: the id of the snapshot that it began with; None for an empty state.
        has_kept: whether it has taken a snapshot since it began.
        progress: its progress.
    """

    @property
    def has_begun(self) -> bool: ...  # noqa: D102 - described above

    @property
    def began_with(self) -> int | None: ...  # noqa: D102 - described above

    @property
    def has_kept(self) -> bool: ...  # noqa: D102 - described above

    @property
    def progress(self) -> Progress: ...  # noqa: D102 - described above


class Restarts:
    """Decides whether a failed attempt is followed by another, and waits before it.

    Args:
        program: the program.
        policy: the limits; None for the default ones.
        requests: the requests to the run, and its listeners.
        keeps: whether the run has a persistence.

    Attributes:
        count: the number of restarts so far.
        guard: rejects a restart that would count records twice.
    """

    def __init__(self, program: Program, policy: RestartPolicy | None, requests: RunRequests, *, keeps: bool) -> None:
        self.count = 0
        self.guard = RestartGuard(program)
        self._policy = policy or RestartPolicy()
        self._requests = requests
        self._keeps = keeps
        self._failures = 0

    def allows(self, attempt: Attempt, error: BaseException) -> bool:
        """Record the failure of an attempt; return whether another one follows, after a pause.

        Args:
            attempt: the attempt.
            error: one of `PASSING`.
        """
        self._failures = 1 if attempt.has_kept else self._failures + 1
        if attempt.has_begun:
            self.guard.note_failure(attempt.began_with, attempt.progress.records, error)
        return not self._requests.stopping and self._keeps and self._failures <= self._policy.attempts

    def pause(self, error: BaseException) -> None:
        """Announce a restart, and wait before it; a stop cuts the wait short."""
        self.count += 1
        self._requests.phase = "restarting"
        backoff = checked_seconds("RestartPolicy", "backoff", self._policy.backoff, may_be_zero=True)
        pause = backoff * 2 ** (self._failures - 1)
        self._requests.listeners.notify(Restarted(self.count, error, pause))
        deadline = time.monotonic() + pause
        while time.monotonic() < deadline and not self._requests.stopping:
            time.sleep(_TURN)

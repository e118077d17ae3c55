"""Retries with exponential backoff, up to a deadline."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from malflow.store.contract import Transient, UnknownOutcome

__all__ = ["Retry", "SystemContext"]

T = TypeVar("T")

_FIRST_PAUSE = 0.05
"""The seconds before the first retry; each pause is double the previous one. Half of it strains a store under load
more, double delays a snapshot after a single fault."""

_LONGEST_PAUSE = 5.0
"""The longest pause between retries in seconds. Half of it asks a store without an answer twice as often, double
notices its return later."""


def _token() -> str:
    return secrets.token_hex(8)


def _today() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class SystemContext:
    """The clock, the randomness and the process id that a run uses; tests inject their own.

    Attributes:
        token: returns 16 hexadecimal digits, unique.
        monotonic: a monotonic clock, in seconds.
        sleep: sleeps for a number of seconds.
        now: the wall-clock time, for display.
        jitter: returns a random number from 0 to 1.
        process: returns the id of this process.
    """

    token: Callable[[], str] = _token
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    now: Callable[[], datetime] = _today
    jitter: Callable[[], float] = random.random
    process: Callable[[], int] = os.getpid


@dataclass(frozen=True, slots=True)
class Retry:
    """The time limit of retries, the clock for it, and the longest pause in seconds."""

    seconds: float
    environment: SystemContext
    longest_pause: float = _LONGEST_PAUSE

    def attempts(self) -> Iterator[None]:
        """Yield once for each attempt until the deadline; pauses double, with jitter."""
        deadline = self.environment.monotonic() + self.seconds
        pause = _FIRST_PAUSE
        while True:
            yield
            if self.environment.monotonic() + pause > deadline:
                return
            self.environment.sleep(pause * (0.5 + self.environment.jitter()))
            pause = min(2 * pause, self.longest_pause)

    def of(self, operation: Callable[[], T]) -> T:
        """Run an idempotent operation until it succeeds or the deadline passes.

        Raises:
            StoreError: the last transient one, or immediately one that a retry would not resolve.
        """
        last: Transient | UnknownOutcome | None = None
        for _ in self.attempts():
            try:
                return operation()
            except (Transient, UnknownOutcome) as error:
                last = error
        raise last if last is not None else AssertionError("there is always a first attempt")

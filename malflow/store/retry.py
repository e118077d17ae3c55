"""One policy for what a store could not do at once: try again, more and more slowly, until a deadline."""

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

__all__ = ["Environment", "Retry"]

T = TypeVar("T")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0


def _token() -> str:
    return secrets.token_hex(8)


def _today() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Environment:
    """What a run takes from outside; tests give their own.

    Attributes:
        token: makes 16 hexadecimal digits that were never made before.
        monotonic: a clock in seconds that never goes back.
        sleep: waits for so many seconds.
        now: the time of day, for display.
        jitter: a number from 0 to 1.
        process: tells one process from another.
    """

    token: Callable[[], str] = _token
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    now: Callable[[], datetime] = _today
    jitter: Callable[[], float] = random.random
    process: Callable[[], int] = os.getpid


@dataclass(frozen=True, slots=True)
class Retry:
    """How long to go on trying, and with whose clock."""

    seconds: float
    environment: Environment

    def attempts(self) -> Iterator[None]:
        """Give a turn at once, then one after each pause, until the deadline; pauses double, with jitter."""
        deadline = self.environment.monotonic() + self.seconds
        pause = _FIRST_PAUSE
        while True:
            yield
            if self.environment.monotonic() + pause > deadline:
                return
            self.environment.sleep(pause * (0.5 + self.environment.jitter()))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def of(self, operation: Callable[[], T]) -> T:
        """Do what may be done any number of times, until it succeeds or the deadline passes.

        Raises:
            StoreError: the last one, or at once one that will not go away by itself.
        """
        last: Transient | UnknownOutcome | None = None
        for _ in self.attempts():
            try:
                return operation()
            except (Transient, UnknownOutcome) as error:
                last = error
        raise last if last is not None else AssertionError("there is always a first attempt")

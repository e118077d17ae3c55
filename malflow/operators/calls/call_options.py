"""How the function of a `map_async` is called, as plain data, and its counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Any

from malflow.failures import Breaker, Rate, Retry
from malflow.operators.contract import Counts
from malflow.records.batch import BATCH_SIZE

__all__ = ["CALL_COUNTS", "CallOptions"]

CALL_COUNTS = Counts(counters=("calls", "retried", "timed_out", "opened"))
"""The calls, the attempts after the first, those that took too long, and how often the breaker opened."""

_WAVES = 4
"""How often a tick of the least size uses the capacity."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How a function is called.

    Attributes:
        function: the function, or an object that is one and may have ``open()`` and ``close()``.
        capacity: the maximum number of calls at a time.
        timeout: how long an attempt may take.
        batch: the maximum number of values in a list; None to call with each value.
        retry: how often a call is repeated.
        rate: how many attempts begin in a second.
        breaker: when attempts are held back.
        threads: the number of threads that call a plain function; None for an asynchronous one.
    """

    function: Callable[[Any], Any]
    capacity: int
    timeout: timedelta | None = None
    batch: int | None = None
    retry: Retry | None = None
    rate: Rate | None = None
    breaker: Breaker | None = None
    threads: int | None = None

    @property
    def least_batch(self) -> int:
        """The number of records that sources should poll at least, for calls at the same time.

        It is several times the capacity, but no more than may begin in a second.
        """
        calls = _WAVES * self.capacity
        if self.rate is not None:
            calls = min(calls, ceil(self.rate.per_second))
        return min(BATCH_SIZE, calls * (self.batch or 1))

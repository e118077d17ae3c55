"""Limits for calls of a system outside of the dataflow, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from malflow.checks import check_choice, check_number, check_whole_number, checked_duration
from malflow.durations import Duration
from malflow.errors import GraphError

__all__ = ["Breaker", "BreakerOpen", "Rate"]


@dataclass(frozen=True, slots=True)
class Rate:
    """How many calls begin in a second: a token bucket for all workers of a process.

    Each process has the share of its workers: one of two processes with as many workers each begins half of the calls.

    Args:
        per_second: the number of calls.
        burst: how many of them may begin at once after a pause.

    Raises:
        GraphError: if an argument is invalid.
    """

    per_second: float
    burst: int = 1

    def __post_init__(self) -> None:
        check_number("Rate", "per_second", self.per_second, above=0)
        check_whole_number("Rate", "burst", self.burst)


@dataclass(frozen=True, slots=True)
class Breaker:
    """When calls are held back, since too many of the last attempts have failed.

    A breaker opens if `failures` of the last `of` attempts have failed. After `open_for` one call is tried: if it
    succeeds, the breaker closes; if it fails, the breaker stays open for as long again.

    Args:
        failures: the number of failures that opens it.
        of: the number of attempts that it looks back on.
        open_for: how long it stays open.
        then: how calls are handled while it is open. ``"wait"``: they wait inside the tick, for an outage of any
            length; if the one call that is tried fails, that does not count as one of its attempts. ``"fail"``: they
            fail at once with a `BreakerOpen`, and the operator's `on_error` decides. ``"dead_letter"``: their records
            become dead letters, even if `on_error` is a function that would decide otherwise.

    Raises:
        GraphError: if an argument is invalid.
    """

    failures: int = 20
    of: int = 100
    open_for: Duration = timedelta(seconds=30)
    then: Literal["wait", "fail", "dead_letter"] = "wait"

    def __post_init__(self) -> None:
        check_whole_number("Breaker", "failures", self.failures)
        check_whole_number("Breaker", "of", self.of)
        if self.failures > self.of:
            raise GraphError(f"Breaker looks back on of={self.of} attempts, fewer than failures={self.failures}")
        object.__setattr__(self, "open_for", checked_duration("Breaker", "open_for", self.open_for))
        check_choice("Breaker", "then", self.then, ("wait", "fail", "dead_letter"))


class BreakerOpen(ConnectionError):
    """A call was not made, since too many of the last attempts have failed."""

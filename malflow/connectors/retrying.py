"""Retry actions on a server while its connection is lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from malflow.stopping import is_stopping
from malflow.store.retry import Retry, SystemContext

__all__ = ["repeated"]

T = TypeVar("T")


_LOG = logging.getLogger("malflow")
_TOLD_AT = 2
"""The attempt whose failure is the first to be logged: a deadlock, say, is resolved by the next one."""
_TOLD_EVERY = 30.0
"""The seconds between two warnings while an action is retried. Half of it doubles the lines during an outage, double
makes it seem to be over."""

_LONGEST_WAIT = 2.0
"""The longest pause between attempts in seconds. Half of it asks a server without an answer twice as often, double
notices its return later."""

_STEP = 0.2
"""The longest sleep in seconds without a check for a stopping run. Half of it wakes twice as often, double stops
later."""

_AT_ONCE = 1.0
"""Seconds within which the first use of a lost connection fails."""


def repeated(
    action: Callable[[], T],
    seconds: float,
    is_lost: Callable[[Exception], bool],
    text_of: Callable[[Exception], object] = str,
) -> T:
    """Return the result of an idempotent action; retry it while `is_lost` returns True for its error.

    A run that is stopping is not held up: the next failure is final, unless it is the first one and immediate. A
    connection that was lost unnoticed fails like that when it is used again.

    Args:
        action: raises an exception if it fails.
        seconds: how long to retry before the action's exception is raised.
        is_lost: whether an exception comes from the connection or from contention.
        text_of: returns the text of an exception for the log, without secrets.
    """
    last: Exception | None = None
    tell_at = 0.0
    retry = Retry(seconds, SystemContext(sleep=_sleep), _LONGEST_WAIT)
    for attempt, _ in enumerate(retry.attempts(), 1):
        began = time.monotonic()
        try:
            return action()
        except Exception as error:
            is_stale = attempt == 1 and time.monotonic() - began < _AT_ONCE
            if not is_lost(error) or (is_stopping() and not is_stale):
                raise
            last = error
            if attempt >= _TOLD_AT and time.monotonic() >= tell_at:
                tell_at = time.monotonic() + _TOLD_EVERY
                _LOG.warning("%s; retrying for %g s", text_of(error), seconds)
    raise last if last is not None else AssertionError("there is always a first attempt")


def _sleep(seconds: float) -> None:
    """Wait, but not for long once the run is stopping."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not is_stopping():
        time.sleep(min(left, _STEP))

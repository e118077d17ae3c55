"""Actions on a server that are repeated while its connection is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["repeated"]

T = TypeVar("T")

_FIRST_WAIT = 0.05
_LONGEST_WAIT = 2.0


def repeated(action: Callable[[], T], seconds: float, is_lost: Callable[[Exception], bool]) -> T:
    """Return the result of an idempotent action, called again while `is_lost` says that a later call may succeed.

    Args:
        action: raises an exception if it fails.
        seconds: after that long, the action's exception is raised.
        is_lost: whether an exception is one of the connection or of contention.
    """
    deadline, wait = time.monotonic() + seconds, _FIRST_WAIT
    while True:
        try:
            return action()
        except Exception as error:
            if not is_lost(error) or time.monotonic() + wait > deadline:
                raise
        time.sleep(wait)
        wait = min(2 * wait, _LONGEST_WAIT)

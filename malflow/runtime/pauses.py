"""The pauses of a run without input."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Pauses"]

_SHORTEST = 0.001
_LONGEST = 0.05
"""Seconds; a pause looks for requests as often, since a signal handler that wakes a thread may block forever."""


class Pauses:
    """Pauses that double from one to the next, up to a limit.

    Args:
        is_cut: whether a pause is to end now.
    """

    def __init__(self, is_cut: Callable[[], bool]) -> None:
        self._is_cut = is_cut
        self._next = _SHORTEST

    def reset(self) -> None:
        """Begin with a short pause again."""
        self._next = _SHORTEST

    def longer(self) -> float:
        """Return the seconds of the next pause."""
        seconds, self._next = self._next, min(2 * self._next, _LONGEST)
        return seconds

    def pause(self, seconds: float) -> None:
        """Pause for some seconds, or until it is cut short."""
        if seconds <= 0:
            return
        deadline = time.monotonic() + seconds
        while not self._is_cut() and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _LONGEST))

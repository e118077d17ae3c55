"""The pauses of a run without input."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Pauses", "Wake"]

_SHORTEST = 0.001
"""The first pause in seconds. Half: more processor time when idle; double: new records wait longer."""

_LONGEST = 0.05
"""Seconds; a pause looks for requests as often, since signal handlers, whose thread may pause, wake nobody."""


class Wake:
    """Ends a pause of another thread; no thread ever waits in `set`, wherever a signal handler interrupts it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """End the pause, or the next one."""
        with suppress(RuntimeError):  # it is set already
            self._lock.release()

    def wait(self, seconds: float) -> None:
        """Pause for some seconds, or until it is set."""
        self._lock.acquire(timeout=max(0.0, seconds))


class Pauses:
    """Pauses that double from one to the next, up to a limit.

    Args:
        is_cut: whether a pause is to end now.
        wake: makes a pause look at that at once.
    """

    def __init__(self, is_cut: Callable[[], bool], wake: Wake | None = None) -> None:
        self._is_cut = is_cut
        self._wait = (wake or Wake()).wait
        self._next = _SHORTEST

    @property
    def is_long(self) -> bool:
        """Whether pauses have reached the limit; there has then been no input for a while."""
        return self._next >= _LONGEST

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
            self._wait(min(left, _LONGEST))

"""Detect servers that hold a connection open and do not answer, because they are frozen or unreachable.

A statement may take hours, so silence alone proves nothing. A server that has been silent for some seconds is probed on
another connection; if it does not answer there either, it is given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from malflow.connectors.background import Background
from malflow.stopping import is_stopping

__all__ = ["Attention", "ServerSilent", "attended"]

T = TypeVar("T")

_LONGEST_SILENCE = 5.0
"""The most seconds of silence before a probe. Half of it opens twice as many connections during long statements, double
notices a frozen server later."""

_LONGEST_ANSWER = 10.0
"""The most seconds for the answer to a probe. A shorter time gives up servers under load, a longer one keeps the run
waiting for a frozen one."""

_LEAST = 0.5
"""The least seconds for each of both, even if `retry_for` is shorter, and the silence once the run is stopping: a
server's ordinary pauses are shorter."""

_STEP = 0.1
"""The seconds between two checks while a driver's action runs; the end of the action ends the wait at once. Half of it
wakes the thread twice as often, double delays the checks."""


class ServerSilent(OSError):
    """A server does not answer, neither on the connection in use nor on another one."""


class Attention:
    """Notice that a server no longer answers.

    Args:
        answers: returns whether the server answers on another connection; called on another thread.
        retry_for: the longest time to wait for the server before it is given up.
        clock: returns the time in seconds.
    """

    def __init__(
        self, answers: Callable[[], bool], retry_for: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._answers, self._clock = answers, clock
        self._silence = min(_LONGEST_SILENCE, max(_LEAST, retry_for / 2))
        self._answer = min(_LONGEST_ANSWER, max(_LEAST, retry_for / 2))
        self._asked: tuple[float, Background[bool]] | None = None
        self._heard_at = self._began_at = clock()

    def heard(self) -> None:
        """Note that the server sent something, or that a wait begins."""
        self._heard_at = self._began_at = self._clock()
        self._asked = None

    def check(self) -> None:
        """Probe a server that has been silent for long, without waiting.

        Raises:
            ServerSilent: if it does not answer; sooner if the run is stopping.
        """
        now, hurried = self._clock(), is_stopping()
        if self._asked is None:
            if now - self._heard_at >= (_LEAST if hurried else self._silence):
                self._asked = now, Background(self._answers)
            return
        asked_at, asked = self._asked
        if asked.done:
            if not asked.result():
                raise self._given_up(now)
            self._heard_at, self._asked = now, None
        elif now - asked_at >= (2 * _LEAST if hurried else self._answer):
            raise self._given_up(now)

    def _given_up(self, now: float) -> ServerSilent:
        return ServerSilent(f"the server has not answered for {now - self._began_at:.0f} s, nor on a new connection")


def attended(action: Callable[[], T], attention: Attention) -> T:
    """Run a driver's uninterruptible action on a thread of its own, and return its result.

    Raises:
        ServerSilent: if the server is silent meanwhile. The action continues, so it must not commit afterwards.
    """
    attention.heard()
    running = Background(action)
    while True:
        running.join(_STEP)
        if running.done:
            return running.result()
        attention.check()

"""Attention to servers that hold a connection open and do not answer: frozen, or out of reach.

A statement may take hours, so that silence alone says nothing. A server that has been silent for some seconds is asked
on another connection; if it does not answer there either, it is given up.
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
_LONGEST_ANSWER = 10.0
_LEAST = 0.5
_STEP = 0.1


class ServerSilent(OSError):
    """A server does not answer, neither where it is waited for nor on another connection."""


class Attention:
    """Notices that a server does not answer any more.

    Args:
        answers: asks the server on another connection, and returns whether it answers; called on another thread.
        retry_for: how long the server is to be waited for: it is given up after that long, or sooner.
        clock: tells the seconds.
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
        """Note that the server said something, or is first waited for."""
        self._heard_at = self._began_at = self._clock()
        self._asked = None

    def check(self) -> None:
        """Ask a server that has been silent for long, without waiting.

        Raises:
            ServerSilent: if it does not answer; soon, if the run is to stop.
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
        return ServerSilent(
            f"the server has not answered for {now - self._began_at:.0f} s, and answers no new connection either"
        )


def attended(action: Callable[[], T], attention: Attention) -> T:
    """Return the result of an action of a driver that can't be interrupted: it runs on a thread of its own.

    Raises:
        ServerSilent: if the server is silent meanwhile; the action continues, so it must not commit then.
    """
    attention.heard()
    running = Background(action)
    while True:
        running.join(_STEP)
        if running.done:
            return running.result()
        attention.check()

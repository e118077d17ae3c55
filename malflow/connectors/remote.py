"""A remote system: transient errors, retries, servers that do not answer, and errors without secrets.

A statement may take hours, so silence alone proves nothing. A server that has been silent for some seconds is probed on
another connection; if it does not answer there either, it is given up.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Generic, TypeVar

from malflow.checks import checked_seconds
from malflow.durations import Duration
from malflow.errors import MalflowError
from malflow.failures import is_stopping
from malflow.store.redaction import redacted
from malflow.store.retry import Retry, SystemContext

__all__ = [
    "Attention",
    "Background",
    "RemoteSystem",
    "ServerSilent",
    "attended",
    "repeated",
]

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


E = TypeVar("E", bound=MalflowError)


class RemoteSystem(ABC, Generic[E]):
    """A server or database of a connector. The repr of a subclass shows its address, never a secret.

    Args:
        asked_by: the class that uses it, for messages.
        retry_for: how long to retry a lost connection before the error surfaces.

    Attributes:
        retry_for: the same in seconds.
        error: the class of the error when an action fails.
        refusals: the classes of errors that the client library raises.

    Raises:
        GraphError: if `retry_for` is not a span of time, or negative.
    """

    error: type[E]
    refusals: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, asked_by: str, retry_for: Duration) -> None:
        self._asked_by = asked_by
        self._secrets: Iterable[str] = ()
        self.retry_for = checked_seconds(asked_by, "retry_for", retry_for, may_be_zero=True)

    @staticmethod
    @abstractmethod
    def is_lost(error: BaseException) -> bool:
        """Whether an error comes from the connection or from contention; a retry may then succeed."""

    @staticmethod
    @abstractmethod
    def reason(error: BaseException) -> str:
        """Return the server's error text."""

    def retry(self, action: Callable[[], T], what: str) -> T:
        """Return the result of an idempotent action; retry it for up to `retry_for` while the connection is lost.

        Raises:
            MalflowError: of the class `error`, if it is lost for longer, or the server reports an error.
        """
        try:
            return repeated(action, self.retry_for, self.is_lost, lambda error: self.failure(what, error))
        except self.refusals as error:
            raise self.failure(what, error) from None

    def failure(self, what: str, error: BaseException) -> E:
        """Return an error that names the failed action, the server, and its reason."""
        return self.error(f"{what} failed at {self!r}: {self.without_secrets(self.reason(error))}")

    def without_secrets(self, text: str) -> str:
        """Return a message on one line, without passwords."""
        return redacted(" ".join(text.split()), self._secrets)


class Background(Generic[T]):
    """A function that runs on a daemon thread, one call at a time."""

    def __init__(self, action: Callable[[], T]) -> None:
        self._outcome: list[tuple[T | None, BaseException | None]] = []
        self._thread = threading.Thread(target=self._run, args=(action,), name="malflow-server", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether `result` would return immediately."""
        return bool(self._outcome)

    def result(self) -> T:
        """Wait for the function; return its result, or raise its error."""
        self._thread.join()
        value, error = self._outcome[0]
        if error is not None:
            raise error
        return value  # type: ignore[return-value] # None only if T is

    def join(self, seconds: float | None = None) -> None:
        """Wait until the function has returned, for at most this long."""
        self._thread.join(seconds)

    def _run(self, action: Callable[[], T]) -> None:
        try:
            self._outcome.append((action(), None))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self._outcome.append((None, error))


_LONGEST_SILENCE = 5.0
"""The most seconds of silence before a probe. Half of it opens twice as many connections during long statements, double
notices a frozen server later."""

_LONGEST_ANSWER = 10.0
"""The most seconds for the answer to a probe. A shorter time gives up servers under load, a longer one keeps the run
waiting for a frozen one."""

_LEAST = 0.5
"""The least seconds for each of both, even if `retry_for` is shorter, and the silence once the run is stopping: a
server's ordinary pauses are shorter."""

_LOOK = 0.1
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
        running.join(_LOOK)
        if running.done:
            return running.result()
        attention.check()

"""A question to a server that is asked on a thread of its own, so that a poll never waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import psycopg

__all__ = ["Background", "close_after"]

T = TypeVar("T")

_CANCEL_SECONDS = 1.0
_PATIENCE = 2.0
"""How long a canceled query is waited for; later, its connection is closed in the background."""


class Background(Generic[T]):
    """A function that runs on a daemon thread; at most one call at a time."""

    def __init__(self, action: Callable[[], T]) -> None:
        self._outcome: list[tuple[T | None, BaseException | None]] = []
        self._thread = threading.Thread(target=self._run, args=(action,), name="malflow-postgres", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether `result` returns at once."""
        return bool(self._outcome)

    def result(self) -> T:
        """Return what the function returned, or raise what it raised; wait for it."""
        self._thread.join()
        value, error = self._outcome[0]
        if error is not None:
            raise error
        return value  # type: ignore[return-value] # None only if T is

    def join(self, seconds: float | None = None) -> None:
        """Wait until the function has returned, for at most so long."""
        self._thread.join(seconds)

    def _run(self, action: Callable[[], T]) -> None:
        try:
            self._outcome.append((action(), None))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self._outcome.append((None, error))


def close_after(asked: Background[Any] | None, connection: psycopg.Connection[Any]) -> None:
    """Cancel what is asked on a connection, and close it as soon as nothing is.

    A connection that is closed while another thread uses it takes the whole process along.
    """
    if asked is not None and not asked.done:
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=_CANCEL_SECONDS)
        asked.join(_PATIENCE)
        if not asked.done:
            Background(lambda: _close_at_last(asked, connection))
            return
    connection.close()


def _close_at_last(asked: Background[Any], connection: psycopg.Connection[Any]) -> None:
    asked.join()
    connection.close()

"""Run a request to a server on a thread of its own, so that callers choose how long to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Background"]

T = TypeVar("T")


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

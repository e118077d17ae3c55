"""Requests of other threads to a run, and its listeners."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from malflow.errors import SnapshotError
from malflow.runtime.control import Request, abandon
from malflow.runtime.listeners import Listeners

__all__ = ["RunRequests"]


class RunRequests:
    """Requests of other threads to a run, and its listeners; they outlive its restarts.

    Args:
        listeners: who hears of the run; None is the log.

    Attributes:
        stopping: whether the run is to end after the current tick.
        pending: requests to serve after the current tick.
        listeners: who hears of the run.
    """

    def __init__(self, listeners: Listeners | None = None) -> None:
        self.listeners = Listeners() if listeners is None else listeners
        self.stopping = False
        self.pending: deque[Request] = deque()
        self._is_over = False

    def ask(self, request: Request) -> Future[Any]:
        """Queue a request, served after the current tick or, while a restart is pending, after the next first tick.

        Raises:
            SnapshotError: if the run has ended.
        """
        self.pending.append(request)
        if self._is_over:  # checked after the append: a run that ends meanwhile cancels the requests it finds
            abandon([request])
            raise SnapshotError("the run has ended; nothing can be asked of it any more")
        return request.answer

    def ask_again(self, requests: Iterable[Request]) -> None:
        """Put requests that were taken but not begun back in front of all others."""
        self.pending.extendleft(reversed([*requests]))

    def end(self, error: BaseException | None) -> None:
        """Cancel all pending requests, or fail them with `error`, and refuse new ones."""
        self._is_over = True
        while self.pending:
            abandon([self.pending.popleft()], error)

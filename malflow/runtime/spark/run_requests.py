"""What other threads want of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from malflow.errors import SnapshotError
from malflow.runtime.control import Request, abandon

__all__ = ["RunRequests"]


class RunRequests:
    """What other threads want of a run, over all of its restarts.

    Attributes:
        stopping: whether it is to end after the tick.
        requests: what it is to do after the tick.
    """

    def __init__(self) -> None:
        self.stopping = False
        self.requests: deque[Request] = deque()
        self._is_over = False

    def ask(self, request: Request) -> Future[Any]:
        """Have something done after the tick; where the run waits for a restart, after the first tick behind it.

        Raises:
            SnapshotError: if the run has ended.
        """
        self.requests.append(request)
        if self._is_over:  # looked at afterwards: a run that ends meanwhile cancels what it finds
            abandon([request])
            raise SnapshotError("the run has ended; nothing can be asked of it any more")
        return request.answer

    def ask_again(self, requests: Iterable[Request]) -> None:
        """Put back, before all others, what was taken and not begun."""
        self.requests.extendleft(reversed([*requests]))

    def end(self, error: BaseException | None) -> None:
        """Leave nobody waiting, whatever has ended the run."""
        self._is_over = True
        while self.requests:
            abandon([self.requests.popleft()], error)

"""The requests that a run has taken from its queue and not answered."""

from __future__ import annotations

from collections import deque
from concurrent.futures import InvalidStateError
from contextlib import suppress
from typing import assert_never

from malflow.runtime.answers import ExplainRequest, Request, RescaleRequest, SnapshotRequest, abandon
from malflow.runtime.requests import RunRequests

__all__ = ["TakenRequests"]


class TakenRequests:
    """Takes requests in order, and answers those that can't be served.

    Snapshots and rescales are served in the order of their requests; explanations overtake them, since they tell why
    the others have to wait.

    Args:
        requests: the queue.

    Attributes:
        snapshots: the requests that the next snapshot answers.
        rescale: the request for the rescale in progress.
        explanations: the requests that the next explanation answers.
    """

    def __init__(self, requests: RunRequests) -> None:
        self.snapshots: list[SnapshotRequest] = []
        self.rescale: RescaleRequest | None = None
        self.explanations: list[ExplainRequest] = []
        self._ordered: deque[SnapshotRequest | RescaleRequest] = deque()
        self._pending = requests.pending

    def __bool__(self) -> bool:
        """Whether a request for a snapshot or a rescale waits, in the queue or taken from it."""
        self.take()
        return bool(self._ordered or self.snapshots)

    def take(self) -> None:
        """Take all requests from the queue."""
        while self._pending:
            request = self._pending[0]
            match request:
                case SnapshotRequest() | RescaleRequest():
                    self._ordered.append(request)
                case ExplainRequest():
                    self.explanations.append(request)
                case _:
                    assert_never(request)
            self._pending.popleft()  # not earlier, in case a signal arrives in between

    @property
    def is_rescale_next(self) -> bool:
        """Whether the oldest request is for a rescale."""
        return not self.snapshots and bool(self._ordered) and isinstance(self._ordered[0], RescaleRequest)

    def take_rescale(self) -> int | None:
        """Begin to serve the oldest request; return the number of workers, None if the request was cancelled."""
        request = self._ordered.popleft()
        if not isinstance(request, RescaleRequest) or not request.answer.set_running_or_notify_cancel():
            return None
        self.rescale = request
        return request.parallelism

    def end_rescale(self, error: Exception | None = None) -> None:
        """Answer the request for a rescale. It is made, or failed with `error`."""
        request, self.rescale = self.rescale, None
        if request is None:
            return
        if error is None:
            request.answer.set_result(None)
        else:
            request.answer.set_exception(error)

    def take_snapshots(self) -> None:
        """Assign the requests before the next rescale to the next snapshot."""
        while self._ordered and isinstance(request := self._ordered[0], SnapshotRequest):
            self.snapshots.append(request)
            self._ordered.popleft()

    def take_last(self) -> None:
        """Assign all requests for snapshots to the last snapshot; rescales are no longer possible."""
        while self._ordered:
            self.take_snapshots()
            if self._ordered:
                abandon([self._ordered.popleft()])

    def end_explanations(self) -> None:
        """Answer the requests for an explanation with the current one."""
        asked, self.explanations = self.explanations, []
        for request in asked:
            with suppress(InvalidStateError):
                request.answer.set_result(None)

    def give_back_snapshots(self) -> list[SnapshotRequest]:
        """Return the requests for snapshots that no snapshot answers."""
        asked, self.snapshots = self.snapshots, []
        return asked

    def give_back(self) -> list[Request]:
        """Return the requests that were not served, in their order, for another attempt to serve."""
        asked = [*self.explanations, *self.give_back_snapshots(), *self._ordered]
        self.explanations = []
        self._ordered.clear()
        return asked

    def close(self, error: BaseException | None) -> None:
        """Answer what was not served.

        Args:
            error: the error that ended the run, if any.
        """
        abandon(self.give_back(), error)
        if self.rescale is not None:
            abandon([self.rescale], error)

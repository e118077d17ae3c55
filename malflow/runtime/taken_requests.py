"""The requests that a run has taken from its queue and not answered."""

from __future__ import annotations

from malflow.runtime.answers import Request, abandon
from malflow.runtime.requests import RunRequests

__all__ = ["TakenRequests"]


class TakenRequests:
    """Takes requests in order, and answers those that can't be served.

    Args:
        requests: the queue.

    Attributes:
        snapshots: the requests that the next snapshot answers.
        rescale: the request for the rescale in progress.
    """

    def __init__(self, requests: RunRequests) -> None:
        self.snapshots: list[Request] = []
        self.rescale: Request | None = None
        self._pending = requests.pending

    def __bool__(self) -> bool:
        """Whether a request waits, in the queue or for a snapshot."""
        return bool(self._pending or self.snapshots)

    @property
    def is_rescale_next(self) -> bool:
        """Whether the oldest request is for a rescale."""
        return not self.snapshots and self._pending[0].parallelism is not None

    def take_rescale(self) -> int | None:
        """Take the oldest request; return the number of workers that it asks for, None if it was cancelled."""
        request = self._pending.popleft()
        if not request.answer.set_running_or_notify_cancel():
            return None
        self.rescale = request
        return request.parallelism

    def end_rescale(self, error: Exception | None = None) -> None:
        """Answer the request for a rescale, which is made, or failed with `error`."""
        request, self.rescale = self.rescale, None
        if request is None:
            return
        if error is None:
            request.answer.set_result(None)
        else:
            request.answer.set_exception(error)

    def take_snapshots(self) -> None:
        """Take the requests for snapshots that are before the next rescale."""
        while self._pending and self._pending[0].parallelism is None:
            self._take_snapshot()

    def take_last(self) -> None:
        """Take all requests: the last snapshot answers those for snapshots, and rescales are no longer possible."""
        while self._pending:
            if self._pending[0].parallelism is None:
                self._take_snapshot()
            else:
                abandon([self._pending.popleft()])

    def give_back(self) -> list[Request]:
        """Return the requests for snapshots, for another attempt to serve."""
        asked, self.snapshots = self.snapshots, []
        return asked

    def close(self, error: BaseException | None) -> None:
        """Answer what was not served.

        Args:
            error: the error that ended the run, if any.
        """
        abandon(self.give_back(), error)
        if self.rescale is not None:
            abandon([self.rescale], error)

    def _take_snapshot(self) -> None:
        self.snapshots.append(self._pending[0])  # before it leaves the queue, in case a signal arrives in between
        self._pending.popleft()

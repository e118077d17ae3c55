"""Answers to requests to a run: futures that its own thread gives, and that its user code can't wait for."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from malflow.checks import checked_wait
from malflow.durations import Duration
from malflow.errors import GraphError, RunFailed

__all__ = [
    "Answer",
    "ExplainRequest",
    "OwnThreads",
    "Request",
    "RescaleRequest",
    "SnapshotAnswers",
    "SnapshotRequest",
    "abandon",
    "fail",
]

A = TypeVar("A")


class OwnThreads:
    """The threads that currently run a dataflow and its user code; waiting for the run there would never end."""

    def __init__(self) -> None:
        self._working: list[int] = []

    @contextmanager
    def working(self) -> Iterator[None]:
        """Within the context, mark the current thread as working for the run."""
        thread = threading.get_ident()
        self._working.append(thread)
        try:
            yield
        finally:
            self._working.remove(thread)

    def check_may_wait(self, deed: str, cure: str) -> None:
        """Check that the current thread may wait for the run: user code of the dataflow may not."""
        if threading.get_ident() in self._working:
            raise GraphError(f"{deed}, which can't continue while this code waits for it; {cure}")


class Answer(Future[A]):
    """The answer to a request; waiting for it is an error where the wait could never end.

    Args:
        own: the threads that can't wait for it, since the run works on them.
    """

    def __init__(self, own: OwnThreads) -> None:
        super().__init__()
        self._own = own

    def result(self, timeout: Duration | None = None) -> A:
        """Return the answer.

        Raises:
            GraphError: if user code of the dataflow waits for it.
        """
        self._check_may_wait()
        return super().result(None if timeout is None else checked_wait("result()", timeout))

    def exception(self, timeout: Duration | None = None) -> BaseException | None:
        """Return the error, or None.

        Raises:
            GraphError: if user code of the dataflow waits for it.
        """
        self._check_may_wait()
        return super().exception(None if timeout is None else checked_wait("exception()", timeout))

    def _check_may_wait(self) -> None:
        if not self.done():
            self._own.check_may_wait(
                "requests are answered by the run between two ticks",
                "keep the future and read it in a later call, once it is done(), or wait in another thread",
            )


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A request for a snapshot, answered with its id."""

    answer: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class RescaleRequest:
    """A request to rescale to `parallelism` workers."""

    parallelism: int
    answer: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """A request to explain the run's time."""

    answer: Future[Any] = field(default_factory=Future)


Request: TypeAlias = SnapshotRequest | RescaleRequest | ExplainRequest
"""A request to a run, served between two ticks."""


class SnapshotAnswers:
    """Requests for snapshots that are being written.

    They are answered on the run's own thread, after the snapshot was announced and its sinks were committed. The
    receiver of the answer can thus rely on both.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Future[int], Sequence[SnapshotRequest]]] = []

    def follow(self, requests: Iterable[SnapshotRequest], made: Future[int]) -> None:
        """Register requests to be answered with the result of a snapshot once it is written."""
        self._waiting.append((made, tuple(requests)))

    def give(self) -> None:
        """Answer the requests for snapshots that are done."""
        waiting, self._waiting = self._waiting, []
        for made, requests in waiting:
            if made.done():
                _pass_on(made, requests)
            else:
                self._waiting.append((made, requests))

    def end(self, error: BaseException | None) -> None:
        """Answer all requests at the end of the run; those with unfinished snapshots fail with `error`."""
        self.give()
        for _, requests in self._waiting:
            fail(requests, error or RunFailed("the run ended before this was done"))
        self._waiting = []


def fail(requests: Iterable[Request], error: BaseException) -> None:
    """Fail requests with an error, except those already answered or cancelled."""
    for request in requests:
        with suppress(InvalidStateError):
            request.answer.set_exception(_for_another_thread(error))


def abandon(requests: Iterable[Request], error: BaseException | None = None) -> None:
    """Cancel requests, but for explanations; one that is being served and can't be cancelled fails.

    Args:
        requests: requests that will not be served.
        error: the error that ended the run, if any.
    """
    for request in requests:
        if isinstance(request, ExplainRequest):  # those who wait read the last explanation
            _set(request, None)
        elif not request.answer.cancel():
            fail([request], error or RunFailed("the run ended before this was done"))


def _pass_on(done: Future[int], requests: Iterable[SnapshotRequest]) -> None:
    error = CancelledError() if done.cancelled() else done.exception()
    if error is not None:
        fail(requests, error)
        return
    for request in requests:
        _set(request, done.result())


def _set(request: Request, result: Any) -> None:
    with suppress(InvalidStateError):
        request.answer.set_result(result)


def _for_another_thread(error: BaseException) -> Exception:
    """Return an error to raise in another thread, where one that ends a process must not be raised."""
    if isinstance(error, Exception):
        return error
    ended = RunFailed(f"the run was ended by {type(error).__name__} before this was done")
    ended.__cause__ = error
    return ended

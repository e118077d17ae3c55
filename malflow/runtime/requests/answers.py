"""Requests to a run, with their answers: futures that its own thread gives, and that its user code can't wait for."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, Self, TypeVar

from malflow.checks import checked_wait
from malflow.durations import Duration
from malflow.errors import GraphError, MalflowError, RunFailed, SnapshotError

__all__ = [
    "Answer",
    "ExplainRequest",
    "OwnThreads",
    "Request",
    "RescaleRequest",
    "SnapshotAnswers",
    "SnapshotRequest",
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


@dataclass(frozen=True, eq=False)
class Request(Generic[A]):
    """A request to a run, with its answer; of several answers only the first one counts.

    Attributes:
        answer: the answer.
    """

    answer: Answer[A] = field(default_factory=lambda: Answer(OwnThreads()), kw_only=True)

    def give(self, result: A) -> None:
        """Set the result."""
        with suppress(InvalidStateError):
            self.answer.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Set the error."""
        with suppress(InvalidStateError):
            self.answer.set_exception(_for_another_thread(error))

    def end(self, error: BaseException | None) -> None:
        """Answer it at the end of the run: cancel it; one that is being served and can't be cancelled fails.

        Args:
            error: the error that ended the run, if any.
        """
        if not self.answer.cancel():
            self.fail(error or RunFailed("the run ended before this was done"))

    def again(self) -> Self:
        """Return the request for another attempt at the run, after an attempt that took it and did not answer it."""
        return self

    @property
    def refusal(self) -> MalflowError | None:
        """The error for those who post it to a run that has ended; None if it has an answer then, too."""
        return SnapshotError("the run has ended")


class SnapshotRequest(Request[int]):
    """A request for a snapshot, answered with its id."""


@dataclass(frozen=True, eq=False)
class RescaleRequest(Request[None]):
    """A request to rescale to `parallelism` workers."""

    parallelism: int


class ExplainRequest(Request[None]):
    """A request to explain the run's time; at the end, those who wait read the last explanation."""

    def end(self, error: BaseException | None) -> None:
        """Answer it."""
        del error
        self.give(None)

    @property
    def refusal(self) -> None:
        """None: the last explanation stays."""


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
        for request in chain.from_iterable(requests for _, requests in self._waiting):
            request.fail(error or RunFailed("the run ended before this was done"))
        self._waiting = []


def _pass_on(done: Future[int], requests: Iterable[SnapshotRequest]) -> None:
    error = CancelledError() if done.cancelled() else done.exception()
    for request in requests:
        if error is None:
            request.give(done.result())
        else:
            request.fail(error)


def _for_another_thread(error: BaseException) -> Exception:
    """Return an error to raise in another thread, where one that ends a process must not be raised."""
    if isinstance(error, Exception):
        return error
    ended = RunFailed(f"the run was ended by {type(error).__name__} before this was done")
    ended.__cause__ = error
    return ended

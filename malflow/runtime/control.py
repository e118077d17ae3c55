"""The control surface of a run: the requests to it, and the handle of its caller."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from malflow.errors import GraphError, RunFailed, SnapshotError
from malflow.runtime.listeners import Listeners
from malflow.runtime.options import check_parallelism
from malflow.runtime.progress import Progress
from malflow.runtime.time_table import TimeRow, TimeTable

__all__ = [
    "Answer",
    "OwnThreads",
    "Request",
    "RunHandle",
    "RunRequests",
    "SnapshotAnswers",
    "abandon",
    "fail",
    "reserved",
    "table_of",
]

_TURN = 0.2
"""The longest wait, in seconds, before signals are handled."""


class OwnThreads:
    """The threads that run a dataflow and its user code, while they do; what waits for the run there waits for ever."""

    def __init__(self) -> None:
        self._working: list[int] = []

    @contextmanager
    def working(self) -> Iterator[None]:
        """Note that the present thread works for the run."""
        thread = threading.get_ident()
        self._working.append(thread)
        try:
            yield
        finally:
            self._working.remove(thread)

    def refuse_to_wait(self, deed: str, cure: str) -> None:
        """Check that the present thread may wait for the run.

        Raises:
            GraphError: if it works for the run, such as user code of the dataflow.
        """
        if threading.get_ident() in self._working:
            raise GraphError(f"{deed}, which can't continue while this code waits for it; {cure}")


class Answer(Future[Any]):
    """The answer to a request; a wait for it that could never end is refused.

    Args:
        own: the threads that can't wait for it, since the run that would give it works there.
    """

    def __init__(self, own: OwnThreads) -> None:
        super().__init__()
        self._own = own

    def result(self, timeout: float | None = None) -> Any:
        """Return the answer.

        Raises:
            GraphError: if user code of the dataflow waits for it.
        """
        self._refuse_to_wait()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, None if there is none.

        Raises:
            GraphError: if user code of the dataflow waits for it.
        """
        self._refuse_to_wait()
        return super().exception(timeout)

    def _refuse_to_wait(self) -> None:
        if not self.done():
            self._own.refuse_to_wait(
                "snapshots and rescales are answered by the run between two ticks",
                "keep the future and read it in a later call, once it is done(), or wait in another thread",
            )


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a rescale to `parallelism` workers or, if that is None, for a snapshot."""

    parallelism: int | None
    answer: Future[Any] = field(default_factory=Future)


class RunRequests:
    """Requests of other threads to a run, and its listeners; they outlive its restarts.

    Args:
        listeners: the listeners of the run; None for the log alone.

    Attributes:
        stopping: whether the run is to end after the current tick.
        pending: requests to serve after the current tick.
        listeners: the listeners of the run.
        is_over: whether the run has ended.
        explanations: requests for an explanation of the run's time.
        explained: the last one: when its tick began, and the operators that waited.
        own: the threads that the run works on.
    """

    def __init__(self, listeners: Listeners | None = None) -> None:
        self.listeners = Listeners() if listeners is None else listeners
        self.stopping = False
        self.pending: deque[Request] = deque()
        self.is_over = False
        self.explanations: deque[Future[None]] = deque()
        self.explained: tuple[datetime | None, tuple[TimeRow, ...]] = (None, ())
        self.own = OwnThreads()

    def stop(self) -> None:
        """End the run after the current tick."""
        self.stopping = True

    def ask(self, request: Request) -> Future[Any]:
        """Queue a request, served after the current tick or, while a restart is pending, after the next first tick.

        Raises:
            SnapshotError: if the run has ended.
        """
        self.pending.append(request)
        if self.is_over:  # checked after the append: a run that ends meanwhile cancels the requests it finds
            abandon([request])
            raise SnapshotError("the run has ended")
        return request.answer

    def ask_snapshot(self, *, keeps: bool) -> Future[int]:
        """Queue a request for a snapshot.

        Args:
            keeps: whether the run has a persistence.

        Raises:
            GraphError: if it has none.
            SnapshotError: if the run has ended.
        """
        if not keeps:
            raise GraphError("a snapshot needs a persistence; pass persistence=FsspecBackend(...)")
        return self.ask(Request(None, Answer(self.own)))

    def ask_rescale(self, parallelism: int) -> Future[None]:
        """Queue a request for another number of workers.

        Raises:
            GraphError: if `parallelism` is not a positive integer.
            SnapshotError: if the run has ended.
        """
        return self.ask(Request(check_parallelism(parallelism), Answer(self.own)))

    def ask_explanation(self, timeout: float) -> None:
        """Wait for an explanation of the run's time after the current tick; not once the run has ended.

        Raises:
            GraphError: if user code of the dataflow asks.
            TimeoutError: if there is none in time.
        """
        self.own.refuse_to_wait("explain_time() waits for the end of the tick", "call it from another thread")
        answer: Future[None] = Future()
        self.explanations.append(answer)
        if not self.is_over:  # checked after the append
            answer.result(timeout)

    def explain(self, now: datetime, rows: tuple[TimeRow, ...]) -> None:
        """Answer the requests for an explanation."""
        self.explained = now, rows
        while self.explanations:
            self.explanations.popleft().set_result(None)

    def ask_again(self, requests: Iterable[Request]) -> None:
        """Put requests that were taken but not begun back in front of all others."""
        self.pending.extendleft(reversed([*requests]))

    def end(self, error: BaseException | None) -> None:
        """Cancel all pending requests, or fail them with `error`, and refuse new ones."""
        self.is_over = True
        while self.pending:
            abandon([self.pending.popleft()], error)
        while self.explanations:
            self.explanations.popleft().set_result(None)


class SnapshotAnswers:
    """Requests for snapshots that are being written.

    They are answered on the run's own thread, after the snapshot was announced and its sinks are committed: whoever has
    the answer sees these, too.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Future[int], Sequence[Request]]] = []

    def follow(self, requests: Iterable[Request], made: Future[int]) -> None:
        """Answer requests with the result of a snapshot that is being written, once it is done."""
        self._waiting.append((made, tuple(requests)))

    def give(self) -> None:
        """Answer the requests whose snapshots are done."""
        waiting, self._waiting = self._waiting, []
        for made, requests in waiting:
            if made.done():
                _pass_on(made, requests)
            else:
                self._waiting.append((made, requests))

    def end(self, error: BaseException | None) -> None:
        """Answer all requests, at the end of the run; those whose snapshots are not done fail with `error`."""
        self.give()
        for _, requests in self._waiting:
            fail(requests, error or RunFailed("the run ended before this was done"))
        self._waiting = []


class RunHandle(ABC):
    """A handle of a run that was started in a thread of its own.

    Args:
        requests: the requests to the run.
        keeps: whether the run has a persistence.
        held: reserves the runtime until the run has ended; the handle takes it over.
    """

    def __init__(self, requests: RunRequests, *, keeps: bool, held: ExitStack) -> None:
        self._requests = requests
        self._keeps = keeps
        self._held = held
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._supervise, name="malflow-run", daemon=True)

    @property
    @abstractmethod
    def progress(self) -> Progress:
        """The progress of the run."""

    @property
    @abstractmethod
    def reader_is_gone(self) -> bool:
        """Whether the run has ended because the reader of standard output has gone (a broken pipe)."""

    @abstractmethod
    def _run(self) -> None:
        """Run to the end."""

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run ends; return whether it has ended.

        Args:
            timeout: the most seconds to wait; None waits without limit.

        Raises:
            GraphError: if user code of the dataflow waits.
            MalflowError: the error that ended the run; see `execute` of the runtime.
        """
        self._requests.own.refuse_to_wait("await_termination() waits for the end of the run", "call it elsewhere")
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive():
            left = _TURN if deadline is None else min(_TURN, deadline - time.monotonic())
            if left <= 0:
                return False
            self._thread.join(left)  # in short turns, so that signals are handled
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """End the run after the current tick, with a last snapshot."""
        self._requests.stop()

    def snapshot(self) -> Future[int]:
        """Request a snapshot after the current tick or, while a restart is pending, after the next first tick.

        Returns:
            A future of its id, or of the error if it fails; cancelled if the run ends before. User code of the
            dataflow can't wait for it.

        Raises:
            GraphError: if the run has no persistence.
            SnapshotError: if the run has ended.
        """
        return self._requests.ask_snapshot(keeps=self._keeps)

    def rescale(self, parallelism: int) -> Future[None]:
        """Request another number of workers, in effect after the current tick.

        Returns:
            A future that completes with the rescale. It holds a `SnapshotError` if the dataflow keeps state under
            ``key_local``, and is cancelled if the run ends first. User code of the dataflow can't wait for it.

        Raises:
            GraphError: if `parallelism` is not a positive integer.
            SnapshotError: if the run has ended.
        """
        return self._requests.ask_rescale(parallelism)

    def explain_time(self, timeout: float = 30.0) -> TimeTable:
        """Return which operators wait for an epoch (watermark), and for which source; it prints as text.

        Args:
            timeout: how many seconds to wait for the end of the current tick.

        Raises:
            GraphError: if user code of the dataflow calls it.
            TimeoutError: if that takes longer.
        """
        self._requests.ask_explanation(timeout)
        return table_of(self._requests.explained, self.progress)

    @property
    def is_stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self._requests.stopping

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended."""
        return not self._thread.is_alive()

    def _begin(self) -> None:
        self._held = self._held.pop_all()  # not before: until then, the caller's stack is closed after an error
        self._thread.start()

    def _supervise(self) -> None:
        try:
            with self._held, self._requests.own.working():
                self._run()
        except BaseException as error:  # noqa: BLE001 - `await_termination` raises it
            self._error = error


@contextmanager
def reserved(lock: threading.Lock) -> Iterator[None]:
    """Hold the lock of a runtime, which has one run at a time.

    Raises:
        GraphError: if the runtime has a run.
    """
    if not lock.acquire(blocking=False):
        raise GraphError("this runtime is already running a dataflow; create another one for another run")
    try:
        yield
    finally:
        lock.release()


def table_of(explained: tuple[datetime | None, tuple[TimeRow, ...]], progress: Progress) -> TimeTable:
    """Return the table of an explanation."""
    return TimeTable(*explained, late=progress.late, lateness=progress.lateness)


def fail(requests: Iterable[Request], error: BaseException) -> None:
    """Fail requests with an error, except those already answered or cancelled."""
    for request in requests:
        with suppress(InvalidStateError):
            request.answer.set_exception(_for_another_thread(error))


def abandon(requests: Iterable[Request], error: BaseException | None = None) -> None:
    """Cancel requests; one that is being served and can't be cancelled fails.

    Args:
        requests: requests that will not be served.
        error: the error that ended the run, if any.
    """
    for request in requests:
        if not request.answer.cancel():
            fail([request], error or RunFailed("the run ended before this was done"))


def _pass_on(done: Future[int], requests: Iterable[Request]) -> None:
    error = CancelledError() if done.cancelled() else done.exception()
    if error is not None:
        fail(requests, error)
        return
    for request in requests:
        with suppress(InvalidStateError):
            request.answer.set_result(done.result())


def _for_another_thread(error: BaseException) -> Exception:
    """Return an error for another thread: one that ends a process must not be raised there."""
    if isinstance(error, Exception):
        return error
    ended = RunFailed(f"the run was ended by {type(error).__name__} before this was done")
    ended.__cause__ = error
    return ended

"""The requests of other threads to a run: those that wait, and those that it has taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, assert_never

from malflow.engine.plan import Program
from malflow.engine.taps import Tap, Taps, tapped_ports
from malflow.errors import GraphError, QueryError, SnapshotError, UnsupportedOperator
from malflow.failures import Replayed
from malflow.runtime.options import checked_parallelism
from malflow.runtime.progress.listeners import Listeners
from malflow.runtime.progress.progress import Progress, Status
from malflow.runtime.progress.time_table import TimeTable
from malflow.runtime.requests.answers import (
    Answer,
    ExplainRequest,
    OwnThreads,
    Request,
    RescaleRequest,
    SnapshotRequest,
    abandon,
)
from malflow.runtime.requests.pauses import Wake
from malflow.runtime.requests.queries import Query, StateAnswer
from malflow.runtime.requests.replays import ReplayRequest, checked_replay

__all__ = [
    "RunRequests",
    "TakenRequests",
]

_OVER = "the run ended before"
_ELSEWHERE = {"processes": "other processes", "spark": "the processes of Spark"}

_MOST_WAITING = 10_000
"""Questions to a run that may wait: a client that asks faster than the run answers gets an error."""


class RunRequests:
    """Requests from other threads to a run, and its listeners; they outlive its restarts.

    Args:
        listeners: the listeners of the run; None for the log alone.

    Attributes:
        stopping: whether the run should end after the current tick.
        pending: requests to serve after the current tick.
        listeners: the listeners of the run.
        is_over: whether the run has ended.
        explained: the last explanation, without late records.
        own: the threads that the run works on.
        queries: questions to the states of the run.
        replays: requests about dead letters.
        taps: further readers of the outputs of operators.
        program: the program of the run; None before it is built.
        wake: ends a pause of the run.
        phase: the status over all attempts; None during an attempt, which knows its own.
        started: when it started, in UTC; None before.
        runtime: the kind of the runtime.
    """

    def __init__(self, listeners: Listeners | None = None) -> None:
        self.listeners = Listeners() if listeners is None else listeners
        self.stopping = False
        self.pending: deque[Request] = deque()
        self.is_over = False
        self.explained = TimeTable()
        self.own = OwnThreads()
        self.queries: deque[Query] = deque()
        self.replays: list[ReplayRequest] = []
        self.taps = Taps()
        self.program: Program | None = None
        self.wake = Wake()
        self.phase: Status | None = "starting"
        self.started: datetime | None = None
        self.runtime = ""

    def stamped(self, progress: Progress) -> Progress:
        """Return the progress of an attempt with the facts about the whole run."""
        phase = self.phase or ("stopping" if self.stopping else progress.status)
        return replace(progress, status=phase, started=self.started)

    @property
    def running(self) -> Program:
        """The program of the run.

        Raises:
            QueryError: if the run has not begun.
        """
        if self.program is None:
            raise QueryError("nothing runs that could be asked: call start() first, or execute() in another thread")
        return self.program

    @property
    def has_new(self) -> bool:
        """Whether the run is asked to stop, or for something that it has not taken up."""
        return self.stopping or bool(self.pending) or bool(self.queries or self.replays)

    def stop(self) -> None:
        """End the run after the current tick."""
        self.stopping = True

    def ask(self, request: Request) -> Future[Any]:
        """Queue a request, served after the current tick or, while a restart is pending, after the next first tick.

        Raises:
            SnapshotError: if the run has ended.
        """
        self.pending.append(request)
        if self.is_over:  # checked after the append: a run that ends now cancels the requests that it finds
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
        return self.ask(SnapshotRequest(Answer(self.own)))

    def ask_rescale(self, parallelism: int) -> Future[None]:
        """Queue a request for another number of workers.

        Raises:
            GraphError: if `parallelism` is not a positive integer.
            SnapshotError: if the run has ended.
        """
        return self.ask(RescaleRequest(checked_parallelism(parallelism), Answer(self.own)))

    def ask_state(self, query: Query) -> StateAnswer[Any]:
        """Queue a question, answered after the current tick or, on Spark, with the next one.

        Raises:
            QueryError: if the run has ended, or too many questions wait.
        """
        if len(self.queries) >= _MOST_WAITING:
            raise QueryError(f"{_MOST_WAITING:,} questions wait for an answer; wait for some before you ask more")
        self.queries.append(query)
        self.wake.set()
        if self.is_over:  # checked after the append
            query.fail(_OVER, None)
            raise QueryError("the run has ended; read_state() reads its last snapshot")
        return query.answer

    def ask_replay(self, operator: str, ids: Sequence[str] | None, *, discards: bool) -> Future[Replayed]:
        """Queue a request about dead letters, served in the next tick that polls.

        Raises:
            GraphError: if no such operator can have any.
            QueryError: if the run has not begun, or has ended.
        """
        request = ReplayRequest(checked_replay(self.running, operator, ids, discards=discards), Answer(self.own))
        self.replays.append(request)
        self.wake.set()
        if self.is_over:  # checked after the append
            request.fail(None)
            raise QueryError("the run has ended, and its dead letters stay; start it again to replay them")
        return request.answer

    def tap(self, tap: Tap) -> None:
        """Add a reader of an operator's output.

        Raises:
            GraphError: if there is no such operator.
            UnsupportedOperator: if the run is not on one thread.
            QueryError: if the run has not begun.
        """
        tapped_ports(self.running, tap.operator)
        if self.runtime != "single":
            raise UnsupportedOperator(
                f"the records of operator {tap.operator!r} can't be shown: they pass through "
                f"{_ELSEWHERE[self.runtime]}; run the flow on one thread to see them, with `malflow run --on single` "
                "or SingleThreadRuntime"
            )
        self.taps.add(tap)

    def ask_explanation(self, timeout: float) -> None:
        """Wait for an explanation of the run's time after the current tick, unless the run has ended.

        Raises:
            GraphError: if user code of the dataflow calls it.
            TimeoutError: if the tick takes longer.
        """
        self.own.check_may_wait("explain_time() waits for the end of the tick", "call it from another thread")
        request = ExplainRequest()
        self.pending.append(request)
        if not self.is_over:  # checked after the append
            request.answer.result(timeout)

    def time_table(self, progress: Progress) -> TimeTable:
        """Return the last explanation as a table, with the late records so far."""
        return replace(self.explained, late=progress.late, lateness=progress.lateness)

    def ask_again(self, requests: Iterable[Request]) -> None:
        """Return requests that were taken but not begun to the front of the queue."""
        self.pending.extendleft(reversed([*requests]))

    def end(self, error: BaseException | None) -> None:
        """Cancel all pending requests, or fail them with `error`, and refuse new ones."""
        self.is_over = True
        self.phase = "ended" if error is None else "failed"
        while self.pending:
            abandon([self.pending.popleft()], error)
        while self.queries:
            self.queries.popleft().fail(_OVER, error)
        while self.replays:
            self.replays.pop(0).fail(error)


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

"""The requests of other threads to a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from typing import Any

from malflow.engine.plan import Program
from malflow.engine.taps import Tap, Taps, tapped_ports
from malflow.errors import GraphError, QueryError, SnapshotError, UnsupportedOperator
from malflow.failures import Replayed
from malflow.runtime.answers import (
    Answer,
    ExplainRequest,
    OwnThreads,
    Request,
    RescaleRequest,
    SnapshotRequest,
    abandon,
)
from malflow.runtime.listeners import Listeners
from malflow.runtime.options import checked_parallelism
from malflow.runtime.pauses import Wake
from malflow.runtime.progress import Progress, Status
from malflow.runtime.queries import Query, StateAnswer
from malflow.runtime.replay_service import ReplayRequest, checked_replay
from malflow.runtime.time_table import TimeTable

__all__ = ["RunRequests"]

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

"""The mailbox of a run: the requests of other threads that wait, and the ones that the run serves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from malflow.engine.plan import Program
from malflow.engine.taps import Tap, Taps, tapped_ports
from malflow.errors import GraphError, QueryError, UnsupportedOperator
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
)
from malflow.runtime.requests.pauses import Wake
from malflow.runtime.requests.queries import Query, ReplayRequest, StateAnswer, checked_replay

__all__ = ["ChangeRequests", "Mailbox", "RunRequests", "Tray"]

_ELSEWHERE = {"processes": "other processes", "spark": "the processes of Spark"}

_MOST_WAITING = 10_000
"""Questions to a run that may wait: a client that asks faster than the run answers gets an error."""

A = TypeVar("A")
R = TypeVar("R", bound=Request[Any])


class Tray(Generic[R]):
    """The requests of one kind, oldest first; only the thread of the run takes them.

    A signal may interrupt any method, so a request is in one of the lists or in both until it has its answer.

    Attributes:
        waiting: the requests that the run has not taken; other threads add some.
        taken: the requests that the run serves.
    """

    def __init__(self) -> None:
        self.waiting: list[R] = []
        self.taken: list[R] = []

    def take(self, request: R) -> None:
        """Take a request that waits."""
        self.taken.append(request)
        self.waiting.remove(request)

    def take_all(self) -> bool:
        """Take all requests that wait; return whether the run has any to serve."""
        while self.waiting:
            self.take(self.waiting[0])
        return bool(self.taken)

    def drop(self, requests: Iterable[R]) -> None:
        """Remove requests that were taken and answered."""
        for request in [*requests]:
            self.taken.remove(request)

    def give_back(self, error: BaseException | None) -> None:
        """Return the requests that were taken to the front, in their order; a rescale that was begun ends.

        Args:
            error: the error that ended the attempt at the run, if any.
        """
        for request in self.taken:
            if request.answer.running():
                request.end(error)
        again = [request.again() for request in self.taken]
        self.waiting[:0] = [request for request in again if not request.answer.done()]
        self.taken.clear()

    def end(self, error: BaseException | None) -> None:
        """Answer all requests at the end of the run."""
        for request in [*self.taken, *self.waiting]:
            request.end(error)
        self.taken.clear()
        self.waiting.clear()


class ChangeRequests(Tray[SnapshotRequest | RescaleRequest]):
    """Requests for snapshots and rescales; they are served in the order in which they came."""

    @property
    def snapshots(self) -> list[SnapshotRequest]:
        """The requests that the next snapshot answers: all before the next rescale."""
        first = next((at for at, it in enumerate(self.taken) if isinstance(it, RescaleRequest)), len(self.taken))
        return [it for it in self.taken[:first] if isinstance(it, SnapshotRequest)]

    @property
    def is_rescale_next(self) -> bool:
        """Whether the oldest request is for a rescale."""
        return bool(self.taken) and isinstance(self.taken[0], RescaleRequest)

    def begin_rescale(self) -> int | None:
        """Begin the rescale that is next; return the number of workers, None if the request was cancelled."""
        request = self.taken[0]
        if isinstance(request, RescaleRequest) and request.answer.set_running_or_notify_cancel():
            return request.parallelism
        self.drop([request])
        return None

    def end_rescale(self, error: Exception | None = None) -> None:
        """Answer the request for the rescale that was begun. It is made, or failed with `error`."""
        request = self.taken[0]
        if error is not None:
            request.fail(error)
        elif isinstance(request, RescaleRequest):
            request.give(None)
        self.drop([request])

    def cancel_rescales(self) -> None:
        """Cancel all rescales; only the last snapshot is still possible."""
        rescales = [it for it in self.taken if isinstance(it, RescaleRequest)]
        for request in rescales:
            request.end(None)
        self.drop(rescales)


class Mailbox:
    """The requests to a run. Each is answered: by the run, by `close`, or at once if the run has ended.

    Any thread, signal handler or user code may post, so there is no lock. `post` adds a request, then checks whether
    the run is over. `close` notes that it is over, then looks for requests. A request that comes at the end is seen by
    one of them. If both see it, the first answer counts.

    It outlives the attempts at a run. The coordinator decides which kind is served when.

    Attributes:
        is_over: whether the run has ended.
        wake: ends a pause of the run.
        changes: snapshots and rescales.
        explanations: explanations of the run's time.
        queries: questions to the states of the run.
        replays: requests about dead letters.
    """

    def __init__(self) -> None:
        self.is_over = False
        self.wake = Wake()
        self.changes = ChangeRequests()
        self.explanations: Tray[ExplainRequest] = Tray()
        self.queries: Tray[Query] = Tray()
        self.replays: Tray[ReplayRequest] = Tray()
        self._trays: dict[type[Request[Any]], Tray[Any]] = {
            SnapshotRequest: self.changes,
            RescaleRequest: self.changes,
            ExplainRequest: self.explanations,
            Query: self.queries,
            ReplayRequest: self.replays,
        }

    @property
    def has_new(self) -> bool:
        """Whether a request waits that the run has not taken."""
        return bool(self.changes.waiting or self.explanations.waiting or self.queries.waiting or self.replays.waiting)

    def post(self, request: Request[A]) -> Answer[A]:
        """Add a request, and end a pause of the run; return its answer.

        Raises:
            MalflowError: if the run has ended, except for an explanation.
        """
        waiting = self._trays[type(request)].waiting
        waiting.append(request)
        self.wake.set()
        if self.is_over:  # not before it was added
            request.end(None)
            with suppress(ValueError):  # `close` has removed it
                waiting.remove(request)
            if (refusal := request.refusal) is not None:
                raise refusal
        return request.answer

    def give_back(self, error: BaseException | None) -> None:
        """Return the requests that an attempt took and did not answer, for another attempt.

        Args:
            error: the error that ended the attempt, if any.
        """
        for tray in self._trays.values():
            tray.give_back(error)

    def close(self, error: BaseException | None) -> None:
        """Answer all requests at the end of the run, and refuse new ones.

        Args:
            error: the error that ended the run, if any.
        """
        self.is_over = True  # not after the requests were answered
        for tray in self._trays.values():
            tray.end(error)


class RunRequests:
    """Requests from other threads to a run, and its listeners; they outlive its restarts.

    Args:
        listeners: the listeners of the run; None for the log alone.

    Attributes:
        stopping: whether the run should end after the current tick.
        listeners: the listeners of the run.
        mailbox: the requests.
        explained: the last explanation, without late records.
        own: the threads that the run works on.
        taps: further readers of the outputs of operators.
        program: the program of the run; None before it is built.
        phase: the status over all attempts; None during an attempt, which knows its own.
        started: when it started, in UTC; None before.
        runtime: the kind of the runtime.
    """

    def __init__(self, listeners: Listeners | None = None) -> None:
        self.listeners = Listeners() if listeners is None else listeners
        self.stopping = False
        self.mailbox = Mailbox()
        self.explained = TimeTable()
        self.own = OwnThreads()
        self.taps = Taps()
        self.program: Program | None = None
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
        return self.stopping or self.mailbox.has_new

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.mailbox.is_over

    def stop(self) -> None:
        """End the run after the current tick."""
        self.stopping = True

    def ask_snapshot(self, *, keeps: bool) -> Future[int]:
        """Post a request for a snapshot, served after the current tick or, before a restart, after the next first one.

        Args:
            keeps: whether the run has a persistence.

        Raises:
            GraphError: if it has none.
            SnapshotError: if the run has ended.
        """
        if not keeps:
            raise GraphError("a snapshot needs a persistence; pass persistence=FsspecBackend(...)")
        return self.mailbox.post(SnapshotRequest(answer=Answer(self.own)))

    def ask_rescale(self, parallelism: int) -> Future[None]:
        """Post a request for another number of workers, served as `ask_snapshot`.

        Raises:
            GraphError: if `parallelism` is not a positive integer.
            SnapshotError: if the run has ended.
        """
        return self.mailbox.post(RescaleRequest(checked_parallelism(parallelism), answer=Answer(self.own)))

    def ask_state(self, query: Query) -> StateAnswer[Any]:
        """Post a question, answered after the current tick or, on Spark, with the next one.

        Raises:
            QueryError: if the run has ended, or too many questions wait.
        """
        if len(self.mailbox.queries.waiting) >= _MOST_WAITING:
            raise QueryError(f"{_MOST_WAITING:,} questions wait for an answer; wait for some before you ask more")
        self.mailbox.post(query)
        return query.answer

    def ask_replay(self, operator: str, ids: Sequence[str] | None, *, discards: bool) -> Future[Replayed]:
        """Post a request about dead letters, served in the next tick that polls.

        Raises:
            GraphError: if no such operator can have any.
            QueryError: if the run has not begun, or has ended.
        """
        replay = checked_replay(self.running, operator, ids, discards=discards)
        return self.mailbox.post(ReplayRequest(replay, answer=Answer(self.own)))

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
        self.mailbox.post(ExplainRequest()).result(timeout)

    def time_table(self, progress: Progress) -> TimeTable:
        """Return the last explanation as a table, with the late records so far."""
        return replace(self.explained, late=progress.late, lateness=progress.lateness)

    def end(self, error: BaseException | None) -> None:
        """Answer all requests at the end of the run, and refuse new ones.

        Args:
            error: the error that ended the run, if any.
        """
        self.phase = "ended" if error is None else "failed"
        self.mailbox.close(error)

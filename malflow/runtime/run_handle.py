"""The handle of a run: what other threads may see and ask of it."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from malflow.drawing.notebook import picture_bundle
from malflow.errors import GraphError, OperatorError
from malflow.failures import Replayed
from malflow.runtime.progress import Progress
from malflow.runtime.requests import RunRequests
from malflow.runtime.state_views import StateView, WindowsView
from malflow.runtime.time_table import TimeTable
from malflow.runtime.tracebacks import of_user
from malflow.runtime.why_answer import Why
from malflow.runtime.why_asking import ask_why

__all__ = ["DrivenHandle", "RunHandle", "SkippedHandle"]

_TURN = 0.2
"""The longest time, in seconds, until signals are handled."""


class RunHandle(ABC):
    """A handle of a run, whose methods can be called from any thread.

    `start` of a runtime returns one; a listener receives one in `on_start`, also from `execute`.

    Args:
        requests: the requests to the run.
        keeps: whether the run has a persistence.
    """

    def __init__(self, requests: RunRequests, *, keeps: bool) -> None:
        self._requests = requests
        self._keeps = keeps
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    @property
    def job(self) -> str:
        """The name of the job."""
        return self._requests.listeners.job

    @property
    def runtime(self) -> str:
        """The kind of the runtime: ``single``, ``processes`` or ``spark``."""
        return self._requests.runtime

    @property
    @abstractmethod
    def progress(self) -> Progress:
        """The progress of the run."""

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run ends; return whether it has ended.

        Args:
            timeout: the maximum number of seconds to wait; None waits without limit.

        Raises:
            GraphError: if user code of the dataflow waits.
            MalflowError: the error that ended the run; see `execute` of the runtime.
        """
        self._requests.own.refuse_to_wait("await_termination() waits for the end of the run", "call it elsewhere")
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.has_ended:
            left = _TURN if deadline is None else min(_TURN, deadline - time.monotonic())
            if left <= 0:
                return False
            self._wait(left)  # in short waits, so that signals are handled
        if self._error is None:
            return True
        try:
            raise self._error
        except (GraphError, OperatorError) as error:
            of_user(error)
            raise

    def stop(self) -> None:
        """End the run after the current tick, with a last snapshot."""
        self._requests.stop()

    def snapshot(self) -> Future[int]:
        """Request a snapshot after the current tick or, while a restart is pending, after the next first tick.

        Returns:
            A future of its id or its error; cancelled if the run ends first. User code of the dataflow can't wait for
            it.

        Raises:
            GraphError: if the run has no persistence.
            SnapshotError: if the run has ended.
        """
        return self._requests.ask_snapshot(keeps=self._keeps)

    def rescale(self, parallelism: int) -> Future[None]:
        """Request another number of workers, effective after the current tick.

        Returns:
            A future that completes with the rescale. It holds a `SnapshotError` if the dataflow keeps state under
            ``key_local``, or a `GraphError` if readers can't move between processes; the run then continues unchanged.
            It is cancelled if the run ends first. User code of the dataflow can't wait for it.

        Raises:
            GraphError: if `parallelism` is not a positive integer.
            SnapshotError: if the run has ended.
        """
        return self._requests.ask_rescale(parallelism)

    def replay(self, operator: str, ids: Sequence[str] | None = None) -> Future[Replayed]:
        """Process dead letters of an operator again, in the next tick, before its input; oldest first.

        A letter leaves the state with the effect of its record, so that a snapshot has both or neither. If it fails
        again, it is a new letter with one more attempt. A crash before the next snapshot brings it back.

        Args:
            operator: the operator.
            ids: the ids of the letters; None for all. Unknown ones are ignored.

        Returns:
            A future of a `Replayed`, which counts them, and those that can't be replayed. It holds a `QueryError` if
            the run ends before. User code of the dataflow can't wait for it.

        Raises:
            GraphError: if no such operator can have dead letters.
            QueryError: if the run has not begun, or has ended.
        """
        return self._requests.ask_replay(operator, ids, discards=False)

    def discard(self, operator: str, ids: Sequence[str] | None = None) -> Future[Replayed]:
        """Remove dead letters of an operator without a further attempt, in the next tick.

        Args:
            operator: the operator.
            ids: the ids of the letters; None for all. Unknown ones are ignored.

        Returns:
            A future of a `Replayed`, which counts them; see `replay`.

        Raises:
            GraphError: if no such operator can have dead letters.
            QueryError: if the run has not begun, or has ended.
        """
        return self._requests.ask_replay(operator, ids, discards=True)

    def state(self, name: str) -> StateView[Any, Any]:
        """Return the states of an operator, to ask for them while the run runs.

        Args:
            name: the name of the operator, or of one of its hidden states.

        Raises:
            GraphError: if there is no such state, or its entries have no keys.
        """
        return StateView(self._requests, name)

    def windows(self, name: str) -> WindowsView[Any, Any, Any]:
        """Return the windows of an operator, to ask for their results while the run runs.

        Args:
            name: the name of windows, sessions, a cogroup or a rollup.

        Raises:
            GraphError: if there is no such operator, or it has no windows.
        """
        return WindowsView(self._requests, name)

    def explain_time(self, timeout: float = 30.0) -> TimeTable:
        """Return which operators wait for an epoch (watermark), and for which source; it prints as text.

        Args:
            timeout: the maximum number of seconds to wait for the end of the current tick.

        Raises:
            GraphError: if user code of the dataflow calls it.
            TimeoutError: if the tick takes longer.
        """
        self._requests.ask_explanation(timeout)
        return self._requests.time_table(self.progress)

    def why(self, operator: str | None = None, timeout: float = 30.0) -> Why:
        """Return why nothing comes out of an operator, or of the whole run; it prints as text.

        It takes two readings of the run, up to two seconds apart, and names the first cause that applies: see `Why`.

        Args:
            operator: the name of the operator, such as of a sink. None looks at all sinks, or at the operators that
                nothing reads if there are none, and tells the first one with a fault.
            timeout: the maximum number of seconds to wait for the end of a tick; if it takes longer, that is the cause.

        Raises:
            GraphError: if there is no such operator, or user code of the dataflow calls it.
        """
        return ask_why(self._requests, lambda: self.progress, operator, timeout)

    @property
    def is_stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self._requests.stopping

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended."""
        return self._ended.is_set() if self._thread is None else not self._thread.is_alive()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the run for notebooks: its dataflow and its progress, as text and as HTML."""
        progress, program = self.progress, self._requests.program
        shown = {} if program is None else picture_bundle(program)
        table = progress._repr_mimebundle_(include, exclude)
        line = f"{progress.status}, tick {progress.tick}, parallelism {progress.parallelism}"
        return {
            "text/plain": f"{shown.get('text/plain', '')}{line}",
            "text/html": f"{shown.get('text/html', '')}<p>{progress.status}</p>{table['text/html']}",
        }

    def _wait(self, seconds: float) -> None:
        if self._thread is None:
            self._ended.wait(seconds)
        else:
            self._thread.join(seconds)


class DrivenHandle(RunHandle):
    """A handle of a run that this process drives, on the thread of the caller or on one of its own."""

    @property
    @abstractmethod
    def reader_is_gone(self) -> bool:
        """Whether the run has ended because the reader of standard output exited (a broken pipe)."""

    @abstractmethod
    def _run(self) -> None:
        """Run to the end."""

    def run(self, held: ExitStack) -> None:
        """Run to the end on this thread.

        Args:
            held: reserves the runtime; closed when the run has ended.

        Raises:
            MalflowError: the error that ended the run.
        """
        try:
            self._supervise(held)
        except BaseException as error:
            if self._requests.listeners.has_handle:  # otherwise nobody can wait, and the error would hold this frame
                self._error = error
            raise
        finally:
            self._ended.set()

    def begin(self, held: ExitStack) -> None:
        """Run in a thread of its own.

        Args:
            held: reserves the runtime until the run has ended; the handle takes it over.
        """
        held = held.pop_all()  # not earlier: until then, the caller's stack is closed after an error
        self._thread = threading.Thread(target=self._run_apart, args=(held,), name="malflow-run", daemon=True)
        self._thread.start()

    def _run_apart(self, held: ExitStack) -> None:
        try:
            self._supervise(held)
        except BaseException as error:  # noqa: BLE001 - `await_termination` raises it
            self._error = error

    def _supervise(self, held: ExitStack) -> None:
        with held, self._requests.own.working():
            self._requests.started = datetime.now(UTC)
            self._requests.listeners.start(self)
            self._run()


class SkippedHandle(RunHandle):
    """The handle of a run that has ended without having begun.

    Args:
        progress: its progress.
    """

    def __init__(self, progress: Progress) -> None:
        requests = RunRequests()
        requests.end(None)
        super().__init__(requests, keeps=False)
        self._progress = progress
        self._ended.set()

    @property
    def progress(self) -> Progress:
        """The progress before a run."""
        return self._progress

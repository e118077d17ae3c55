"""The handle of a run: what other threads may see and ask of it."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, TypeVar

from malflow.checks import checked_seconds, checked_wait
from malflow.diagnostics import is_of_malflow
from malflow.drawing.notebook import notebook_display, picture_bundle, refresh
from malflow.durations import Duration
from malflow.engine.plan import Program
from malflow.engine.taps import Tap
from malflow.errors import GraphError, OperatorError
from malflow.failures import DeadLetter, Replayed
from malflow.runtime.progress.progress import Progress
from malflow.runtime.progress.time_table import TimeTable
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.requests.state_views import StateView, WindowsView, asked_letters
from malflow.runtime.why.answer import Why
from malflow.runtime.why.search import ask_why

__all__ = [
    "VARIABLE",
    "RunHandle",
    "SkippedHandle",
    "Steered",
    "of_user",
]


class Steered(ABC):
    """A run that other threads can observe and steer."""

    @property
    @abstractmethod
    def progress(self) -> Progress:
        """The progress of the run."""

    @property
    @abstractmethod
    def _asked(self) -> RunRequests:
        """The requests to the run."""

    @property
    @abstractmethod
    def _keeps(self) -> bool:
        """Whether the run has a persistence."""

    @property
    def _has_begun(self) -> bool:
        """Whether a run has begun. Its ticks can then answer."""
        return True

    def snapshot(self) -> Future[int]:
        """Request a snapshot after the current tick or, while a restart is pending, after the next first tick.

        Callable from any thread, a signal handler or user code. Requests made while a snapshot is being written share
        the next one.

        Returns:
            A future of the snapshot's id or its error; cancelled if the run ends first. If user code of the dataflow or
            a signal handler waits for it, that is a `GraphError`, since the tick could never end.

        Raises:
            GraphError: if the run has no persistence.
            SnapshotError: if the run has ended.
        """
        return self._asked.ask_snapshot(keeps=self._keeps)

    def rescale(self, parallelism: int) -> Future[None]:
        """Change the number of workers after the current tick; callable from any thread.

        Each key moves to the worker that its partitioner chooses, and the parts of sources are reassigned. Requests are
        served in order.

        Returns:
            A future that completes with the rescale and is cancelled if the run ends first. It holds the error if the
            run fails in between. If the dataflow can't be rescaled, the run continues unchanged, and it holds a
            `SnapshotError` for state under ``key_local``, or a `GraphError` for readers that can't move between
            processes. User code of the dataflow can't wait for it.

        Raises:
            GraphError: if `parallelism` is not a positive integer.
            SnapshotError: if the run has ended.
        """
        return self._asked.ask_rescale(parallelism)

    def replay(self, operator: str, ids: Sequence[str] | None = None) -> Future[Replayed]:
        """Process dead letters of an operator again, in the next tick, before its input; oldest first.

        A letter leaves the state with the effect of its record. A snapshot has both or neither. If it fails again, it
        is a new letter with one more attempt. A crash before the next snapshot brings it back.

        Args:
            operator: the operator.
            ids: the ids of the letters; None for all. Unknown ones are ignored.

        Returns:
            A future of a `Replayed`. It counts them, and the letters that can't be replayed. It holds a `QueryError` if
            the run ends before. User code of the dataflow can't wait for it.

        Raises:
            GraphError: if no such operator can have dead letters.
            QueryError: if the run has not begun, or has ended.
        """
        return self._asked.ask_replay(operator, ids, discards=False)

    def discard(self, operator: str, ids: Sequence[str] | None = None) -> Future[Replayed]:
        """Remove dead letters of an operator without a further attempt, in the next tick.

        Args:
            operator: the operator.
            ids: the ids of the letters; None for all. Unknown ones are ignored.

        Returns:
            A future of a `Replayed`. It counts them; see `replay`.

        Raises:
            GraphError: if no such operator can have dead letters.
            QueryError: if the run has not begun, or has ended.
        """
        return self._asked.ask_replay(operator, ids, discards=True)

    def letters(self, operator: str, limit: int = 100) -> Future[list[DeadLetter]]:
        """Ask for the dead letters of an operator, after the current tick; callable from another thread.

        Args:
            operator: the operator.
            limit: the maximum number of letters, up to 10,000; each worker gives its oldest.

        Returns:
            A future of copies, oldest first. It holds a `QueryError` if the run ends first.

        Raises:
            GraphError: if no such operator can have dead letters, or the limit is not valid.
            QueryError: if the run has not begun, or has ended.
        """
        return asked_letters(self._asked, operator, limit)

    def state(self, name: str) -> StateView[Any, Any]:
        """Return the states of an operator, to ask for them while it runs; callable from another thread.

        Args:
            name: the name of the operator, or of one of its hidden states.

        Raises:
            GraphError: if there is no such state, or its entries have no keys.
            QueryError: if no run has begun.
        """
        return StateView(self._asked, name)

    def windows(self, name: str) -> WindowsView[Any, Any, Any]:
        """Return the windows of an operator, to ask for their results while it runs; callable from another thread.

        Args:
            name: the name of windows, sessions, a cogroup or a rollup.

        Raises:
            GraphError: if there is no such operator, or it has no windows.
            QueryError: if no run has begun.
        """
        return WindowsView(self._asked, name)

    def why(self, operator: str | None = None, timeout: Duration = 30.0) -> Why:
        """Return why nothing comes out of an operator, or of the whole run; it prints as text.

        It takes two readings of the run, up to two seconds apart, and names the first cause that applies: see `Why`.
        During a run, call it from another thread. Afterwards, it describes the output of the run.

        Args:
            operator: the name of the operator, such as of a sink. None looks at all sinks or, without sinks, at the
                operators that nothing reads, and reports the first one with a fault.
            timeout: how long to wait at most for the end of a tick; if it takes longer, that is the cause.

        Raises:
            GraphError: if there is no such operator, or user code of the dataflow calls it.
        """
        return ask_why(self._asked, lambda: self.progress, operator, checked_wait("why()", timeout))

    def tap(self, tap: Tap) -> None:
        """Add a reader of the records that leave an operator, from the next tick on; callable from any thread.

        The run calls it on its own thread, and waits for it.

        Args:
            tap: the reader; its `end_tick` says when it is removed.

        Raises:
            GraphError: if there is no such operator.
            UnsupportedOperator: if the run is not on one thread.
            QueryError: if no run has begun.
        """
        self._asked.tap(tap)

    def explain_time(self, timeout: Duration = 30.0) -> TimeTable:
        """Return which operators wait for an epoch (watermark), and for which source; it prints as text.

        During a run, call it from another thread; it waits for the end of the current tick. Afterwards, it returns the
        situation before the end of the stream.

        Args:
            timeout: how long to wait at most.

        Raises:
            GraphError: if the run's own thread calls it, as in user code of the dataflow.
            TimeoutError: if the tick takes longer.
        """
        if self._has_begun:
            self._asked.ask_explanation(checked_wait("explain_time()", timeout))
        return self._asked.time_table(self.progress)


_Error = TypeVar("_Error", bound=BaseException)

VARIABLE: Final = "MALFLOW_TRACEBACK"
"""The environment variable that keeps all frames, if it is ``full``."""


def of_user(error: _Error) -> _Error:
    """Return an error after removing malflow's frames from its traceback and from the tracebacks of its causes."""
    if os.environ.get(VARIABLE) == "full":
        return error
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.__traceback__ = _without_own(link.__traceback__)
        link = link.__cause__ or link.__context__
    return error


def _without_own(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        if not is_of_malflow(trace.tb_frame.f_code.co_filename):
            frames.append(trace)
        trace = trace.tb_next
    for frame in reversed(frames):
        trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return trace


_TURN = 0.2
"""The longest time, in seconds, until signals are handled."""


class RunHandle(Steered):
    """A handle of a run. Its methods can be called from any thread.

    `start` of a runtime returns one; a listener receives one in `on_start`, also from `execute`.

    Args:
        requests: the requests to the run.
        keeps: whether the run has a persistence.
    """

    def __init__(self, requests: RunRequests, *, keeps: bool) -> None:
        self._requests = requests
        self._is_kept = keeps
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    @property
    def job(self) -> str:
        """The name of the job."""
        return self._requests.listeners.job

    @property
    def state_place(self) -> str | None:
        """Where the state of the job is kept, without secrets; None if it keeps none, or in a store of one's own."""
        return self._requests.listeners.place

    @property
    def runtime(self) -> str:
        """The kind of the runtime: ``single``, ``processes`` or ``spark``."""
        return self._requests.runtime

    @property
    def program(self) -> Program | None:
        """The compiled dataflow, for `malflow.draw`; None before it is built."""
        return self._requests.program

    @property
    def _asked(self) -> RunRequests:
        return self._requests

    @property
    def _keeps(self) -> bool:
        return self._is_kept

    def await_termination(self, timeout: Duration | None = None) -> bool:
        """Wait until the run ends; return whether it has ended.

        Args:
            timeout: how long to wait at most; None waits without limit.

        Raises:
            GraphError: if user code of the dataflow waits.
            MalflowError: the error that ended the run; see `execute` of the runtime.
        """
        self._requests.own.check_may_wait("await_termination() waits for the end of the run", "call it elsewhere")
        deadline = None if timeout is None else time.monotonic() + checked_wait("await_termination()", timeout)
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

    @property
    def is_stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self._requests.stopping

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended."""
        return self._ended.is_set() if self._thread is None else not self._thread.is_alive()

    def watch(self, every: Duration = 1.0, *, display: Callable[..., Any] | None = None) -> None:
        """Show the run in a notebook, and redraw it in the same place until it ends.

        Interrupting the cell ends the display, not the run.

        Args:
            every: the time between two drawings.
            display: displays an object, as ``IPython.display.display`` does; None uses that function.

        Raises:
            GraphError: if `every` is not a span of time above zero, or user code of the dataflow calls it.
            MissingDependency: if IPython is not installed.
        """
        seconds = checked_seconds("watch()", "every", every)
        self._requests.own.check_may_wait("watch() waits for the end of the run", "call it in another cell")

        def wait() -> bool:
            deadline = time.monotonic() + seconds
            while not self.has_ended and (left := deadline - time.monotonic()) > 0:
                self._wait(min(_TURN, left))  # in short waits, so that the interrupt of the cell is handled
            return self.has_ended

        with suppress(KeyboardInterrupt):
            refresh(self, notebook_display() if display is None else display, wait)

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

"""The handle of a run: what other threads may see and ask of it."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from malflow.checks import checked_seconds, checked_wait
from malflow.drawing.notebook import notebook_display, picture_bundle, refresh
from malflow.durations import Duration
from malflow.engine.plan import Program
from malflow.errors import GraphError, OperatorError
from malflow.runtime.progress import Progress
from malflow.runtime.requests import RunRequests
from malflow.runtime.steered import Steered
from malflow.runtime.tracebacks import of_user
from malflow.runtime.transport.surroundings import thread_with_context

__all__ = ["DrivenHandle", "RunHandle", "SkippedHandle"]

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
        self._thread = thread_with_context(partial(self._run_apart, held), "malflow-run")
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

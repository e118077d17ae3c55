"""The handle of a run that was started in a thread of its own."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import Future
from contextlib import ExitStack

from malflow.runtime.progress import Progress
from malflow.runtime.requests import RunRequests
from malflow.runtime.state_views import StateView, WindowsView
from malflow.runtime.time_table import TimeTable

__all__ = ["RunHandle"]

_TURN = 0.2
"""The longest time, in seconds, until signals are handled."""


class RunHandle(ABC):
    """A handle of a run in its own thread.

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
        """Whether the run has ended because the reader of standard output exited (a broken pipe)."""

    @abstractmethod
    def _run(self) -> None:
        """Run to the end."""

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
        while self._thread.is_alive():
            left = _TURN if deadline is None else min(_TURN, deadline - time.monotonic())
            if left <= 0:
                return False
            self._thread.join(left)  # in short waits, so that signals are handled
        if self._error is not None:
            raise self._error
        return True

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

    def state(self, name: str) -> StateView:
        """Return the states of an operator, to ask for them while the run runs.

        Args:
            name: the name of the operator, or of one of its hidden states.

        Raises:
            GraphError: if there is no such state, or its entries have no keys.
        """
        return StateView(self._requests, name)

    def windows(self, name: str) -> WindowsView:
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

    @property
    def is_stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self._requests.stopping

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended."""
        return not self._thread.is_alive()

    def _begin(self) -> None:
        self._held = self._held.pop_all()  # not earlier: until then, the caller's stack is closed after an error
        self._thread.start()

    def _supervise(self) -> None:
        try:
            with self._held, self._requests.own.working():
                self._run()
        except BaseException as error:  # noqa: BLE001 - `await_termination` raises it
            self._error = error

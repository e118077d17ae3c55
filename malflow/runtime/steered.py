"""The methods that let other threads observe and steer a run, shared by runtimes and handles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from malflow.checks import checked_wait
from malflow.durations import Duration
from malflow.engine.taps import Tap
from malflow.failures import DeadLetter, Replayed
from malflow.runtime.progress import Progress
from malflow.runtime.requests import RunRequests
from malflow.runtime.state_views import StateView, WindowsView, asked_letters
from malflow.runtime.time_table import TimeTable
from malflow.runtime.why_answer import Why
from malflow.runtime.why_asking import ask_why

__all__ = ["Steered"]


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

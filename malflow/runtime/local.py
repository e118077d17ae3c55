"""Runs on ticking hosts: the loop, on the calling thread or in its own thread."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.runtime.attempts import Attempt, DrivenHandle, Restarts, RunLoop
from malflow.runtime.base import Runtime
from malflow.runtime.coordination.coordinator import drive
from malflow.runtime.handle import RunHandle
from malflow.runtime.host import TickingHost
from malflow.runtime.options import RunOptions
from malflow.runtime.process_state import BROKEN_PIPE, rarer_collections, signals_stop
from malflow.runtime.requests.mailbox import RunRequests

__all__ = ["LocalAttempt", "LocalHandle", "LocalRuntime"]


class LocalAttempt(Attempt):
    """An attempt at a run on a ticking host.

    Args:
        program: the program.
        host: its workers.
        sinks: the sinks in this process.
        options: the options of the run.
        requests: the requests of other threads, and the listeners.
        restarts: makes another attempt after a failure; None if nothing does.
    """

    def __init__(
        self,
        program: Program,
        host: TickingHost,
        sinks: RunSinks,
        options: RunOptions,
        requests: RunRequests,
        restarts: Restarts | None = None,
    ) -> None:
        super().__init__(program, sinks, options, requests, restarts)
        self._host = host

    def _drive(self) -> None:
        coordinator = self._coordinate(self._host)
        coordinator.restore()
        drive(coordinator, self._host)

    def _releases(self, error: BaseException | None) -> Sequence[Callable[[], object]]:
        close_host = partial(self._host.close, error)
        return (close_host,) if self._coordinator is None else (close_host, partial(self._coordinator.close, error))


class LocalHandle(DrivenHandle[LocalAttempt]):
    """The handle of a run on ticking hosts."""

    def _run(self) -> None:
        self._loop.run(_surroundings(self._requests))


@contextmanager
def _surroundings(requests: RunRequests) -> Iterator[None]:
    """Within the context, signals stop the run, and the garbage collector runs more rarely."""
    with signals_stop(requests.stop, lambda: requests.stopping), rarer_collections():
        yield


class LocalRuntime(Runtime):
    """A runtime that drives the ticks of its host itself."""

    @abstractmethod
    def _host(self, program: Program, sinks: RunSinks, options: RunOptions) -> TickingHost:
        """Return the workers of a program.

        Raises:
            MalflowError: if they can't be created.
        """

    def _sinks(self, program: Program) -> RunSinks:
        """Return the sinks that are in this process."""
        return RunSinks(program.sinks, policy=program.policy)

    def _restarts(self, program: Program) -> Restarts | None:
        """Return the object that decides about restarts; None if the run is never restarted."""
        del program
        return None

    def _execute(self) -> None:
        with ExitStack() as stack:
            handle = self._handle(stack)
            handle.run(stack.pop_all())
        if handle.reader_is_gone:
            raise SystemExit(BROKEN_PIPE)

    def _start(self) -> RunHandle:
        with ExitStack() as stack:
            handle = self._handle(stack)
            handle.begin(stack)
        return handle

    def _handle(self, held: ExitStack) -> LocalHandle:
        """Reserve the runtime and build the dataflow; return the handle of its run."""
        requests = self._held(held)
        program = self._built()
        restarts = self._restarts(program)

        def new_attempt(options: RunOptions) -> LocalAttempt:
            sinks = self._sinks(program)
            return LocalAttempt(program, self._host(program, sinks, options), sinks, options, requests, restarts)

        self._slot.last = loop = RunLoop(program, self._options, requests, restarts, new_attempt)
        return LocalHandle(loop, requests, keeps=self._keeps)

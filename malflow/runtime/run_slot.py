"""The place of a runtime's run: one at a time, and the requests to the present one or the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from malflow.errors import GraphError
from malflow.runtime.listeners import Listeners
from malflow.runtime.progress import Progress
from malflow.runtime.requests import RunRequests

__all__ = ["RunSlot"]


class _Running(Protocol):
    @property
    def progress(self) -> Progress: ...


class RunSlot:
    """The run of a runtime, with its requests; a runtime that runs in place of another one takes over its slot.

    Attributes:
        current: the requests to the current run, or to the last one.
        next: the requests to the current run or, if nothing runs, to the next one.
        last: the current or last run; None before the first.
    """

    def __init__(self) -> None:
        self._executing = threading.Lock()
        self.current = self.next = RunRequests()
        self.last: _Running | None = None

    @contextmanager
    def held(self, listeners: Listeners) -> Iterator[RunRequests]:
        """Reserve the slot for the next run; after that run, `stop` applies to the following one.

        Args:
            listeners: the listeners of the run.

        Raises:
            GraphError: if a run is in it.
        """
        if not self._executing.acquire(blocking=False):
            raise GraphError("this runtime is already running a dataflow; create another one for another run")
        error: BaseException | None = None
        try:
            self.last, self.current = None, self.next
            self.current.listeners = listeners
            yield self.current
        except BaseException as raised:
            error = raised
            raise
        finally:
            self.next = RunRequests()
            self.current.end(error)
            error = None  # its traceback holds this frame
            self._executing.release()

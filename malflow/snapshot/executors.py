"""Executors that run tasks in order: on a thread of their own or, for tests, inline."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

__all__ = ["Executor", "InlineExecutor", "ThreadExecutor"]

T = TypeVar("T")


class Executor(Protocol):
    """Runs tasks one after the other."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Submit a task; return a future of its result."""

    def close(self, *, wait: bool) -> None:
        """Accept no more tasks; with `wait`, block until the pending ones are done."""


class ThreadExecutor:
    """Runs tasks on one daemon thread: when the process exits, pending snapshots are lost, never half written."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue a task."""
        if self._thread is None:
            self._thread = threading.Thread(target=_work, args=(self._queue,), name="malflow-snapshots", daemon=True)
            weakref.finalize(self, self._queue.put, None)  # also if an interrupt prevented close()
            self._thread.start()
        future: Future[T] = Future()
        self._queue.put((work, future))
        return future

    def close(self, *, wait: bool) -> None:
        """Stop the thread once the queue is empty."""
        if self._thread is not None:
            self._queue.put(None)
            if wait:
                self._thread.join()


class InlineExecutor:
    """Runs tasks on the calling thread."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run a task now; a BaseException such as a simulated crash propagates."""
        future: Future[T] = Future()
        _do(work, future)
        if isinstance(error := future.exception(), BaseException) and not isinstance(error, Exception):
            raise error
        return future

    def close(self, *, wait: bool) -> None:
        """Do nothing: there is no thread to stop."""


def _work(queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]) -> None:
    while (item := queue.get()) is not None:
        _do(*item)
        del item


def _do(work: Callable[[], Any], future: Future[Any]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - the future raises it
        future.set_exception(error)
    else:
        future.set_result(result)

"""Work done beside the run, in its order: on a thread of its own, or at once where tests want it so."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

__all__ = ["AtOnce", "Background", "Executor"]

T = TypeVar("T")


class Executor(Protocol):
    """Does what it is given, one thing after the other."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have work done; the future tells how it ended."""

    def close(self, *, wait: bool) -> None:
        """Take no more work; wait for what is left of it, or don't."""


class Background:
    """One thread. It does not keep the process from ending: a snapshot in the making is lost then, not half written."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Put work in the queue."""
        if self._thread is None:
            self._thread = threading.Thread(target=_work, args=(self._queue,), name="malflow-snapshots", daemon=True)
            weakref.finalize(self, self._queue.put, None)  # also where an interrupt kept anybody from closing it
            self._thread.start()
        future: Future[T] = Future()
        self._queue.put((work, future))
        return future

    def close(self, *, wait: bool) -> None:
        """Let the thread end after what is in the queue."""
        if self._thread is not None:
            self._queue.put(None)
            if wait:
                self._thread.join()


class AtOnce:
    """The calling thread."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do the work now. What is no `Exception`, such as a crash in a test, is not held back."""
        future: Future[T] = Future()
        _do(work, future)
        if isinstance(error := future.exception(), BaseException) and not isinstance(error, Exception):
            raise error
        return future

    def close(self, *, wait: bool) -> None:
        """There is nothing to let go of."""


def _work(queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]) -> None:
    while (item := queue.get()) is not None:
        _do(*item)
        del item


def _do(work: Callable[[], Any], future: Future[Any]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - the future tells it to whoever asks
        future.set_exception(error)
    else:
        future.set_result(result)

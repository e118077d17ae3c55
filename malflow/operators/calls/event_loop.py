"""The event loop of a process, which runs in a thread of its own, and on which asynchronous functions are called."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run_on_loop"]

R = TypeVar("R")

_log = logging.getLogger("malflow.operators")

_PATIENCE = 10.0
"""Seconds to wait for calls that were cancelled, whose functions may ignore it."""


class _Loop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="malflow calls", daemon=True)
        self._thread.start()
        atexit.register(self._end, os.getpid())

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("an asynchronous function can't execute a dataflow that calls others; start a process")
        done = threading.Event()
        future = asyncio.run_coroutine_threadsafe(_noted(coroutine, done), self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():  # a second signal, while the main thread was waiting
                future.cancel()
                done.wait(_PATIENCE)
            raise

    def _serve(self) -> None:
        while True:
            try:
                self._loop.run_forever()
            except (KeyboardInterrupt, SystemExit):
                _log.exception("a task that an asynchronous function has started tried to end the process")
            else:
                return

    def _end(self, process: int) -> None:
        if os.getpid() == process:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(1)
            if not self._thread.is_alive():
                self._loop.close()


async def _noted(coroutine: Coroutine[Any, Any, R], done: threading.Event) -> R:
    try:
        return await coroutine
    finally:
        done.set()


_LOOPS: dict[int, _Loop] = {}
"""The loop of this process, by its id: a child that was forked has none of its own yet."""

_LOCK = threading.Lock()


def run_on_loop(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine on the loop of this process, and return its result.

    The loop and its thread are made by the first call in a process, not by an import, since Spark forks its workers.
    If the waiting is interrupted, the coroutine is cancelled, and has ended when the interruption is raised.

    Raises:
        RuntimeError: if it is called on the loop.
        BaseException: the error of the coroutine.
    """
    loop = _LOOPS.get(os.getpid())
    if loop is None:
        with _LOCK:
            loop = _LOOPS.get(os.getpid())
            if loop is None:
                _LOOPS.clear()
                loop = _LOOPS[os.getpid()] = _Loop()
    return loop.run(coroutine)

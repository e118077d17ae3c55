"""Signals that end a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["BROKEN_PIPE", "signals_stop"]

BROKEN_PIPE = 128 + 13
"""The exit code of a program that SIGPIPE ends."""


@contextmanager
def signals_stop(stop: Callable[[], object], is_stopping: Callable[[], bool]) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into a stop, where signals can be had: on the main thread.

    A signal that comes while the run is stopping does not wait for that: it raises.

    Args:
        stop: has the run end soon.
        is_stopping: whether it has been told to.

    Raises:
        KeyboardInterrupt, SystemExit: at a second signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if is_stopping() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if is_stopping():
            raise SystemExit(128 + number)
        stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

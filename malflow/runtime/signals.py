"""Signals that stop a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from malflow.stopping import stops_if

__all__ = ["BROKEN_PIPE", "signals_stop"]

BROKEN_PIPE = 128 + 13
"""The exit code of a program that SIGPIPE has ended."""


@contextmanager
def signals_stop(stop: Callable[[], object], is_stopping: Callable[[], bool]) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into a stop, if called on the main thread, the only one that receives signals.

    A second signal, while the run is stopping, raises at once.

    Args:
        stop: stops the run.
        is_stopping: whether the run is stopping.

    Raises:
        KeyboardInterrupt, SystemExit: at a second signal.
    """
    if threading.current_thread() is not threading.main_thread():
        with stops_if(is_stopping):
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
        with stops_if(is_stopping):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""SIGINT and SIGTERM outside a run of the main thread: they stop the runs of other threads."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from malflow.runtime.process_state import handling

__all__ = ["signals_stop_runs"]


@contextmanager
def signals_stop_runs(stop: Callable[[], bool]) -> Iterator[None]:
    """Within the context, stop the live runs at a signal; if there are none, the signal acts as on any script.

    `execute` on the main thread has handlers of its own, and a script may set others.

    Args:
        stop: stops the runs; returns whether there were any that had not been asked to.
    """

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop():
            return
        if number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    taken = [(signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)]
    with handling([number for number, usual in taken if signal.getsignal(number) == usual], on_signal):
        yield

"""Signals of ``malflow run``: SIGINT and SIGTERM stop the runs of other threads, SIGUSR1 shows progress."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from malflow.cli.output.output import Output
from malflow.cli.output.screens import screen_of
from malflow.monitor.monitor import Monitor
from malflow.runtime.process_state import handling

__all__ = [
    "signal_shows_progress",
    "signals_stop_runs",
]


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


@contextmanager
def signal_shows_progress(monitors: Sequence[Monitor], output: Output) -> Iterator[None]:
    """Within the context, write the progress of live runs at SIGUSR1, unless the script has a handler of its own.

    Args:
        monitors: the monitors of the runs; it may grow.
        output: how to write.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL:
        yield
        return

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        # in a thread, since this one may be about to write
        threading.Thread(target=_show, args=(tuple(monitors), output), daemon=True).start()

    with handling([signal.SIGUSR1], on_signal):
        yield


def _show(monitors: Sequence[Monitor], output: Output) -> None:
    live = [it.watch for it in monitors if it.watch is not None and not it.watch.is_over]
    for watch in live:
        progress = watch.answers.progress()
        if output.json:
            output.document("progress", {name: it for name, it in progress.items() if name != "kind"}, err=True)
        else:
            output.warn("\n".join(screen_of(progress)))
    if not live:
        output.warn("no run is monitored")

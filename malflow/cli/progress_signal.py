"""SIGUSR1 under ``malflow run``: one screen of progress on standard error."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from malflow.cli.output import Output
from malflow.cli.screens import screen_of
from malflow.monitor.monitor import Monitor
from malflow.runtime.process_state import handling

__all__ = ["signal_shows_progress"]


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

"""Signals to child processes."""

from __future__ import annotations

import signal

__all__ = ["heed_signals"]

_HEEDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)


def heed_signals() -> None:
    """Heed signals in a child process; a shell makes its background programs ignore SIGINT, and ``nohup`` SIGHUP."""
    for number in _HEEDED:
        signal.signal(number, signal.SIG_DFL)

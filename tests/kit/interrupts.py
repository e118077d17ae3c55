"""Interrupts of child processes."""

from __future__ import annotations

import signal

__all__ = ["heed_interrupts"]


def heed_interrupts() -> None:
    """Heed SIGINT in a child process; a shell makes its background programs ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

"""Single key presses on a terminal, without Enter; it is restored at every exit that a process can notice."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["pressed_keys"]

Wait = Callable[[float], str]
"""Waits at most this many seconds for a key, and returns it; returns an empty text if there is none."""

_TERMINATED = 128 + signal.SIGTERM


@contextmanager
def pressed_keys() -> Iterator[Wait]:
    """Within the context, keys are read as they are pressed, if standard input is a terminal."""
    try:
        import termios  # noqa: PLC0415 - not on Windows
        import tty  # noqa: PLC0415 - not on Windows either

        stream = sys.stdin.fileno()
        before = termios.tcgetattr(stream)
    except (ImportError, OSError, ValueError, termios.error):
        yield _wait_alone
        return
    handler = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _end)
    try:
        tty.setcbreak(stream)
        yield lambda seconds: _key(stream, seconds)
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, handler)


def _wait_alone(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _key(stream: int, seconds: float) -> str:
    if not select.select([stream], [], [], seconds)[0]:
        return ""
    data = os.read(stream, 32)
    return data.decode("ascii", "ignore")[:1] if data else "q"  # the terminal has gone


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_TERMINATED)

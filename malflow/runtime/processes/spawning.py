"""Launching of worker processes by a new interpreter each, as multiprocessing's ``spawn`` does.

The script that starts a run is not imported again, so it needs no ``if __name__ == "__main__"``: its functions and
classes travel with the program.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from malflow.runtime.signals import take_signal

__all__ = ["STOPS", "flags_of_interpreter", "handle_stops", "spawn", "stops_blocked"]

STOPS: Final = (signal.SIGINT, signal.SIGTERM)
"""The signals that stop a run: the coordinator handles them."""

_PROGRAM = """
import json, sys
sys.path[:], numbers = json.loads(sys.argv[1])
from malflow.runtime.processes.worker_process import main
main(*numbers)
"""


def spawn(descriptors: Sequence[int], peers: int) -> subprocess.Popen[bytes]:
    """Launch a worker process.

    Args:
        descriptors: the file descriptors that its `main` takes.
        peers: the number of other worker processes.

    Raises:
        OSError: if it can't be launched.
    """
    arguments = json.dumps(([*map(str, sys.path)], [*descriptors, peers]))
    command = [sys.executable, *flags_of_interpreter(), "-c", _PROGRAM, arguments]
    with stops_blocked():
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=descriptors)  # noqa: S603 - our own program


@contextmanager
def stops_blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM in this thread and in processes that it launches, until these handle them.

    A new interpreter would die of a signal to the whole process group.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def handle_stops(handler: Callable[[int, FrameType | None], None]) -> None:
    """Handle the signals that `stops_blocked` has blocked, in the new process; its children have the usual handlers."""
    for number, usual in zip(STOPS, (signal.default_int_handler, signal.SIG_DFL), strict=True):
        take_signal(number, handler, usual)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def flags_of_interpreter() -> list[str]:
    """Return the options of this interpreter, such as ``-W error`` and ``-O``."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags

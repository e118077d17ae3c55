"""Launching of worker processes by a new interpreter each, as multiprocessing's ``spawn`` does.

The script that starts a run is not imported again, so it needs no ``if __name__ == "__main__"``: its functions and
classes travel with the program.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from malflow.runtime.process_state import take_signal

__all__ = [
    "STOPS",
    "above_standard_streams",
    "connected_sockets",
    "flags_of_interpreter",
    "handle_stops",
    "launched",
    "spawn",
    "stops_blocked",
]

STOPS: Final = (signal.SIGINT, signal.SIGTERM)
"""The signals that stop a run: the coordinator handles them."""

_STANDARD: Final = (0, 1, 2)
"""The file descriptors of the standard streams."""

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
    return launched(_PROGRAM, arguments, descriptors)


def launched(program: str, arguments: str, descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    """Launch a new interpreter, without input, and with the output of this process.

    Args:
        program: its code.
        arguments: its only argument.
        descriptors: the file descriptors that it inherits.

    Raises:
        OSError: if it can't be launched.
    """
    command = [sys.executable, *flags_of_interpreter(), "-c", program, arguments]
    out, err = map(_output, _STANDARD[1:])
    with stops_blocked():
        return subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=descriptors
        )


def _output(descriptor: int) -> int | None:
    """Return the output of a new process: None for that of this one, or nothing if that is closed."""
    try:
        os.fstat(descriptor)
    except OSError:
        return subprocess.DEVNULL
    return None


def above_standard_streams(descriptor: int) -> int:
    """Return a file descriptor that is not in the place of a standard stream.

    The places are free if this process has closed its streams. A new process has other streams there.
    """
    if descriptor not in _STANDARD:
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(_STANDARD) + 1)
    os.close(descriptor)
    return moved


def connected_sockets() -> tuple[socket.socket, socket.socket]:
    """Return two sockets that are connected with each other, for a new process."""
    one, other = (socket.socket(fileno=above_standard_streams(it.detach())) for it in socket.socketpair())
    return one, other


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

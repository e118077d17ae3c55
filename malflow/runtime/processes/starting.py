"""Start worker processes, each connected with the coordinator and with all others.

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from subprocess import TimeoutExpired
from typing import Final, Protocol, TypeAlias

from malflow.errors import RunFailed
from malflow.runtime.process_state import stops_blocked
from malflow.runtime.processes.links import Link

__all__ = [
    "Launch",
    "Launched",
    "StartedProcess",
    "above_standard_streams",
    "connected_sockets",
    "flags_of_interpreter",
    "launched",
    "spawn",
    "start_all",
]

_STANDARD: Final = (0, 1, 2)
"""The file descriptors of the standard streams."""

_PROGRAM = """
import gc, json, sys
gc.disable()  # until the program is loaded: imports leave little garbage
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


def flags_of_interpreter() -> list[str]:
    """Return the options of this interpreter, such as ``-W error`` and ``-O``."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags


class Launched(Protocol):
    """An operating system's process that was launched; `subprocess.Popen` is one.

    Attributes:
        pid: its id.
        returncode: how it has ended: its exit code, or minus the number of a signal; None if it runs.
    """

    @property
    def pid(self) -> int: ...  # noqa: D102 - described above

    @property
    def returncode(self) -> int | None: ...  # noqa: D102 - described above

    def poll(self) -> int | None:
        """Return `returncode`, after looking whether it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        Raises:
            TimeoutExpired: if it has not, after `timeout` seconds.
        """

    def kill(self) -> None:
        """Send it SIGKILL."""


Launch: TypeAlias = Callable[[Sequence[int], int], Launched]
"""Launches a worker process, given the file descriptors and the number that its `main` takes."""


class StartedProcess:
    """A worker process, as the coordinator sees it.

    Attributes:
        number: its number among the worker processes of the run.
        link: the link for commands and replies.
        files: the connection on which data files are commissioned.
    """

    def __init__(self, number: int, process: Launched, control: socket.socket, files: Connection) -> None:
        self.number = number
        self.link = Link(control)
        self.files = files
        self._process = process

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the process has ended; return whether it has.

        Args:
            seconds: the maximum time to wait; None waits without limit.
        """
        if seconds == 0.0:
            return self._process.poll() is not None
        with suppress(TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is not None

    @property
    def end(self) -> str:
        """How the process has ended, as text."""
        return _end_of(self._process.returncode)

    def close(self) -> None:
        """Kill the process if it runs, and close the links."""
        _end(self._process)
        self.link.close()
        self.files.close()


_Ends: TypeAlias = tuple[Launched, socket.socket, Connection]
"""A launched process, the socket for commands and replies, and the connection on which data files are commissioned."""


def start_all(count: int, launch: Launch) -> tuple[list[StartedProcess], int]:
    """Start worker processes.

    Args:
        count: the number of processes.
        launch: launches one.

    Returns:
        The processes; and a file descriptor to close after they have ended. When this process ends, so do they.

    Raises:
        RunFailed: if a process can't be started.
    """
    watched, life = map(above_standard_streams, os.pipe())
    launched: list[_Ends] = []
    try:
        while len(launched) < count:
            launched.append(_launched(launch, watched, count - 1))
        _connect(launched)
    except BaseException as error:
        os.close(life)
        for process, control, files in launched:
            _end(process)
            control.close()
            files.close()
        if isinstance(error, OSError):
            raise RunFailed(f"{count} worker processes could not be started: {error}") from error
        raise
    finally:
        os.close(watched)
    return [StartedProcess(number, *it) for number, it in enumerate(launched)], life


def _launched(launch: Launch, watched: int, peers: int) -> _Ends:
    (control, its_control), (files, its_files) = connected_sockets(), connected_sockets()
    with its_control, its_files:
        try:
            process = launch((its_control.fileno(), its_files.fileno(), watched), peers)
        except BaseException:
            control.close()
            files.close()
            raise
    return process, control, Connection(files.detach())


def _connect(launched: Sequence[_Ends]) -> None:
    """Send each process a socket to each other one, in the order of their numbers.

    One process after the other is connected with those before it. All must have what was sent before the next one's
    turn: the kernel counts the sockets that nobody has received, and lets an ordinary user have as many as open files.

    Raises:
        RunFailed: if a process ends meanwhile.
    """
    for one, of_one in enumerate(launched):
        for of_other in launched[:one]:
            first, second = connected_sockets()
            with first, second:
                _send_link(of_one, first)
                _send_link(of_other, second)
        for ends, count in ((of_one, one), *((of_other, 1) for of_other in launched[:one])):
            _wait_until_received(ends, count)


def _send_link(ends: _Ends, link: socket.socket) -> None:
    process, control, _ = ends
    try:
        socket.send_fds(control, [b"p"], [link.fileno()])
    except ConnectionError as error:
        raise _ended_early(process) from error


def _wait_until_received(ends: _Ends, count: int) -> None:
    """Wait until a process has confirmed some sockets, see `malflow.runtime.processes.links.receive_link`."""
    process, control, _ = ends
    while count:
        try:
            told = control.recv(count)
        except ConnectionError as error:
            raise _ended_early(process) from error
        if not told:
            raise _ended_early(process)
        count -= len(told)


def _ended_early(process: Launched) -> RunFailed:
    process.wait()
    return RunFailed(f"worker process {process.pid} {_end_of(process.returncode)} while it was started")


def _end(process: Launched) -> None:
    """Kill a process if it runs, and wait for its end."""
    if process.poll() is None:
        process.kill()
    process.wait()


def _end_of(code: int | None) -> str:
    """Return how a process has ended, as text."""
    if code is None:
        return "has closed its connection"
    if code >= 0:
        return f"has exited with code {code}"
    with suppress(ValueError):
        name = signal.Signals(-code).name
        hint = ", perhaps because memory ran out" if name == "SIGKILL" else ""
        return f"was killed by {name}{hint}"
    return f"was killed by signal {-code}"

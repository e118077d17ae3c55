"""Starting of worker processes, each connected with the coordinator and with all others."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from subprocess import TimeoutExpired
from typing import Protocol, TypeAlias

from malflow.errors import RunFailed
from malflow.runtime.processes.links import Link
from malflow.runtime.processes.spawning import above_standard_streams, connected_sockets

__all__ = ["Launch", "Launched", "StartedProcess", "receive_link", "start_all"]


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
    """Wait until a process has confirmed some sockets, see `receive_link`."""
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


def receive_link(end: socket.socket) -> Link:
    """Receive the socket to another process, and confirm it.

    Raises:
        EOFError, ConnectionError: if the coordinator is gone.
    """
    _, descriptors, _, _ = socket.recv_fds(end, 1, 1)
    if not descriptors:
        raise EOFError
    end.sendall(b"r")
    return Link(socket.socket(fileno=descriptors[0]))


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

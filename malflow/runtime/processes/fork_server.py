"""Launching of worker processes by a server that forks them, as multiprocessing's ``forkserver`` does.

The server is a new interpreter with one thread, which has imported malflow. It is started once, serves all runs of this
process, and ends with it. It tells how the processes have ended, since they are its children.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from struct import Struct
from typing import Any, Final, NoReturn

from malflow.runtime.process_state import handle_stops, stops_blocked
from malflow.runtime.processes.starting import connected_sockets, launched

__all__ = ["fork", "serve"]

_PROGRAM = """
import json, sys
sys.path[:], end = json.loads(sys.argv[1])
from malflow.runtime.processes.fork_server import serve
serve(end)
"""

_GONE: Final = "the server that forks worker processes has ended"

_HEAD: Final = Struct("<I")
"""The head of a message: the number of its bytes."""

_DESCRIPTORS: Final = 3
"""The number of file descriptors of a worker process: see `malflow.runtime.processes.worker_process.main`."""


# In the process that started the run


class ServerIsGone(BrokenPipeError):
    """The server has ended."""


def fork(descriptors: Sequence[int], peers: int) -> ForkedProcess:
    """Launch a worker process.

    Args:
        descriptors: the file descriptors that its `main` takes.
        peers: the number of other worker processes.

    Raises:
        OSError: if it can't be launched.
    """
    return _servers(os.getpid()).launch(descriptors, peers)


@cache
def _servers(_process: int) -> _Servers:
    return _Servers()


class _Servers:
    """The server of this process, and the next one if it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: ForkServer | None = None

    def launch(self, descriptors: Sequence[int], peers: int) -> ForkedProcess:
        with self._lock:
            server = self._server
            if server is not None:
                with suppress(ServerIsGone):
                    return ForkedProcess(server, server.launch(descriptors, peers))
            server = self._server = ForkServer()
            return ForkedProcess(server, server.launch(descriptors, peers))


class ForkServer:
    """The server, as its clients see it.

    Attributes:
        is_gone: whether it has ended.
    """

    def __init__(self) -> None:
        self.is_gone = False
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._ended: dict[int, int] = {}
        self._launched: list[int] = []
        self._socket, theirs = connected_sockets()
        with theirs:
            arguments = json.dumps(([*map(str, sys.path)], theirs.fileno()))
            self._process = launched(_PROGRAM, arguments, [theirs.fileno()])
        atexit.register(self.close)

    def launch(self, descriptors: Sequence[int], peers: int) -> int:
        """Fork a process; return its id.

        Raises:
            OSError: if the server has ended.
        """
        request = {
            "path": [*map(str, sys.path)],
            "environ": dict(os.environ),
            "folder": str(Path.cwd()),
            "peers": peers,
        }
        with self._lock:
            try:
                _send(self._socket, request, descriptors)
            except OSError as error:
                self._note_end()
                raise ServerIsGone(_GONE) from error
            while not self._launched:
                if not self._take(None):
                    raise ServerIsGone(_GONE)
            return self._launched.pop()

    def ended(self, pid: int, seconds: float | None) -> int | None:
        """Return how a process has ended, or None if it has not after some seconds; without limit if they are None."""
        with self._lock:
            while pid not in self._ended and not self.is_gone:
                if not self._take(seconds):
                    break
            code = self._ended.pop(pid, None)
            return -signal.SIGKILL if code is None and self.is_gone else code

    def _take(self, seconds: float | None) -> bool:
        """Receive one message; return whether there was one within some seconds."""
        with selectors.DefaultSelector() as selector:  # unlike select(), for any file descriptor
            selector.register(self._socket, selectors.EVENT_READ)
            if not selector.select(seconds):
                return False
        message = _received(self._socket)
        if message is None:
            self._note_end()
            return False
        told, _ = message
        if "launched" in told:
            self._launched.append(told["launched"])
        else:
            self._ended[told["ended"]] = told["code"]
        return True

    def _note_end(self) -> None:
        self.is_gone = True
        self._socket.close()
        self._process.wait()

    def close(self) -> None:
        """End the server, with this process."""
        if os.getpid() == self._owner and not self.is_gone:
            self._note_end()


class ForkedProcess:
    """A process that the server has forked.

    Attributes:
        pid: its id.
        returncode: how it has ended, as in `subprocess.Popen`.
    """

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        """Return `returncode`, after looking whether the process has ended."""
        if self.returncode is None:
            self.returncode = self._server.ended(self.pid, 0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended.

        Raises:
            TimeoutExpired: if it has not, after `timeout` seconds.
        """
        if self.returncode is None:
            self.returncode = self._server.ended(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("worker process", timeout or 0.0)
        return self.returncode

    def kill(self) -> None:
        """Send it SIGKILL."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


# In the server


def serve(end: int) -> None:
    """Fork a process for each request, and tell how it has ended, until the client is gone.

    Args:
        end: the file descriptor of the socket.
    """
    from malflow.runtime.processes import worker_process  # noqa: PLC0415 - what the processes need

    with socket.socket(fileno=end) as requests, suppress(ConnectionError):  # the client is gone
        _serve(requests, worker_process.main)


def _serve(requests: socket.socket, main: Any) -> None:
    woken, waker = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    handle_stops(_ignore)
    signal.signal(signal.SIGCHLD, _ignore)
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is requests:
                    request = _received(requests)
                    if request is None:
                        return
                    told, descriptors = request
                    with stops_blocked():  # until the process handles them
                        pid = os.fork()
                        if pid == 0:
                            _become(main, told, descriptors, [requests.fileno(), woken, waker])
                    for descriptor in descriptors:
                        os.close(descriptor)
                    _send(requests, {"launched": pid})
                else:
                    with suppress(BlockingIOError):
                        os.read(woken, 4096)
            _tell_ended(requests)


def _ignore(_number: int, _frame: object) -> None:
    """Ignore a signal, but wake up."""


def _tell_ended(requests: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _send(requests, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _become(main: Any, told: dict[str, Any], descriptors: list[int], unused: Sequence[int]) -> NoReturn:
    """Become a worker process."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in unused:
            os.close(descriptor)
        sys.path[:] = told["path"]
        os.environ.clear()
        os.environ.update(told["environ"])
        os.chdir(told["folder"])
        main(*descriptors, told["peers"])
        code = 0
    except BaseException:  # noqa: BLE001 - the end of this process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


# Messages: JSON, with file descriptors


def _send(end: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    socket.send_fds(end, [_HEAD.pack(len(data))], descriptors)
    end.sendall(data)


def _received(end: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Receive a message with its file descriptors; None if the other end is closed."""
    try:
        head, descriptors, _, _ = socket.recv_fds(end, _HEAD.size, _DESCRIPTORS)
        data = _received_bytes(end, _HEAD.unpack(head)[0]) if len(head) == _HEAD.size else b""
    except OSError:
        return None
    return (json.loads(data), list(descriptors)) if data else None


def _received_bytes(end: socket.socket, size: int) -> bytes:
    pieces = []
    while size:
        piece = end.recv(size)
        if not piece:
            return b""
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)

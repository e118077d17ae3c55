"""The control socket of a run: one line of JSON in, one out.

One thread accepts, reads and writes, without ever blocking, so that slow or silent clients cost nothing. Requests that
wait for the run are answered by a thread each. Who may ask is decided by the folder and the file of the socket, which
only its user can open, and again by the system, which knows the user of the other end.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from malflow.monitor.asks import MOST_WAITING, WAITING, Ask, BadRequest, parsed
from malflow.monitor.documents import Document, as_answer, refusal

__all__ = ["ControlSocket"]

_log = logging.getLogger("malflow.monitor")

_LONGEST_REQUEST: Final = 64 * 1024
"""The longest request in bytes, far beyond a word with its arguments. The limit bounds the memory for a client's
endless line."""

_SECONDS: Final = 5.0
"""The time for a client to send its request, and again to take the answer."""
_MOST_OPEN: Final = 8
"""Connections that send or receive at once; the oldest one makes room for another."""
_LAST_SECONDS: Final = 2.0
"""The time after the end of the run in which the last answers are sent."""
_PAUSE: Final = 1.0
"""The seconds until the next try, if a connection could not be accepted for want of files."""
_NO_SIGNAL: Final = getattr(socket, "MSG_NOSIGNAL", 0)
"""So that a client that has gone ends no process, also where the script wants SIGPIPE to."""


class _Connection:
    """A connection: it sends a line, waits for its answer, and takes it."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.received = bytearray()
        self.answer: memoryview | None = None
        self.waits = False
        self.deadline = time.monotonic() + _SECONDS


class ControlSocket:
    """A control socket, served by a thread of its own until it is closed.

    Args:
        path: its path, in a folder that only this user can open.
        answer: returns the answer to a request.

    Raises:
        OSError: if it can't be made.
        RuntimeError: if there can't be another thread.
    """

    def __init__(self, path: Path, answer: Callable[[Ask], Document]) -> None:
        self._answer = answer
        self._open: list[_Connection] = []
        self._done: list[tuple[_Connection, Document]] = []
        self._closes_at: float | None = None
        self._accepts_at: float | None = None
        self._selector = selectors.DefaultSelector()
        self._wakes, self._waker = socket.socketpair()
        self._wakes.setblocking(False)
        self._waker.setblocking(False)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listening.bind(str(path))
            path.chmod(0o600)
            self._listening.listen(128)
            self._listening.setblocking(False)
            self._selector.register(self._listening, selectors.EVENT_READ)
            self._selector.register(self._wakes, selectors.EVENT_READ)
            self._thread = threading.Thread(target=self._serve, name="malflow-control", daemon=True)
            self._thread.start()
        except BaseException:
            self._release()
            raise

    def close(self) -> None:
        """Accept nothing more; the answers that are due are sent by the thread, for a moment."""
        self._closes_at = time.monotonic() + _LAST_SECONDS
        self._wake()

    def join(self, seconds: float) -> None:
        """Wait until the last answers are sent."""
        self._thread.join(seconds)

    def _serve(self) -> None:
        try:
            while not self._is_done:
                self._turn()
        except Exception:  # noqa: BLE001 - the run continues without it
            _log.warning("the control socket failed; the run continues without it", exc_info=True)
        finally:
            self._release()

    @property
    def _is_done(self) -> bool:
        if self._closes_at is None:
            return False
        return not self._open or time.monotonic() > self._closes_at

    def _turn(self) -> None:
        """Wait for something to happen, and see to it."""
        for key, _ in self._selector.select(self._next_deadline()):
            if key.fileobj is self._wakes:
                with suppress(BlockingIOError):
                    self._wakes.recv(4096)
            elif key.fileobj is self._listening:
                self._accept()
            elif key.data in self._open:
                self._move(key.data)
        while self._done:
            self._begin_answer(*self._done.pop())
        self._expire()

    def _next_deadline(self) -> float | None:
        """Return the seconds until something must be done without a client; None if there is nothing."""
        moments = [it.deadline for it in self._open if not it.waits]
        moments += [it for it in (self._closes_at, self._accepts_at) if it is not None]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _accept(self) -> None:
        if self._closes_at is not None:
            self._stop_listening()
            return
        try:
            end, _ = self._listening.accept()
        except BlockingIOError:
            return
        except OSError:  # too many open files: try again later, and not at once
            self._stop_listening()
            self._accepts_at = time.monotonic() + _PAUSE
            return
        if not _is_permitted(end):
            end.close()
            return
        moving = [it for it in self._open if not it.waits]
        if len(moving) >= _MOST_OPEN:
            self._drop(moving[0])
        end.setblocking(False)
        connection = _Connection(end)
        self._open.append(connection)
        self._selector.register(end, selectors.EVENT_READ, connection)
        self._move(connection)

    def _move(self, connection: _Connection) -> None:
        """Receive or send as much as is possible now."""
        try:
            if connection.answer is None:
                self._receive(connection)
            else:
                self._send(connection, connection.answer)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)

    def _receive(self, connection: _Connection) -> None:
        got = connection.end.recv(_LONGEST_REQUEST)
        if connection.waits:  # it sends more than a line, or is gone: either way, nobody listens to it
            self._selector.unregister(connection.end)
            return
        connection.received += got
        line, found, _ = connection.received.partition(b"\n")
        if found and len(line) <= _LONGEST_REQUEST:
            self._take(connection, bytes(line))
        elif len(connection.received) > _LONGEST_REQUEST:
            self._refuse(connection, f"a request has at most {_LONGEST_REQUEST:,} bytes")
        elif not got and connection.received:
            self._refuse(connection, "the request has no end; it is one line of JSON")
        elif not got:
            self._drop(connection)

    def _take(self, connection: _Connection, line: bytes) -> None:
        """Answer a request, at once or from a thread that waits for the run."""
        try:
            ask = parsed(line)
        except BadRequest as error:
            self._refuse(connection, str(error))
            return
        if ask.do not in WAITING:
            self._begin_answer(connection, self._answered(ask))
            return
        if sum(it.waits for it in self._open) >= MOST_WAITING:
            self._begin_answer(
                connection, refusal("Busy", f"{MOST_WAITING} requests wait for the run; try again later")
            )
            return
        thread = threading.Thread(target=self._wait, args=(connection, ask), name="malflow-control-wait", daemon=True)
        connection.waits = True
        try:
            thread.start()
        except RuntimeError as error:  # there can't be another one
            self._begin_answer(connection, refusal("Busy", f"{ask.do} can't be served now: {error}"))

    def _wait(self, connection: _Connection, ask: Ask) -> None:
        self._done.append((connection, self._answered(ask)))
        self._wake()

    def _answered(self, ask: Ask) -> Document:
        try:
            return self._answer(ask)
        except Exception as error:  # noqa: BLE001 - the socket answers the next ones
            _log.warning("a request to the control socket failed: %s", ask.do, exc_info=True)
            return refusal("Failed", f"{ask.do} failed: {type(error).__name__}")

    def _refuse(self, connection: _Connection, message: str) -> None:
        self._begin_answer(connection, refusal("BadRequest", message))

    def _begin_answer(self, connection: _Connection, content: Document) -> None:
        if connection not in self._open:
            return
        connection.waits, connection.deadline = False, time.monotonic() + _SECONDS
        connection.answer = memoryview(as_answer(content)[1])
        with suppress(KeyError):
            self._selector.unregister(connection.end)
        self._selector.register(connection.end, selectors.EVENT_WRITE, connection)
        self._move(connection)

    def _send(self, connection: _Connection, answer: memoryview) -> None:
        sent = connection.end.send(answer, _NO_SIGNAL)
        connection.answer = answer[sent:]
        if not connection.answer:
            self._drop(connection)

    def _expire(self) -> None:
        """Close connections that have taken too long, and listen again after a pause."""
        now = time.monotonic()
        for connection in [it for it in self._open if not it.waits and it.deadline <= now]:
            self._drop(connection)
        if self._accepts_at is not None and self._accepts_at <= now:
            self._accepts_at = None
            self._selector.register(self._listening, selectors.EVENT_READ)

    def _drop(self, connection: _Connection) -> None:
        if connection in self._open:
            self._open.remove(connection)
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.end)
        connection.end.close()

    def _stop_listening(self) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(self._listening)

    def _wake(self) -> None:
        with suppress(OSError):  # it is awake, or has ended
            self._waker.send(b"\0")

    def _release(self) -> None:
        for connection in [*self._open]:
            self._drop(connection)
        self._listening.close()
        self._selector.close()
        self._wakes.close()
        self._waker.close()


def _is_permitted(end: socket.socket) -> bool:
    """Whether the other end is a process of this user, or of root."""
    try:
        user = _user_of(end)
    except (OSError, struct.error, AttributeError):
        return False
    return user in (os.geteuid(), 0)


def _user_of(end: socket.socket) -> int:
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if option is None:  # LOCAL_PEERCRED, struct xucred, of BSD and macOS
        return int(struct.unpack_from("2I", end.getsockopt(0, 1, 76))[1])
    return int(struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))[1])

"""Frames of bytes through sockets that never block, so that two processes can send to each other at the same time."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final

__all__ = ["Link", "receive_link", "wait_for"]

_HEAD = Struct("<Q")
"""The head of a frame: the number of its bytes."""

_SMALL: Final = 64 << 10
"""Bytes of the largest frame that is copied to be sent with its head in one call."""

_BUFFER: Final = 1 << 20
"""Bytes of a socket's buffer; the system may grant fewer."""


class Link:
    """One end of a socket that carries frames in both directions.

    What can't be sent or received at once stays here until `wait_for` is called, in which other links progress too: no
    process blocks while it sends; processes thus never wait for each other in a circle, whatever they send.

    Args:
        end: the socket.

    Attributes:
        arrived: the frames that have arrived and were not taken.
        is_open: whether the other end is open.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        self.arrived: deque[bytearray] = deque()
        self.is_open = True
        self._socket = end
        self._leaving: deque[memoryview] = deque()
        self._sending = threading.RLock()
        self._head = bytearray(_HEAD.size)
        self._frame: bytearray | None = None
        self._rest = memoryview(self._head)

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._socket.fileno()

    @property
    def is_sending(self) -> bool:
        """Whether frames wait to be sent."""
        return bool(self._leaving)

    def send(self, frame: bytes) -> None:
        """Send a frame, as far as the socket takes it now; callable from any thread."""
        head = _HEAD.pack(len(frame))
        with self._sending:
            if len(frame) <= _SMALL:
                self._leaving.append(memoryview(head + frame))
            else:
                self._leaving += (memoryview(head), memoryview(frame))
            self.push()

    def push(self) -> None:
        """Send as much as the socket takes now."""
        with self._sending:
            while self._leaving:
                try:
                    sent = self._socket.send(self._leaving[0])
                except BlockingIOError:
                    return
                except OSError:
                    self._end()
                    return
                if sent == len(self._leaving[0]):
                    self._leaving.popleft()
                else:
                    self._leaving[0] = self._leaving[0][sent:]

    def flush(self) -> None:
        """Wait until all frames have left, while nothing is received."""
        with selectors.PollSelector() as selector:
            selector.register(self, selectors.EVENT_WRITE)
            while self.is_sending:
                selector.select()
                self.push()

    def pull(self) -> None:
        """Receive what has arrived, at most one frame."""
        while self.is_open:
            try:
                count = self._socket.recv_into(self._rest)
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if not count:
                self._end()
                return
            self._rest = self._rest[count:]
            if not self._rest and self._is_complete():
                return

    def _is_complete(self) -> bool:
        """Begin the next part of a frame; return whether that was its last."""
        if self._frame is None:
            self._frame = bytearray(_HEAD.unpack(self._head)[0])
            self._rest = memoryview(self._frame)
            if self._frame:
                return False
        self.arrived.append(self._frame)
        self._frame, self._rest = None, memoryview(self._head)
        return True

    def close(self) -> None:
        """Close this end; frames that were not sent are lost."""
        self._end()
        self._socket.close()

    def _end(self) -> None:
        self.is_open = False
        self._leaving.clear()


def wait_for(links: Iterable[Link], done: Callable[[], bool], seconds: float | None = None) -> bool:
    """Send and receive through all links until a condition holds; return whether it does.

    Args:
        links: the links; closed ones are left out.
        done: the condition; an arrived frame or a closed link can make it true.
        seconds: the maximum time to wait; None waits without limit.
    """
    if done():
        return True
    deadline = None if seconds is None else time.monotonic() + seconds
    with selectors.PollSelector() as selector:
        for link in links:
            if link.is_open:
                selector.register(link, _interest(link), link)
        while not done():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            for key, events in selector.select(left):
                _serve(selector, key.data, events)
    return True


def _serve(selector: selectors.BaseSelector, link: Link, events: int) -> None:
    if events & selectors.EVENT_WRITE:
        link.push()
    if events & selectors.EVENT_READ:
        link.pull()
    if not link.is_open:
        selector.unregister(link)
    elif (wanted := _interest(link)) != selector.get_key(link).events:
        selector.modify(link, wanted, link)


def _interest(link: Link) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if link.is_sending else 0)


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

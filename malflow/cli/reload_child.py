"""A child of ``malflow run --reload`` as its parent sees it: it loads the script, waits to be let go, and runs.

A child that waits has read every module that its script imports. So an edit while the run before it stops can't break
it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

__all__ = ["Child", "own_environment"]

_LONGEST_END: Final = 5.0
"""The seconds that a child has to end that was not let go."""
_TURN: Final = 0.1
"""The seconds between two checks whether the child is alive: its socket may stay open after its end. Half of it wakes
the parent twice as often, double notices an end later."""


class Child:
    """A process that loads a script and, once it is let go, runs it.

    Args:
        command: the command line.
        passed: further descriptors that the process gets; they are closed here.
        wakes: a descriptor that can be read once a signal has come.

    Attributes:
        process: the process.
        left_out: the options of the first start that it was not given; for its parent alone.
    """

    SOCKET: Final = "<socket>"
    """The word of a command line in whose place the number of the socket is written."""

    def __init__(self, command: Sequence[str], passed: Sequence[int], wakes: int, left_out: frozenset[str]) -> None:
        self.left_out = left_out
        self._wakes = wakes
        self._told = b""
        self._socket: socket.socket | None
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        try:
            with theirs:
                number = theirs.fileno()
                words = [str(number) if it == self.SOCKET else it for it in command]
                fds, env = (number, *passed), own_environment()
                self.process = subprocess.Popen(words, pass_fds=fds, env=env)  # noqa: S603 - our own program
        finally:
            for it in passed:
                os.close(it)

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def ask(self, do: str, text: str = "") -> bool:
        """Send a request; return whether it could be sent."""
        if self._socket is None or not self.is_alive:
            return False
        try:
            self._socket.sendall(json.dumps({"do": do, "text": text}).encode() + b"\n")
        except OSError:
            return False
        return True

    def wait_for(self, answers: Mapping[str, bool], seconds: float) -> bool | None:
        """Wait until it gives one of these answers.

        Args:
            answers: the meaning of each answer.
            seconds: how long to wait at most.

        Returns:
            The meaning of the answer; None if it ends, a signal comes or the time has passed before.
        """
        deadline = time.monotonic() + seconds
        while self._socket is not None and time.monotonic() < deadline:
            found = self._taken(answers)
            if found is not None:
                return found
            is_alive = self.is_alive  # a process of the script's may keep the socket open
            ends: list[Any] = [self._socket, self._wakes]
            ready = select.select(ends, [], [], _TURN if is_alive else 0)[0]
            if self._wakes in ready or not (self._has_read(self._socket) if ready else is_alive):
                return None
        return None

    def _taken(self, answers: Mapping[str, bool]) -> bool | None:
        """Return the meaning of the first of these answers, and drop the lines up to it; None if none has come."""
        *lines, rest = self._told.decode().split("\n")
        at = next((at for at, line in enumerate(lines) if line in answers), None)
        if at is None:
            return None
        self._told = "\n".join([*lines[at + 1 :], rest]).encode()
        return answers[lines[at]]

    def _has_read(self, end: socket.socket) -> bool:
        with suppress(OSError):
            found = end.recv(1000)
            self._told += found
            return bool(found)
        return False

    def release(self) -> None:
        """Close the socket. It then stops its run and ends."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def discard(self) -> None:
        """End it; it has not been let go, so nothing is lost."""
        self.release()
        try:
            self.process.wait(_LONGEST_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def own_environment() -> dict[str, str]:
    """Return the environment of processes that load a script which is being edited.

    They write no bytecode: Python takes it for that of a later edit of the same second and size.
    """
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}

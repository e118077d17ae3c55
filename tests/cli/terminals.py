"""Commands on a pseudo terminal, and a model of the terminal's visible lines."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.cli.conftest import environment

__all__ = ["Terminal", "on_terminal", "seen", "terminal"]

_CONTROL = re.compile(r"\x1b\[(\d*)([A-Za-z])|(\r?\n)|([^\x1b\r\n]+)")

_WITH_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""A program that makes its standard input its controlling terminal, so Ctrl-C works, and then executes a command."""


def seen(text: str) -> list[str]:
    """Return the lines shown by an endless terminal that understands ``ESC [ n F``, ``ESC [ J`` and ``ESC [ m``."""
    lines, at, column = [""], 0, 0
    end = 0
    for found in _CONTROL.finditer(text):
        assert found.start() == end, repr(text[end : found.start()])
        end = found.end()
        number, command, newline, plain = found.groups()
        if newline:
            at, column = at + 1, 0
            if at == len(lines):
                lines.append("")
        elif plain:
            lines[at] = lines[at][:column].ljust(column) + plain + lines[at][column + len(plain) :]
            column += len(plain)
        elif command == "F":
            at, column = at - int(number), 0
            assert at >= 0, "above the first line"
        elif command == "J":
            lines[at] = lines[at][:column]
            del lines[at + 1 :]
        else:
            assert command == "m", command
    assert end == len(text), repr(text[end:])
    return lines


class Terminal:
    """A command on its own pseudo terminal.

    Attributes:
        process: the command.
        text: the output so far.
    """

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self.process = process
        self.end = end
        self.text = ""

    def read_until(self, words: str, seconds: float = 60) -> None:
        """Read until some words appear."""
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < deadline, self.text[-3000:]
            assert self.read(0.2) or words in self.text, self.text[-3000:]

    def read_all(self, seconds: float = 60) -> int:
        """Read to the end; return the exit code."""
        deadline = time.monotonic() + seconds
        while self.read(0.2):
            assert time.monotonic() < deadline, self.text[-3000:]
        return self.process.wait(10)

    def send(self, text: str) -> None:
        """Type a text."""
        os.write(self.end, text.encode())

    def resize(self, columns: int, rows: int = 30) -> None:
        """Change the size of the terminal."""
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def modes(self) -> list[Any]:
        """The modes of the terminal."""
        return termios.tcgetattr(self.end)

    def read(self, seconds: float = 0.2) -> bool:
        """Read what arrives within some time; return False once the command has ended."""
        if not select.select([self.end], [], [], seconds)[0]:
            return self.process.poll() is None
        try:
            got = os.read(self.end, 65536)
        except OSError:
            return False
        self.text += got.decode()
        return bool(got)


def terminal(*arguments: Any, columns: int = 100, **variables: str) -> AbstractContextManager[Terminal]:
    """Return a context in which a malflow command runs on a pseudo terminal.

    Args:
        arguments: its arguments.
        columns: the columns of the terminal.
        variables: variables of its environment.
    """
    command = [sys.executable, "-m", "malflow", *map(str, arguments)]
    return on_terminal(command, {**environment(), "TERM": "xterm", **variables}, columns=columns)


@contextmanager
def on_terminal(
    command: Sequence[str], variables: Mapping[str, str], *, folder: Path | None = None, columns: int = 100
) -> Iterator[Terminal]:
    """Run a command on a pseudo terminal within the context.

    Args:
        command: the program and its arguments.
        variables: its environment.
        folder: its working directory.
        columns: the columns of the terminal.
    """
    end, inner = pty.openpty()
    try:
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-c", _WITH_TERMINAL, *command],
            cwd=folder,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=dict(variables),
            start_new_session=True,
        )
    finally:
        os.close(inner)
    try:
        yield Terminal(process, end)
    finally:
        process.kill()
        process.wait()
        os.close(end)

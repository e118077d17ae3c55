"""The last lines of a terminal, redrawn in place below everything that is written meanwhile.

Every write to the streams of the terminal first removes the lines, and the next redraw puts them back below it. So
logs, prints and results scroll as usual. The cursor stays visible and no mode of the terminal changes, so nothing needs
to be restored, however the process ends.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from malflow.cli.terminal import columns_of, fitting

__all__ = ["LiveArea", "can_draw", "terminal_below"]

_SIZE = os.terminal_size((80, 24))


def can_draw(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal with a cursor that can move."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "")


class LiveArea:
    """The last lines of a terminal.

    Args:
        stream: the stream of the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._process = os.getpid()
        self._lock = threading.RLock()  # a signal handler may write while this thread does
        self._drawn: list[int] = []  # the width of each line
        self._is_within_line = False
        self._is_gone = False
        self._is_still = False

    @property
    def size(self) -> os.terminal_size:
        """The columns and lines of the terminal."""
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return _SIZE
        return size if size.columns > 0 and size.lines > 0 else _SIZE

    def draw(self, lines: Sequence[str]) -> None:
        """Draw lines in place of the last ones; they are cut to the size of the terminal.

        Nothing is drawn after an unfinished line, such as a prompt.
        """
        with self._lock:
            if self._is_gone or self._is_within_line or self._is_still:
                return
            columns, rows = self.size
            most = max(1, rows - 1)
            kept = lines if len(lines) <= most else [*lines[: most - 1], f"and {len(lines) - most + 1} more lines"]
            cut = [fitting(it, columns - 1) for it in kept]
            self._send("\n".join([f"{self._removal()}{cut[0]}", *cut[1:], ""]))
            self._drawn = [columns_of(it) for it in cut]

    def let_draw(self, draws: bool) -> None:
        """Draw from now on, or remove the lines and draw none, while another process writes on the terminal."""
        with self.above():
            self._is_still = not draws

    def keep(self) -> None:
        """Leave the lines in place, as if they were ordinary output."""
        with self._lock:
            self._drawn = []

    @contextmanager
    def above(self) -> Iterator[None]:
        """Remove the lines, and draw none within the context."""
        if os.getpid() != self._process:  # in a forked child, another thread may have held the lock
            yield
            return
        with self._lock:
            if self._drawn:
                self._send(self._removal())
                self._drawn = []
            yield

    def note(self, text: str) -> None:
        """Note a text that was written on the terminal."""
        if text:
            self._is_within_line = not text.endswith("\n")

    def _removal(self) -> str:
        """Return the codes that remove the lines; a line that is wider than the terminal takes several rows."""
        columns = self.size.columns
        rows = sum(max(1, -(-width // columns)) for width in self._drawn)
        return f"\x1b[{rows}F\x1b[J" if rows else ""

    def _send(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal has gone, or the stream is closed
            self._is_gone = True


class _Above:
    """A stream of the terminal. Its texts are written above the lines."""

    def __init__(self, stream: TextIO, area: LiveArea) -> None:
        self._stream = stream
        self._area = area

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text above the lines."""
        with self._area.above():
            written = self._stream.write(text)
            self._area.note(text)
            self._stream.flush()
        return written

    def writelines(self, lines: Any) -> None:
        """Write texts above the lines."""
        self.write("".join(lines))


@contextmanager
def terminal_below(area: LiveArea) -> Iterator[None]:
    """Within the context, ``sys.stdout`` and ``sys.stderr`` write to the terminal above the lines."""
    before = sys.stdout, sys.stderr
    mine: list[Any] = [it if it is None or not it.isatty() else _Above(it, area) for it in before]
    sys.stdout, sys.stderr = mine
    try:
        yield
    finally:
        if sys.stdout is mine[0]:
            sys.stdout = before[0]
        if sys.stderr is mine[1]:
            sys.stderr = before[1]

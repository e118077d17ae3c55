"""``malflow run --live``: the operators of a run with their rates, redrawn below its log.

Every write to the streams of the terminal first removes the lines, and the next redraw puts them back below it. So
logs, prints and results scroll as usual. The cursor stays visible and no mode of the terminal changes, so nothing needs
to be restored, however the process ends.

`rich.live` draws the screen of `malflow top`, but not this one: it holds back a line without an end, such as a prompt
of the script, and a forked child may wait forever for its lock.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

from malflow.cli.output.output import Output
from malflow.cli.output.screens import ASKED_EVERY, RATES, About, Bars, line_of, screen_of
from malflow.cli.output.texts import columns_of, fitting
from malflow.errors import MalflowError
from malflow.events import Event, Run, RunFinished
from malflow.monitor.documents import Document, RunFacts, progress_document, time_document, why_document
from malflow.monitor.recent_past import History

__all__ = [
    "LiveArea",
    "LiveView",
    "can_draw",
    "live_area",
    "terminal_below",
]

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


_REDRAW_SECONDS: Final = 0.25
"""The seconds between two pictures: bars seem to move steadily. Half of it costs the run twice as much time, double
looks jerky."""

_LINE_SECONDS: Final = 10.0
"""The seconds between two lines if standard error is not a terminal. A line each second would fill a log; a longer
interval hides a standstill."""

_SAMPLE_SECONDS: Final = 1.0
"""The seconds between two readings of the counts for the rates. A shorter interval makes the rates jump, a longer one
makes them stale."""

_WAIT: Final = 30.0
"""The longest wait in seconds for an answer of the run, since it comes after a tick. A shorter wait gets no answer
during long ticks; the picture does not wait for it."""

_END_SECONDS: Final = 2.0
"""The longest wait for the thread to end after its run."""


class LiveView:
    """A listener that draws its run on the terminal four times a second, or writes a line elsewhere every ten seconds.

    Args:
        output: how to write.
        area: the lines of the terminal; None if standard error is not a terminal.
    """

    def __init__(self, output: Output, area: LiveArea | None) -> None:
        self._output = output
        self._area = area
        self._run: Run | None = None
        self._history = History()
        self._bars = Bars()
        self._rates: deque[float] = deque(maxlen=RATES)
        self._why: Document | None = None
        self._time: Document | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def on_start(self, run: Run, /) -> None:
        """Start drawing."""
        self._run = run
        self._thread = threading.Thread(target=self._draw_all, args=(run,), name="malflow-live", daemon=True)
        self._thread.start()
        if self._area is not None:
            threading.Thread(target=self._ask, args=(run,), name="malflow-live-why", daemon=True).start()

    def on_event(self, event: Event, /) -> None:
        """Draw a last time at the end."""
        if isinstance(event, RunFinished) and self._thread is not None:
            self._ended.set()
            self._thread.join(_END_SECONDS)

    def _draw_all(self, run: Run) -> None:
        every = _LINE_SECONDS if self._area is None else _REDRAW_SECONDS
        sampled = -_SAMPLE_SECONDS
        due = time.monotonic() + (every if self._area is None else 0)
        try:
            while not self._ended.is_set() and not run.has_ended:
                now = time.monotonic()
                with suppress(RuntimeError):  # the run has changed its counts meanwhile; the next look has them
                    if now - sampled >= _SAMPLE_SECONDS:
                        self._sample(run, now)
                        sampled = now
                    if now >= due:
                        self._draw(run, now)
                        due = now + every
                self._ended.wait(max(0.0, min(due, sampled + _SAMPLE_SECONDS) - time.monotonic()))
            if self._area is not None:
                self._sample(run, time.monotonic())
                self._draw(run, time.monotonic())
                self._area.keep()
        except (OSError, ValueError):
            return  # the reader of standard error has gone; the run continues

    def _draw(self, run: Run, now: float) -> None:
        progress = progress_document(_facts(run), run.progress, self._history.rates)
        if self._area is not None:
            size = self._area.size
            bars = self._bars.lines(progress, now, size.columns)
            room = size.lines - len(bars) - 4
            about = About([*self._rates], self._why, self._time, width=size.columns - 1, height=max(3, room))
            self._area.draw(["", *screen_of(progress, about), *(["", *bars] if bars else [])])
        elif self._output.json:
            self._output.document("progress", _content(progress), err=True)
        else:
            bars_text = self._bars.text(progress, now)
            self._output.say(f"{line_of(progress)}{'   ' if bars_text else ''}{bars_text}")

    def _sample(self, run: Run, now: float) -> None:
        self._history.add(run.progress, now)
        polled = self._history.rates.polled
        if polled is not None:
            self._rates.append(polled)

    def _ask(self, run: Run) -> None:
        """Ask for the cause and the time. Their answers wait for the end of a tick; the picture does not."""
        while not self._ended.wait(ASKED_EVERY) and not run.has_ended:
            try:
                self._why = why_document(_facts(run), run.why(None, _WAIT))
                self._time = time_document(_facts(run), run.explain_time(_WAIT))
            except (MalflowError, TimeoutError, CancelledError):
                continue


def _facts(run: Run) -> RunFacts:
    return RunFacts("", run.job, run.runtime, 0)


def _content(progress: Mapping[str, Any]) -> dict[str, Any]:
    return {name: it for name, it in progress.items() if name not in ("kind", "malflow")}


@contextmanager
def live_area(output: Output, *, wanted: bool) -> Iterator[LiveArea | None]:
    """Within the context, there is an area on the terminal, if one is wanted and standard error is a terminal."""
    if not wanted or output.json or not can_draw(sys.stderr):
        yield None
        return
    area = LiveArea(sys.stderr)
    with terminal_below(area):
        yield area

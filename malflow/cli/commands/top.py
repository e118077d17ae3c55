"""``malflow top``: watch a run; single key presses choose what it shows."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from shutil import get_terminal_size
from types import FrameType
from typing import Final

import click

from malflow.cli.commands.runs import answer_of, job_argument, run_named, write_document
from malflow.cli.output.exits import CommandError
from malflow.cli.output.options import SPAN, output_options
from malflow.cli.output.output import Output
from malflow.cli.output.screens import ASKED_EVERY, RATES, About, line_of, screen_of
from malflow.cli.output.texts import redrawn
from malflow.monitor import client
from malflow.monitor.client import FoundRun
from malflow.monitor.documents import Document

__all__ = [
    "pressed_keys",
    "top",
]

Wait = Callable[[float], str]
"""Waits at most this many seconds for a key, and returns it; returns an empty text if there is none."""

_TERMINATED = 128 + signal.SIGTERM


@contextmanager
def pressed_keys() -> Iterator[Wait]:
    """Within the context, keys are read as they are pressed, if standard input is a terminal."""
    try:
        import termios  # noqa: PLC0415 - not on Windows
        import tty  # noqa: PLC0415 - not on Windows either

        stream = sys.stdin.fileno()
        before = termios.tcgetattr(stream)
    except (ImportError, OSError, ValueError, termios.error):
        yield _wait_alone
        return
    handler = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _end)
    try:
        tty.setcbreak(stream)
        yield lambda seconds: _key(stream, seconds)
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, handler)


def _wait_alone(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _key(stream: int, seconds: float) -> str:
    if not select.select([stream], [], [], seconds)[0]:
        return ""
    data = os.read(stream, 32)
    return data.decode("ascii", "ignore")[:1] if data else "q"  # the terminal has gone


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_TERMINATED)


_KEYS: Final = "q: quit   s: snapshot   w: why   p: pause"


@click.command(short_help="Watch a run.")
@job_argument(required=False)
@click.option("--every", type=SPAN, help="The time between two looks; by default 1s on a terminal, else 10s.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Refresh N times, then exit.")
@output_options
def top(job: str | None, every: timedelta | None, count: int | None, output: Output) -> None:
    """Watch a run: its operators with their rates, busy times, epochs and failures, until it ends or Ctrl-C.

    On a terminal, the screen is redrawn every second, and says what holds the run back. Its keys: q quits, s takes a
    snapshot, w shows why nothing comes out, p pauses the picture. Elsewhere, a line is written every 10 seconds.

    JOB is a job's name, a pid, or the beginning of a run's id; without it, the only run.
    """
    run = run_named(job)
    is_terminal = sys.stdout.isatty()
    seconds = every.total_seconds() if every is not None else 1.0 if is_terminal else 10.0
    if is_terminal and not output.json:
        with pressed_keys() as keys:
            redrawn(_View(run, keys).screens(seconds, count))
    else:
        for progress in _looks(run, seconds, count):
            if output.json:
                write_document(progress)
            else:
                output.write(line_of(progress))
    if client.has_ended(run):
        output.say(f"{run} has ended")


def _looks(run: FoundRun, seconds: float, count: int | None) -> Iterator[Document]:
    """Yield the progress of a run until it has ended.

    Raises:
        CommandError: if it does not answer, and has not ended.
    """
    number = 0
    while (progress := _progress(run)) is not None:
        yield progress
        number += 1
        if number == count:
            return
        time.sleep(seconds)


def _progress(run: FoundRun) -> Document | None:
    """Return the progress of a run; None if it has ended.

    Raises:
        CommandError: if it does not answer, and has not ended.
    """
    try:
        return answer_of(run, "progress")
    except CommandError:
        if client.has_ended(run):
            return None
        raise


@dataclass(slots=True)
class _View:
    """The screens of a run on a terminal, and the keys that change them."""

    run: FoundRun
    keys: Wait
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=RATES))
    why: Document | None = None
    time: Document | None = None
    is_open: bool = False
    is_paused: bool = False
    note: str = ""

    def screens(self, seconds: float, count: int | None) -> Iterator[list[str]]:
        """Yield the screens until the run has ended, the user quits, or `count` screens were drawn."""
        threading.Thread(target=self._ask, daemon=True).start()
        number = 0
        while number != count:
            progress = _progress(self.run)
            if progress is None:
                return
            number += 1
            if progress["polled_per_second"] is not None:
                self.rates.append(progress["polled_per_second"])
            yield self._screen(progress)
            due = time.monotonic() + seconds
            while number != count and (self.is_paused or time.monotonic() < due):
                key = self.keys(3600 if self.is_paused else max(0.0, due - time.monotonic()))
                if key == "q":
                    return
                if key:
                    self._press(key)
                    yield self._screen(progress)

    def _screen(self, progress: Document) -> list[str]:
        size = get_terminal_size()
        note = "paused; p: continue" if self.is_paused else self.note
        about = About(
            *([*self.rates], self.why, self.time, self.is_open, note),
            keys=_KEYS,
            width=size.columns - 1,
            height=size.lines - 1,
        )
        return screen_of(progress, about)

    def _press(self, key: str) -> None:
        if key == "w":
            self.is_open = not self.is_open
        elif key == "p":
            self.is_paused = not self.is_paused
        elif key == "s":
            self.note = "a snapshot is taken ..."
            threading.Thread(target=self._take_snapshot, daemon=True).start()

    def _take_snapshot(self) -> None:
        try:
            done = client.ask(self.run, "snapshot")
        except (client.NoAnswer, client.Refused) as error:
            self.note = str(error)
        else:
            self.note = "the snapshot is not finished" if done["kind"] == "accepted" else f"snapshot {done['snapshot']}"

    def _ask(self) -> None:
        """Ask for the cause and the time, whose answers wait for the end of a tick; the picture does not."""
        while True:
            try:
                self.why = client.ask(self.run, "why")
                self.time = client.ask(self.run, "time")
            except client.NoAnswer:
                if client.has_ended(self.run):
                    return
            except client.Refused:
                pass
            time.sleep(ASKED_EVERY)

"""`malflow top` on a real terminal: its picture, its keys, and the terminal afterwards."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from malflow.snapshot import FsspecBackend
from tests.kit.interrupts import heed_signals
from tests.kit.waiting import wait_until
from tests.monitor.watching import monitored, numbers

pytestmark = pytest.mark.slow


class Terminal:
    """A command on its own terminal, and its output."""

    def __init__(self) -> None:
        self.master, self._end = pty.openpty()
        termios.tcsetwinsize(self.master, (40, 110))
        self.modes = termios.tcgetattr(self._end)
        environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        command = [sys.executable, "-m", "malflow", "top", "digits", "--every", "200ms"]
        ends: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), self._end)
        self.process = subprocess.Popen(
            command,
            env=environment,
            start_new_session=True,
            preexec_fn=heed_signals,  # noqa: PLW1509 - it only sets signals
            **ends,
        )
        self.text = ""

    def read(self, until: Callable[[str], object]) -> None:
        """Read until the text meets a condition."""
        end = time.monotonic() + 60
        while not until(self.text):
            assert time.monotonic() < end, self.text[-4000:]
            if select.select([self.master], [], [], 0.2)[0]:
                self.text += os.read(self.master, 1 << 16).decode()

    def press(self, key: str) -> None:
        """Press a key, and forget the earlier output."""
        self.text = ""
        os.write(self.master, key.encode())

    def is_restored(self) -> bool:
        """Whether the terminal is as it was."""
        return termios.tcgetattr(self._end) == self.modes

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self._end)


@pytest.fixture
def terminal(place: Path, tmp_path: Path) -> Iterator[Any]:
    with monitored(numbers(), persistence=FsspecBackend(tmp_path, job="digits")) as handle:
        terminal = Terminal()
        try:
            terminal.read(lambda text: "q: quit" in text)
            yield terminal, handle
        finally:
            terminal.close()


def test_picture_and_keys(terminal: tuple[Terminal, Any]) -> None:
    end, handle = terminal
    assert not end.is_restored()
    assert "operator" in end.text
    assert "numbers" in end.text
    end.press("s")
    end.read(lambda _: handle.progress.snapshot is not None)
    end.read(lambda text: f"\nsnapshot {handle.progress.snapshot}" in text.replace("\r", ""))
    end.press("w")
    end.read(lambda text: "records flow" in text)
    end.press("p")
    end.read(lambda text: "paused" in text)
    end.press("p")
    end.read(lambda text: text.count("q: quit") > 2)
    end.press("q")
    assert end.process.wait(30) == 0
    assert end.is_restored()
    assert not handle.has_ended


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_terminal_is_restored_after_signals(terminal: tuple[Terminal, Any], number: int) -> None:
    end, _ = terminal
    end.process.send_signal(number)
    wait_until(lambda: end.process.poll() is not None)
    assert end.process.returncode == 128 + number
    assert end.is_restored()
    assert end.text.count("\x1b[?25l") <= (end.text + os.read(end.master, 1 << 16).decode()).count("\x1b[?25h")


def test_an_ended_run_ends_the_picture(terminal: tuple[Terminal, Any]) -> None:
    end, handle = terminal
    handle.stop()
    end.read(lambda text: "has ended" in text)
    assert end.process.wait(30) == 0
    assert end.is_restored()

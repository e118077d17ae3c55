"""Commands that are typed into a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["Terminal"]

_SECONDS = 300


class Terminal:
    """A terminal in a folder.

    Args:
        folder: where it begins.
        environment: its variables.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._environment = {**environment, "TERM": "dumb", "COLUMNS": "200"}

    def type(self, command: str, is_enough: Callable[[str], bool] = lambda _: False) -> tuple[int, str]:
        """Run a command, press Ctrl-C once it has written enough, and return its exit code and the screen."""
        ours, its = pty.openpty()
        process = subprocess.Popen(
            [shutil.which("bash") or "bash", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - Ctrl-C is for this terminal
        )
        os.close(its)
        try:
            return self._watched(process, ours, is_enough)
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    def _watched(
        self, process: subprocess.Popen[bytes], ours: int, is_enough: Callable[[str], bool]
    ) -> tuple[int, str]:
        screen, is_typed, deadline = b"", False, time.monotonic() + _SECONDS
        while True:
            assert time.monotonic() < deadline, screen.decode(errors="replace")
            if not select.select([ours], [], [], 0.1)[0]:
                continue
            try:
                read = os.read(ours, 65536)
            except OSError:  # of Linux, when nobody has the terminal any longer
                read = b""
            if not read:
                return process.wait(_SECONDS), _text(screen)
            screen += read
            if not is_typed and is_enough(_text(screen)):
                os.write(ours, b"\x03")
                is_typed = True


def _text(screen: bytes) -> str:
    return screen.decode(errors="replace").replace("\r\n", "\n").replace("^C", "^C\n")

"""New projects in their own folders, and their commands as processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Done, Malflow, environment, malflow, without_control
from tests.kit.interrupts import heed_signals

__all__ = ["Make", "Started", "interrupted", "malflow", "project", "started", "without_control"]

Make = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, malflow: Malflow) -> Make:
    """Make a project with `malflow new`, and enter its folder."""

    def make(template: str = "minimal", name: str = "hello") -> Path:
        folder = tmp_path / name
        done = malflow("new", folder, "--template", template)
        assert done.code == 0, done.err
        monkeypatch.chdir(folder)
        return folder

    return make


class Started:
    """A running command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.first: list[str] = []

    def read(self, lines: int) -> None:
        """Wait until it has written that many lines on standard output."""
        assert self.process.stdout is not None
        self.first += [self.process.stdout.readline() for _ in range(lines)]

    def stop(self, number: int = signal.SIGINT) -> Done:
        """Send a signal, and wait for the end."""
        self.process.send_signal(number)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        rest, err = self.process.stdout.read(), self.process.stderr.read()
        return Done(self.process.wait(60), "".join(self.first) + rest, err)


@contextmanager
def started(*command: str, **options: Any) -> Iterator[Started]:
    """Start a command; it is killed at the end.

    Args:
        command: the program and its arguments.
        options: options of `subprocess.Popen`.
    """
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_signals,  # noqa: PLW1509 - it only sets signals
        **{"env": environment(), **options},
    ) as running:
        try:
            yield Started(running)
        finally:
            running.kill()


def interrupted(*arguments: str, lines: int = 20) -> Done:
    """Run a malflow command until it has written some lines, then interrupt it."""
    with started(sys.executable, "-m", "malflow", *arguments) as running:
        running.read(lines)
        return running.stop()

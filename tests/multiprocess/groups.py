"""Programs with worker processes, each in a session of its own, whose processes a test can find, stop and kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.interrupts import heed_signals
from tests.kit.waiting import wait_until
from tests.multiprocess.programs.totals import Options, runtime_of
from tests.processes.children import assert_exact, emitted

__all__ = ["DEADLINE", "Group", "assert_totals", "finish", "group", "run", "started"]

ROOT = Path(__file__).parents[2]
DEADLINE = 120.0
"""The seconds after which a program counts as stuck."""


class _Process(NamedTuple):
    """A process, as the system describes it."""

    pid: int
    state: str
    parent: int
    session: int


def _processes() -> Iterator[_Process]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            yield _Process(int(folder.name), fields[0], int(fields[1]), int(fields[3]))


def _command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    return ""


class Group:
    """A program, and the processes of its session.

    Args:
        command: the command.
        folder: where its output goes.
        environment: what the environment has in addition.

    Attributes:
        process: the program, which coordinates the run.
    """

    def __init__(self, command: Sequence[str], folder: Path, **environment: str) -> None:
        folder.mkdir(exist_ok=True)
        self._said, self._errors = folder / "stdout", folder / "stderr"
        self._said.write_text("")
        self._errors.write_text("")
        with self._said.open("ab") as said, self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=errors,
                cwd=ROOT,
                start_new_session=True,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
                preexec_fn=heed_signals,  # noqa: PLW1509 - it only sets signals
            )

    @property
    def said(self) -> list[str]:
        """The lines that it printed."""
        return self._said.read_text().splitlines()

    @property
    def errors(self) -> str:
        """What it wrote of errors."""
        return self._errors.read_text()

    def wait_for(self, line: str) -> None:
        """Wait until it has printed a line."""
        wait_until(lambda: line in self.said or self.process.poll() is not None, DEADLINE)
        assert line in self.said, f"it ended without '{line}', with {self.process.returncode}: {self.errors}"

    def living(self) -> list[_Process]:
        """Return the processes of the session that have not ended."""
        return [it for it in _processes() if it.session == self.process.pid and it.state not in "ZX"]

    def workers(self) -> list[int]:
        """Return the worker processes, in the order of their start."""
        living = self.living()
        children = {it.pid for it in living if it.parent == self.process.pid}
        servers = {pid for pid in children if "fork_server" in _command_of(pid)}
        found = [it.pid for it in living if it.parent in servers]
        return sorted(found or [pid for pid in children if "worker_process" in _command_of(pid)])

    def servers(self) -> list[int]:
        """Return the processes that fork the worker processes."""
        return [
            it.pid for it in self.living() if it.parent == self.process.pid and "fork_server" in _command_of(it.pid)
        ]

    def wait_for_workers(self, count: int = 2) -> list[int]:
        """Wait until there are so many worker processes; return them."""
        wait_until(lambda: len(self.workers()) == count or self.process.poll() is not None, DEADLINE)
        assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.errors}"
        return self.workers()

    def stopped(self, pids: Sequence[int]) -> list[int]:
        """Return those of some processes that are suspended."""
        return [it.pid for it in self.living() if it.pid in pids and it.state == "T"]

    def wait_for_stop(self) -> None:
        """Wait until the program itself is suspended."""
        pid = self.process.pid
        wait_until(lambda: self.stopped([pid]) or self.process.poll() is not None, DEADLINE)
        assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.errors}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the session, if there are any."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self, code: int = 0, seconds: float = DEADLINE) -> None:
        """Wait until the program has ended with an exit code, and left no process."""
        assert self.process.wait(seconds) == code, self.errors
        self.wait_for_nobody()

    def wait_for_nobody(self, seconds: float = DEADLINE) -> None:
        """Wait until all processes of the session have ended."""
        wait_until(lambda: not self.living(), seconds)


@contextmanager
def started(command: Sequence[str], folder: Path, **environment: str) -> Iterator[Group]:
    """Start a program; nothing of it outlives the block."""
    made = Group(command, folder, **environment)
    try:
        yield made
    finally:
        made.send(signal.SIGKILL)
        made.process.wait(DEADLINE)
        wait_until(lambda: not made.living(), DEADLINE)


@contextmanager
def group(folder: Path, options: Options, *, point: str = "", under: Sequence[str] = ()) -> Iterator[Group]:
    """Start the program that counts.

    Args:
        folder: where its state and output are.
        options: its options.
        point: the failpoint of the coordinator, as in `malflow.store.failpoint`.
        under: the beginning of the command, for a program that starts this one.
    """
    program = "tests.multiprocess.programs.totals"
    command = [*under, sys.executable, "-W", "error", "-m", program, str(folder), json.dumps(asdict(options))]
    with started(command, folder, MALFLOW_FAILPOINT=point) as made:
        yield made


def run(folder: Path, options: Options, **more: Any) -> list[str]:
    """Run the program that counts to its end; return the lines that it printed."""
    with group(folder, options, **more) as made:
        made.end()
        return made.said


def finish(folder: Path, size: int = Options.size, *, start_method: str = "forkserver", drawn: int = 0) -> None:
    """Continue with the count in this process, to its end."""
    runtime_of(folder, Options(size=size, drawn=drawn, start_method=start_method, every=0.1)).execute()


def assert_totals(folder: Path, size: int = Options.size, *, drawn: int = 0) -> None:
    """Check that each number was counted once, and each total written once to the file and once to the folder."""
    assert_exact(folder, size, drawn=drawn)
    files = sorted((folder / "parts").glob("part-*"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert sorted(tuple(json.loads(line)) for line in lines) == sorted(emitted(folder))

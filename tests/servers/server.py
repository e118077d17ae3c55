"""A server of one process on loopback, with its own folder."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.servers.watch import PID_FILE, is_running, read_pid

__all__ = ["INSTALLED", "Program", "Server", "ServerError", "free_ports", "run"]

INSTALLED = Path(os.environ.get("MALFLOW_SERVERS") or Path(__file__).parents[2] / ".servers")
"""What was installed, and the folders of the sessions that run."""

_LAUNCH = f'echo "$$ $0" > {PID_FILE}.new && mv {PID_FILE}.new {PID_FILE} && exec "$@"'
_LAUNCH_SECONDS = 2  # until then it need not have a process
_START_SECONDS = 120
_STOP_SECONDS = 60


class ServerError(Exception):
    """A server can't be installed or started."""


class Program(ABC):
    """A program needed by tests.

    Attributes:
        name: what it is called in messages.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """Return the reason why the program cannot be started, such as a missing package, or None."""

    @classmethod
    @abstractmethod
    def install(cls) -> None:
        """Install the program.

        Raises:
            ServerError: if that is not possible.
        """


class Server(Program):
    """A server of one process on loopback.

    All objects with one folder are the same server: one process starts it, and others find it.

    Attributes:
        end_signal: the signal that ends it at once, and leaves only its folder.
    """

    end_signal: ClassVar[signal.Signals] = signal.SIGKILL
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    ports: ClassVar[int] = 1

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    @abstractmethod
    def address(self) -> str:
        """What a client connects to."""

    @property
    def port(self) -> int:
        """The first of its ports: the same ones after each start."""
        return int((self.folder / "port").read_text(encoding="utf-8"))

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command that is the server, in the foreground."""

    def environment(self) -> Mapping[str, str]:
        """Return variables of the environment that it needs."""
        return {}

    def configure(self) -> None:
        """Write what the first start needs."""

    def answers(self) -> bool:
        """Whether clients are served."""
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def user(self) -> str | None:
        """The user who runs it, if not the present one."""
        return None

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return read_pid(self.folder) is not None

    def start(self) -> None:
        """Start it, also after `kill` and `stop`, and wait until it answers; the data is kept.

        Raises:
            ServerError: if it ends, or does not answer in time.
        """
        if not (self.folder / "port").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "port").write_text(str(free_ports(self.ports)), encoding="utf-8")
            self.configure()
        (self.folder / PID_FILE).unlink(missing_ok=True)
        self._launch()
        started = time.monotonic()
        while not ((self.folder / PID_FILE).exists() and self.answers()):
            took = time.monotonic() - started
            if took > _START_SECONDS or (took > _LAUNCH_SECONDS and not self.is_running):
                raise ServerError(f"{self.name} did not start within {took:.1f} s:\n{self.log[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Crash it: SIGKILL, without a chance to write anything."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it as an operator would."""
        self._end(self.stop_signal)

    @property
    def log(self) -> str:
        """What the server has written to its log."""
        path = self.folder / "server.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def processes(self, pid: int) -> Sequence[int]:
        """Return the processes that a crash kills."""
        return [pid]

    def _launch(self) -> None:
        # Nobody's child: another process of the session may find it, kill it and start it again.
        launch = ["setsid", "--fork", "sh", "-c", _LAUNCH, self.end_signal.name, *self.command()]
        with (self.folder / "server.log").open("ab") as log:
            subprocess.run(
                launch,
                check=True,
                cwd=self.folder,
                env={**os.environ, **self.environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
            )

    def _end(self, number: signal.Signals) -> None:
        found = read_pid(self.folder)
        if found is None:
            return
        doomed = self.processes(found[0]) if number == signal.SIGKILL else [found[0]]
        for pid in doomed:
            os.kill(pid, number)
        deadline = time.monotonic() + _STOP_SECONDS
        while any(map(is_running, doomed)):
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} did not end on {number.name}:\n{self.log[-2000:]}")
            time.sleep(0.01)


def free_ports(number: int) -> int:
    """Return the first of so many free ports in a row, which no client's socket takes while the server is down."""
    for _ in range(1000):
        first = random.randrange(20_000, 32_000, 4)  # noqa: S311 - no secret
        if all(map(_is_free, range(first, first + number))):
            return first
    raise ServerError("no free port")


def run(
    *command: str,
    folder: Path | None = None,
    user: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command of an installation.

    Raises:
        ServerError: if it fails or isn't there; with its output.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
    except OSError as error:
        raise ServerError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        raise ServerError(f"`{' '.join(command)}` failed: {done.stdout[-2000:].strip()}")


def _is_free(port: int) -> bool:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

"""The servers of a session of tests: one of each, started by the first test that asks, and shared by the processes."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeVar

from tests.servers import watch
from tests.servers.server import INSTALLED, Server, ServerError

__all__ = ["Session"]

S = TypeVar("S", bound=Server)


class Session:
    """The servers of a session of tests.

    Args:
        pid: the process whose end is the session's; every process of the session names the same one.
    """

    def __init__(self, pid: int) -> None:
        self.folder = INSTALLED / "sessions" / watch.process_name(pid)
        self._pid = pid
        self._used: dict[type[Server], Server] = {}

    def shared(self, kind: type[S]) -> S:
        """Return the session's server of a kind, which is started if it wasn't.

        Raises:
            ServerError: if it can't be started; also for whoever asks next.
        """
        server = kind(self._open() / kind.name)
        failed = self.folder / f"{kind.name}.failed"
        with _locked(self.folder / f"{kind.name}.lock"):
            if failed.exists():
                raise ServerError(failed.read_text(encoding="utf-8"))
            if not server.is_running:
                try:
                    server.start()
                except ServerError as error:
                    failed.write_text(str(error), encoding="utf-8")
                    raise
        self._used[kind] = server
        return server

    def revive(self, tell: Callable[[str], object]) -> None:
        """Start the shared servers again that this process has used and that have died; tell the end of their logs."""
        for kind, server in self._used.items():
            if not server.is_running:
                tell(f"{server.name} has died:\n{server.log[-4000:]}")
                self.shared(kind)

    @contextmanager
    def own(self, kind: type[S]) -> Iterator[Callable[[], S]]:
        """Return what starts servers of one's own, which can be killed; they are removed at the end."""
        made: list[S] = []

        def start() -> S:
            made.append(kind(Path(mkdtemp(prefix=f"{kind.name}-", dir=self._open()))))
            made[-1].start()
            return made[-1]

        try:
            yield start
        finally:
            for server in made:
                watch.end(server.folder)

    def end(self) -> None:
        """Kill the servers and remove what they have written."""
        if self.folder.exists():
            watch.end(self.folder)

    def _open(self) -> Path:
        # The watch is another process: this one may be killed.
        if not self.folder.exists():
            sessions = self.folder.parent
            sessions.mkdir(parents=True, exist_ok=True)
            with _locked(sessions / "lock"):
                watch.sweep(sessions)
                if not self.folder.exists():
                    watcher = [
                        "setsid",
                        "--fork",
                        sys.executable,
                        "-I",
                        watch.__file__,
                        str(self._pid),
                        str(self.folder),
                    ]
                    # It closes its standard output when it watches.
                    subprocess.run(
                        watcher,
                        check=True,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL,
                    )
                    self.folder.mkdir()
        return self.folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

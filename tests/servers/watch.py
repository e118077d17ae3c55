"""The end of a session's servers: killed and removed when the session's process ends, however it ends.

Run as a program, with the standard library alone: ``python watch.py PID FOLDER``.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

__all__ = ["PID_FILE", "end", "is_running", "process_name", "read_pid", "sweep"]

PID_FILE = "pid"
"""In the folder of a server: its process, and the signal that ends it at once."""


def process_name(pid: int) -> str:
    """Return a name that no other process of this machine has: a number may be used again, with another start."""
    return f"{pid}-{_stat(pid)[19]}"


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie; it may have threads that still hold its sockets."""
    try:
        state = _stat(pid)
    except OSError:
        return False
    return state[0] not in "ZX" or int(state[17]) > 1


def read_pid(folder: Path) -> tuple[int, signal.Signals] | None:
    """Return the process of the server in a folder, if it runs, and the signal that ends it at once."""
    with contextlib.suppress(OSError, ValueError):
        pid, name = (folder / PID_FILE).read_text(encoding="utf-8").split()
        if is_running(int(pid)) and _works_in(int(pid), folder):
            return int(pid), signal.Signals[name]
    return None


_PATIENCE = 2
"""Seconds after which the processes that a server waits for are killed."""


def end(folder: Path) -> None:
    """Kill a server, or the servers of a session; remove the folder and what it links to.

    A Postgres that was frozen has processes for connections that came meanwhile, and would wait a minute for what these
    never send. It ends when they are gone, and removes its shared memory.
    """
    deadline = time.monotonic() + _PATIENCE
    while found := [pid for pid in map(read_pid, [folder, *folder.glob("*")]) if pid is not None]:
        for pid, number in found:
            for doomed, by in [(pid, number), *((child, signal.SIGKILL) for child in _children(pid, deadline))]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(doomed, by)
        time.sleep(0.02)
    for link in [*folder.glob("*"), *folder.glob("*/*")]:
        if link.is_symlink():
            shutil.rmtree(link.resolve(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def sweep(sessions: Path) -> None:
    """End the servers of sessions whose process is gone, and whose watch as well."""
    for folder in sessions.glob("*-*"):
        pid = int(folder.name.split("-")[0])
        if not (is_running(pid) and process_name(pid) == folder.name):
            end(folder)


def _stat(pid: int) -> list[str]:
    # The second field, the program's name in brackets, may have spaces.
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _children(pid: int, deadline: float) -> list[int]:
    """Return the processes that a process has started, once the deadline has passed."""
    if time.monotonic() < deadline:
        return []
    with contextlib.suppress(OSError):
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split())]
    return []


def _works_in(pid: int, folder: Path) -> bool:
    # The number may be another process's by now.
    works_in = Path(f"/proc/{pid}/cwd").resolve()
    return any(works_in.is_relative_to(path.resolve()) for path in (folder, folder / "data"))


def _main(pid: int, folder: Path) -> None:
    descriptor = os.pidfd_open(pid)
    os.close(1)  # the starter waits for that
    select.select([descriptor], [], [])
    end(folder)


if __name__ == "__main__":
    _main(int(sys.argv[1]), Path(sys.argv[2]))

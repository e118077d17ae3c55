"""Kills in the middle of a write: of this process, or of the executor that it works for.

A file is written under a temporary name, and then linked to its place. So who is killed there leaves it ``torn``,
``written`` but not linked, or ``linked`` with nobody told.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from malflow.snapshot.codecs.contract import PickleCodec

if TYPE_CHECKING:
    from tests.spark.programs.faults import Options

__all__ = ["KILLS", "Deadly", "arm", "executor"]

_WRITE, _LINK = os.write, os.link
_SECONDS = 300


def arm(options: Options, folder: Path, kills: Mapping[str, str]) -> None:
    """Kill at this process's next write of a file below a folder; each kill happens once, in whichever process.

    Args:
        options: those of the run.
        folder: the folder.
        kills: a name for each, and what it is.
    """

    def pass_by(point: str, path: Path) -> None:
        for name, kill in kills.items():
            victim, where = kill.split()
            if where == point and path.is_relative_to(folder) and not options.happened(name):
                Path(options.folder, name).write_text(str(path.resolve(strict=True)), encoding="utf-8")
                _VICTIMS[victim](options)

    def write(file: int, data: Any) -> int:
        path = Path(f"/proc/self/fd/{file}").readlink()
        if not path.is_relative_to(folder):
            return _WRITE(file, data)
        count = _WRITE(file, data[: (len(data) + 1) // 2])
        pass_by("torn", path)
        return count

    def link(source: str, target: str, *, src_dir_fd: int, **how: Any) -> None:
        path = Path(f"/proc/self/fd/{src_dir_fd}").readlink() / source
        pass_by("written", path)
        _LINK(source, target, src_dir_fd=src_dir_fd, **how)
        pass_by("linked", path)

    os.write, os.link = write, link  # type: ignore[assignment] # as they are called


class Deadly(PickleCodec):
    """Writes states, and arms the processes that do, but for the driver: they write a snapshot."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.driver = os.getpid()

    def dumps(self, value: Any) -> bytes:
        if os.getpid() != self.driver:
            kills = {f"{kill} in a snapshot": kill for kill in self.options.kills}
            arm(self.options, Path(self.options.folder, "state"), kills)
        return super().dumps(value)


def _kill_worker(_options: Options) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_executor(options: Options) -> None:
    """Kill the executor, and this process with it."""
    os.kill(executor(), signal.SIGKILL)
    _kill_worker(options)


def _outlive_executor(options: Options) -> None:
    """Kill the executor, and continue when the run is over."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # by which Spark would have it end
    os.kill(executor(), signal.SIGKILL)
    deadline = time.monotonic() + _SECONDS
    while not Path(options.folder, "over").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def executor() -> int:
    """Return the executor of this process: its parent's parent."""
    status = Path(f"/proc/{os.getppid()}/status").read_text(encoding="ascii")
    return int(re.findall(r"^PPid:\s*(\d+)$", status, re.MULTILINE)[0])


_VICTIMS = {"worker": _kill_worker, "executor": _kill_executor, "only-executor": _outlive_executor}

KILLS = [f"{victim} {point}" for victim in ("worker", "executor") for point in ("torn", "written", "linked")]
"""Those that can be done while the changes of a tick are written."""
